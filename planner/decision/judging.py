"""Finding what a choice of a plan rests on: rivals, assumptions that turn it, a free batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import fits
from costmodel.uncertainty.error_model import ACROSS, INSIDE, Cause, ErrorModel, error_model
from costmodel.uncertainty.sensitivity import PlanStep, crossing
from planner.decision.choice import Choice
from planner.decision.narrow import has_narrow_shards, with_wider_blocks
from planner.planned.verdict import NarrowBlocks, PlanVerdict, Turn, kinds_text
from sharders.problem.sharding_problem import ShardingProblem

ASSUMPTIONS = {
    "host": (Cause.HOST,),
    "lookups": (Cause.LOOKUP, Cause.UPDATE),
    "collectives": (Cause.LATENCY, *INSIDE.values(), *ACROSS.values()),
}
"""Assumptions that are varied, by name, with the causes of error that each stands for."""
FREE = 0.1
"""A batch twice as large is nearly free if it lengthens the step by less than this share."""
MOST_DOUBLINGS = 4
MOST_RIVALS = 3
"""Largest number of rivals, the best plans that might be chosen instead."""


def make_verdict(
    problem: ShardingProblem,
    choice: Choice,
    *,
    bound: Seconds,
    host_time: Seconds,
    time_left: Callable[[], Seconds],
) -> PlanVerdict:
    """Return what a choice rests on.

    Parameters
    ----------
    problem, choice
        What was planned, and chosen.
    bound
        What no plan undercuts.
    host_time
        The host's part of the critical path.
    time_left
        Asked between plans; what there is no time for is left out.

    """
    means = [choice.samples.mean(number) for number in range(len(choice.plans))]
    turn, num_rivals = deciding(problem, choice.plans, means, time_left)
    return PlanVerdict(
        num_candidates=len(choice.plans),
        num_equal=len(choice.equals),
        spread=max(means) / min(means) - 1,
        simplest_longer=choice.simplest / choice.attempt.step_time - 1,
        within_bound=choice.simplest / bound - 1 if bound else None,
        host_time=host_time,
        runner_up=None if choice.runner_up is None else choice.runner_up.sharder,
        runner_up_types=_runner_up_kinds(choice),
        probability_faster=choice.probability_faster,
        ahead=_ahead(choice, means),
        free_batch=_free_batch(problem, choice.plans[0], time_left),
        turn=turn,
        num_rivals=num_rivals,
        narrow=narrow_blocks(problem, choice.plans[0], time_left),
    )


def narrow_blocks(
    problem: ShardingProblem, plan: ShardingPlan, time_left: Callable[[], Seconds]
) -> NarrowBlocks | None:
    """Return tables that are cut into narrow blocks, and the step with blocks twice as wide.

    None if no table is, or no time is left.
    """
    workload, topology = problem.workload, problem.topology
    if time_left() <= 0:
        return None
    narrow = [each for each in plan.tables if has_narrow_shards(workload, each)]
    if not narrow:
        return None
    wider = with_wider_blocks(workload, topology, plan, narrow)
    now = problem.objective.step_time(plan)
    return NarrowBlocks(
        tables=tuple(sharding.table for sharding in narrow),
        longer=None if wider is None else problem.objective.step_time(wider) / now - 1,
    )


def _ahead(choice: Choice, means: Sequence[Seconds]) -> float:
    """Return by what share the runner-up's mean step is longer; 0: there is no runner-up."""
    if choice.runner_up is None or choice.runner_up.plan is None:
        return 0.0
    return means[choice.plans.index(choice.runner_up.plan)] / means[0] - 1


def _runner_up_kinds(choice: Choice) -> str | None:
    """Return the runner-up's sharding types as text; None: there is no runner-up."""
    if choice.runner_up is None or choice.runner_up.plan is None:
        return None
    kinds = kinds_text(choice.runner_up.plan)
    return f"another {kinds}" if kinds == kinds_text(choice.plans[0]) else kinds


def deciding(
    problem: ShardingProblem,
    plans: Sequence[ShardingPlan],
    means: Sequence[Seconds],
    time_left: Callable[[], Seconds],
) -> tuple[Turn | None, int]:
    """Return the assumption that would turn the choice soonest, and the number of rivals.

    The first plan is the chosen one. Rivals are the plans of other sharding types, by their
    expected steps ``means``. The assumption is None if none of them would turn the choice.
    """
    workload, topology = problem.workload, problem.topology
    errors = error_model(topology, workload.dense.precision)
    rivals = sorted(range(1, len(plans)), key=means.__getitem__)
    rivals = [n for n in rivals if kinds_text(plans[n]) != kinds_text(plans[0])][:MOST_RIVALS]
    if not rivals or time_left() <= 0:
        return None, 0
    chosen = PlanStep.of(workload, topology, plans[0])
    turns: list[Turn] = []
    compared = 0
    for rival in rivals:
        if time_left() <= 0:
            break
        compared += 1
        other = PlanStep.of(workload, topology, plans[rival])
        for assumption, causes in ASSUMPTIONS.items():
            ours, theirs = chosen.times(causes), other.times(causes)
            factor = crossing(ours, theirs)
            if factor is not None:
                middle = len(ours) // 2
                value = topology.hardware.host.op_time if assumption == "host" else None
                turns.append(
                    Turn(
                        assumption=assumption,
                        factor=factor,
                        deviations=abs(log(factor)) / _spread(errors, causes),
                        value=value,
                        rival=kinds_text(plans[rival]),
                        rival_plan=plans[rival],
                        rival_ahead=bool(theirs[middle] < ours[middle]),
                    )
                )
    return min(turns, key=lambda turn: turn.deviations, default=None), compared


def _spread(errors: ErrorModel, causes: Sequence[Cause]) -> float:
    """Return the largest shared spread (deviation of the log) of some causes, at least 0.01."""
    return max(0.01, *(errors.spread(cause).shared for cause in causes))


def _free_batch(
    problem: ShardingProblem, plan: ShardingPlan, time_left: Callable[[], Seconds]
) -> int | None:
    """Return the largest local batch that is nearly free (``FREE``), by doubling; None: none."""
    workload, topology = problem.workload, problem.topology
    if time_left() <= 0:
        return None
    first = problem.objective.step_time(plan)
    free = None
    for _ in range(MOST_DOUBLINGS):
        if time_left() <= 0:
            break
        larger = replace(workload, local_batch_size=2 * workload.local_batch_size)
        if not fits(larger, topology, plan):
            break
        if Objective(larger, topology).step_time(plan) > first * (1 + FREE):
            break
        workload, free = larger, larger.local_batch_size
    return free
