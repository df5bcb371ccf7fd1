"""The value of an assumption at which two plans change places."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from costmodel.base.arrays import Array
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.engine.given import GivenStep
from costmodel.step.synthesis import step_operations
from costmodel.uncertainty.error_model import Cause, cause_of

FACTORS: Array = np.geomspace(0.25, 4.0, 49)
"""Factors on durations that are tried; 1 is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """The step of one plan, ready to be timed with some durations scaled."""

    given: GivenStep
    seconds: tuple[Array, ...]
    """Seconds of the operations of ``given``, each of shape (ranks or 1,)."""
    causes: tuple[Cause, ...]

    @classmethod
    def of(cls, workload: Workload, topology: Topology, plan: ShardingPlan) -> "PlanStep":
        """Return the step of a plan."""
        step = step_operations(workload, topology, plan, every_batch=False)
        given = GivenStep.of(step, topology)
        ops = [step.ops[op] for op in given.ops]
        return cls(
            given=given,
            seconds=tuple(op.seconds for op in ops),
            causes=tuple(cause_of(op, topology) for op in ops),
        )

    def times(self, causes: Collection[Cause], factors: Array = FACTORS) -> Array:
        """Return the step times with the durations of some causes scaled, shape (factors,)."""
        scale = factors[:, None]
        times = self.given.step_times({
            op: seconds * scale if cause in causes else seconds[None, :]
            for op, seconds, cause in zip(self.given.ops, self.seconds, self.causes, strict=True)
        })
        return np.broadcast_to(times, factors.shape)  # one time where nothing is of these causes


def crossing(first: Array, second: Array) -> float | None:
    """Return the factor nearest to 1 at which the order of two step times changes; None: none.

    Between two factors both times are taken to be straight lines. Equal times are no order: the
    crossing is where one begins to be longer.

    Parameters
    ----------
    first, second
        Step times at ``FACTORS``, shape (factors,).

    """
    ahead = np.sign(np.where(np.isclose(first, second, rtol=1e-6), 0.0, second - first))
    present = ahead[int(np.abs(FACTORS - 1.0).argmin())]
    places = np.flatnonzero(ahead * present < 0 if present else ahead != 0)
    if not len(places):
        return None
    place = min(places.tolist(), key=lambda each: abs(np.log(FACTORS[each])))
    inner = place - 1 if FACTORS[place] > 1 else place + 1
    gaps = second[[inner, place]] - first[[inner, place]]
    if not present or gaps[0] * gaps[1] >= 0:
        return float(FACTORS[inner])
    share = float(gaps[0] / (gaps[0] - gaps[1]))
    return float(FACTORS[inner] + share * (FACTORS[place] - FACTORS[inner]))
