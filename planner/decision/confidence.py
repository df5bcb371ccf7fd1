"""How sure predicted step times are, for reports: intervals and odds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from planner.planned.report import Confidence

if TYPE_CHECKING:
    from costmodel.step.loads import PlanLoads
    from costmodel.uncertainty.step_samples import StepSamples


def confidences(
    workload: Workload,
    topology: Topology,
    plans: Sequence[ShardingPlan],
    most: int | None = None,
    loads: "PlanLoads | None" = None,
) -> tuple[Confidence, ...]:
    """Return each plan's step and how sure it is, and its odds against the others.

    ``most`` is the largest number of samples; None: as many as usual. ``loads`` may know shards of
    the plans.
    """
    from costmodel.uncertainty.sampling import NUM_SAMPLES, Draws
    from costmodel.uncertainty.step_samples import sample_steps

    draws = Draws.of(topology, most or NUM_SAMPLES)
    samples = sample_steps(workload, topology, plans, draws=draws, loads=loads)
    return tuple(confidence_of(samples, index) for index in range(len(plans)))


def ranked(
    workload: Workload, topology: Topology, plans: Sequence[ShardingPlan]
) -> tuple[tuple[int, Confidence], ...]:
    """Return (number, confidence) of every plan, those with the shortest expected step first.

    Odds are against the first of them.
    """
    from costmodel.uncertainty.step_samples import sample_steps

    samples = sample_steps(workload, topology, plans)
    order = sorted(range(len(plans)), key=samples.mean)
    samples = samples.of(order)
    return tuple((number, confidence_of(samples, place)) for place, number in enumerate(order))


def probability_faster(
    first: tuple[Workload, Topology, ShardingPlan], second: tuple[Workload, Topology, ShardingPlan]
) -> float:
    """Return the probability that the first of two steps is the faster one.

    The steps may be of different workloads. Kernels and links that both use are off by the same
    factors.
    """
    from costmodel.uncertainty.sampling import Draws
    from costmodel.uncertainty.step_samples import sample_steps

    (workload, topology, plan), (other_workload, other_topology, other) = first, second
    draws = Draws.of(max(topology, other_topology, key=lambda each: each.world_size))
    mine = sample_steps(workload, topology, (plan,), draws=draws)
    theirs = sample_steps(other_workload, other_topology, (other,), draws=draws)
    return mine.beside(theirs).probability_faster(0, 1)


def confidence_of(samples: "StepSamples", plan: int) -> Confidence:
    """Return how sure the step of plan number ``plan`` is, and its odds against the other plans."""
    from costmodel.uncertainty.step_samples import LEVEL

    return Confidence(
        level=LEVEL,
        interval=samples.interval(plan),
        step_time=samples.mean(plan),
        optimism=samples.optimism(),
        num_candidates=samples.times.shape[1],
        probability_fastest=samples.probability_fastest()[plan],
        probability_beaten=samples.probability_faster(0, plan),
        regret=samples.regret(plan),
        causes={cause.value: share for cause, share in samples.shares(plan).items()},
    )
