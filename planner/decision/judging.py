"""Finding what a choice of a plan rests on: rivals, assumptions that turn it, a free batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from statistics import NormalDist

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import fits
from costmodel.uncertainty.error_model import ACROSS, INSIDE, Cause, ErrorModel, error_model
from costmodel.uncertainty.sensitivity import PlanStep, crossing
from costmodel.uncertainty.step_samples import StepSamples, sample_steps
from planner.decision.choice import Choice, simple_plan
from planner.decision.narrow import (
    has_narrow_shards,
    small_cut,
    with_small_whole,
    with_wider_blocks,
)
from planner.planned.verdict import CutSmall, NarrowBlocks, PlanVerdict, Rival, Turn, kinds_text
from planner.search.baseline import DEFAULT_BASELINE, cut_short
from planner.search.one_sharder import run_sharder
from planner.search.search import Attempt, Search, fastest
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
RIVAL_TIME: Seconds = 10.0
"""Seconds that TorchRec's planner may take for a plan that is explained: at 856 tables on 1,024
GPUs its port takes 70, and at 5,000 more than half an hour."""


def make_verdict(
    problem: ShardingProblem,
    choice: Choice,
    *,
    rival: Attempt | None,
    host_time: Seconds,
    in_time: Callable[[], bool],
    time_left: Callable[[], Seconds],
) -> PlanVerdict:
    """Return what a choice rests on.

    Parameters
    ----------
    problem, choice
        What was planned, and chosen.
    rival
        What the choice is weighed against; None: it is not known.
    host_time
        The host's part of the critical path.
    in_time
        Asked before what would turn the choice is looked for, and what small tables gain.
    time_left
        Asked before the rest, which is left out where there is no time.

    """
    plan = choice.plans[0]
    return PlanVerdict(
        rival=None if rival is None else weighed(problem, choice, rival, in_time),
        host_time=host_time,
        free_batch=_free_batch(problem, plan, time_left),
        narrow=narrow_blocks(problem, plan, time_left),
        small=cut_small(problem, plan, choice.simple) if in_time() else None,
        fuller=choice.fuller,
    )


def weighed(
    problem: ShardingProblem, choice: Choice, rival: Attempt, in_time: Callable[[], bool]
) -> Rival | None:
    """Return the rival of a choice, and what would turn it; None: it was not timed."""
    if rival.plan not in choice.plans:
        return None
    number = choice.plans.index(rival.found)
    found = rival_of(choice.samples, number, rival.sharder, rival.found)
    if not in_time():
        return found
    return _with_turn(found, problem.workload, problem.topology, choice.plans[0])


def _with_turn(rival: Rival, workload: Workload, topology: Topology, plan: ShardingPlan) -> Rival:
    """Return the rival of a plan with what would turn the choice, unless it is as good."""
    if rival.is_as_good:
        return rival
    return replace(rival, turn=turn_of(workload, topology, plan, rival.plan))


def rival_of(samples: StepSamples, number: int, sharder: str, plan: ShardingPlan) -> Rival:
    """Return plan ``number`` of the samples as the rival of the first, without what would turn."""
    return Rival(
        sharder=sharder,
        types=kinds_text(plan),
        plan=plan,
        longer=samples.mean(number) / samples.mean(0) - 1,
        probability_slower=samples.probability_faster(0, number),
        turn=None,
    )


def explained_rival(workload: Workload, topology: Topology, plan: ShardingPlan) -> Rival | None:
    """Return the rival of a plan made earlier, the same as when it was made.

    TorchRec's planner is left out where it takes longer than ``RIVAL_TIME``.
    """
    problem, search = ShardingProblem.of(workload, topology), Search()
    ported = run_sharder(DEFAULT_BASELINE, problem, search, search.clock() + RIVAL_TIME)
    ended = None if cut_short(ported) else ported
    made = [each for each in (ended, simple_plan(problem)) if each is not None and each.plan]
    if not made:
        return None
    rival = fastest(made)
    samples = sample_steps(workload, topology, (plan, rival.found))
    found = rival_of(samples, 1, rival.sharder, rival.found)
    return _with_turn(found, workload, topology, plan)


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


def turn_of(
    workload: Workload, topology: Topology, plan: ShardingPlan, rival: ShardingPlan
) -> Turn | None:
    """Return the assumption that would soonest make a rival the faster one; None: none alone.

    None, too, where the rival is faster by the models as they are: errors alone decide then.
    """
    errors = error_model(topology, workload.dense.precision)
    chosen, other = (PlanStep.of(workload, topology, each) for each in (plan, rival))
    turns: list[Turn] = []
    for assumption, causes in ASSUMPTIONS.items():
        ours, theirs = chosen.times(causes), other.times(causes)
        factor, middle = crossing(ours, theirs), len(ours) // 2
        if factor is None or theirs[middle] < ours[middle]:
            continue
        deviations = abs(log(factor)) / _spread(errors, causes)
        turns.append(
            Turn(
                assumption=assumption,
                factor=factor,
                probability=1 - NormalDist().cdf(deviations),
                value=topology.hardware.host.op_time if assumption == "host" else None,
            )
        )
    return max(turns, key=lambda turn: turn.probability, default=None)


def cut_small(
    problem: ShardingProblem, plan: ShardingPlan, simple: Attempt | None = None
) -> CutSmall | None:
    """Return the small tables that a plan cuts, and the step with them whole; None: there are none.

    They are placed by their own lookups, which are few; or all tables are whole, as in the plan of
    ``simple``.
    """
    cut = small_cut(problem.workload, plan)
    if not cut:
        return None
    held = [0.0] * plan.world_size
    for each in plan.tables:
        table = problem.workload.table(each.table)
        ranks = each.ranks
        for rank in ranks:
            held[rank] += table.pooling_factor * table.embedding_dim / len(ranks)
    whole = with_small_whole(problem.workload, problem.topology, plan, cut, held)
    now = problem.objective.step_time(plan)
    times = [] if whole is None else [problem.objective.step_time(whole)]
    times += [] if simple is None else [simple.step_time]
    return CutSmall(
        tables=tuple(each.table for each in cut),
        longer=min(times) / now - 1 if times else None,
    )


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
