"""Timing one step under sampled errors: random numbers by name scale its durations.

References
----------
McKay, Beckman, Conover, Technometrics 21 (1979): Latin hypercube sampling.

"""

from dataclasses import dataclass, field
from functools import lru_cache
from math import cos, log2, pi, sin
from statistics import NormalDist
from zlib import crc32

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.engine.given import GivenStep
from costmodel.step.graph import NodeKind
from costmodel.step.step_operations import Op, StepOperations
from costmodel.uncertainty.error_model import Cause, ErrorModel, cause_of
from costmodel.uncertainty.unread import is_dense_kernel, unread_spread

NUM_SAMPLES = 256
"""Number of samples: the ends of a 90% interval are within 2% of the step time in repeated
draws."""
MOST_SAMPLED_RANKS = 2**18
"""Largest number of ranks over all samples; beyond 1,024 ranks fewer samples are drawn."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Standard normal numbers by name: the same name always gives the same ones.

    Each name's are the quantiles of the normal distribution in random order (a Latin hypercube),
    so their mean and spread are exact whatever their number.
    """

    num_samples: int = NUM_SAMPLES
    seed: int = 0
    _known: dict[str, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, topology: Topology, most: int = NUM_SAMPLES) -> "Draws":
        """Return the usual number of samples for steps on these ranks, up to ``most``."""
        return cls(max(1, min(most, MOST_SAMPLED_RANKS // topology.world_size)))

    def normal(self, name: str) -> Array:
        """Return one number per sample."""
        if name not in self._known:
            entropy = np.array([self.seed, crc32(name.encode())], dtype=np.uint32)
            order = np.random.Generator(np.random.PCG64(entropy))  # as default_rng, but sooner
            self._known[name] = order.permutation(_quantiles(self.num_samples))
        return self._known[name]

    def smooth(self, name: str, at: float) -> Array:
        """Return one number per sample that changes smoothly with a coordinate.

        Standard normal anywhere; independent where coordinates differ by 2 or more.
        """
        before = int(at // 1)
        angle = 0.5 * pi * (at - before)
        here, there = self.normal(f"{name} {before}"), self.normal(f"{name} {before + 1}")
        mixed: Array = cos(angle) * here + sin(angle) * there
        return mixed


@lru_cache(maxsize=4)
def _quantiles(count: int) -> Array:
    """Return so many quantiles of a normal distribution, scaled to a standard deviation of one."""
    normal = NormalDist()
    values = np.array([normal.inv_cdf((i + 0.5) / count) for i in range(count)])
    scaled: Array = values / values.std()
    return scaled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanNoise:
    """A plan's own errors, as standard normal numbers, or smaller ones where they average out."""

    lookups: Array
    """Errors of lookup kernels, shape (samples, ranks)."""
    structure: Array
    """Errors of the whole step, shape (samples,)."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """Times steps under sampled errors of one machine's models."""

    topology: Topology
    errors: ErrorModel
    draws: Draws

    def step_times(
        self, step: StepOperations, noise: PlanNoise | None = None
    ) -> tuple[Seconds, Array]:
        """Return the predicted step, and the step of every sample, shape (samples,).

        Without a plan's own noise, errors of lookups and of the structure go by their name.
        """
        given = GivenStep.of(step, self.topology)
        unread = unread_spread(step, self.errors.unread) * self.draws.normal(Cause.UNREAD)
        times = given.step_times({
            op: self._durations(step.ops[op], noise, unread) for op in given.ops
        })
        spread = self.errors.spread(Cause.STRUCTURE)
        own = self.draws.normal("structure of a plan") if noise is None else noise.structure
        scale = np.exp(spread.shared * self.draws.normal(Cause.STRUCTURE) + spread.own * own)
        return float(times[0]), times[1:] * scale

    def _durations(self, op: Op, noise: PlanNoise | None, unread: Array) -> Array:
        """Return an operation's seconds, shape (1 + samples, ranks): as predicted, then sampled.

        ``unread`` has the log factors of the dense kernels, shape (samples,).
        """
        seconds = op.seconds[:1] if (op.seconds == op.seconds[0]).all() else op.seconds
        cause = cause_of(op, self.topology)
        spread = self.errors.spread(cause)
        own = self._own(op, cause, noise)
        logs = spread.shared * self.draws.normal(cause)[:, None] + spread.own * own
        if self.errors.unread and is_dense_kernel(op):
            logs = logs + unread[:, None]
        factors = np.exp(logs)
        scaled = factors * seconds
        return np.concatenate([np.broadcast_to(seconds, (1, scaled.shape[1])), scaled])

    def _own(self, op: Op, cause: Cause, noise: PlanNoise | None) -> Array:
        """Return an operation's own errors, shape (samples, ranks or 1).

        A collective's is a smooth function of the message, like the error of a fitted curve; a
        lookup's comes from the tables; others' go by the operation's name.
        """
        if noise is not None and cause in (Cause.LOOKUP, Cause.UPDATE):
            return noise.lookups
        if op.kind is NodeKind.COLLECTIVE:
            return self.draws.smooth(cause, log2(max(1.0, float(op.num_bytes.max()))))[:, None]
        return self.draws.normal(op.name)[:, None]
