"""How sure predicted step times are, for reports: intervals, odds, and the winner's curse."""

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from planner.planning.report import Confidence

if TYPE_CHECKING:
    from costmodel.uncertainty.step_samples import StepSamples

MOST_CANDIDATES = 8
"""Plans that a picked one is weighed against: the fastest; slower ones are hardly ever picked."""


def confidences(
    workload: Workload, topology: Topology, plans: Sequence[ShardingPlan]
) -> tuple[Confidence, ...]:
    """Return how sure each plan's step time is, and its odds against the others."""
    from costmodel.uncertainty.step_samples import sample_steps

    samples = sample_steps(workload, topology, plans)
    return tuple(_confidence(samples, index) for index in range(len(plans)))


def picked_confidence(
    workload: Workload, topology: Topology, picked: ShardingPlan, others: Sequence[ShardingPlan]
) -> Confidence:
    """Return how sure the step time of a plan is that was picked from some, the fastest first.

    Being picked is taken into account: ``StepSamples.optimism``.
    """
    from costmodel.uncertainty.step_samples import sample_steps

    candidates = tuple(dict.fromkeys((picked, *others)))[:MOST_CANDIDATES]
    samples = sample_steps(workload, topology, candidates)
    return _confidence(samples, 0, optimism=samples.optimism())


def probability_faster(
    first: tuple[Workload, Topology, ShardingPlan], second: tuple[Workload, Topology, ShardingPlan]
) -> float:
    """Return how likely the first of two steps is the faster one, also of different workloads.

    What both have in common is off by the same factors in both.
    """
    from costmodel.uncertainty.sampling import Draws
    from costmodel.uncertainty.step_samples import sample_steps

    draws = Draws()
    (workload, topology, plan), (other_workload, other_topology, other) = first, second
    mine = sample_steps(workload, topology, (plan,), draws=draws)
    theirs = sample_steps(other_workload, other_topology, (other,), draws=draws)
    return mine.beside(theirs).probability_faster(0, 1)


def _confidence(samples: "StepSamples", plan: int, optimism: float = 0.0) -> Confidence:
    from costmodel.uncertainty.step_samples import LEVEL

    low, high = samples.interval(plan)
    return Confidence(
        level=LEVEL,
        interval=(low * exp(optimism), high * exp(optimism)),
        expected=samples.mean(plan) * exp(optimism),
        optimism=optimism,
        num_candidates=samples.times.shape[1],
        probability_fastest=samples.probability_fastest()[plan],
        probability_beaten=samples.probability_faster(0, plan),
        regret=samples.regret(plan),
        causes={cause.value: share for cause, share in samples.shares(plan).items()},
    )
