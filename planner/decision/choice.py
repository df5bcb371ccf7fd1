"""Which plan to choose of those found: the shortest step expected, not the shortest predicted.

1. Plans are timed under the same samples of the models' errors (``costmodel.uncertainty``): the
   best ones found, the baseline's, and what these become on machines that are off by such errors,
   by annealing on one of them and by descents on all (``planner.decision.robust``).
2. The shortest mean wins, unless the models cannot tell others from it. Among these
   ``robust.Preference`` decides: even lookups and memory, headroom, few and wide shards.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from costmodel.engine.objective import Objective
from costmodel.step.loads import PlanLoads
from costmodel.uncertainty.sampling import NUM_SAMPLES, Draws
from costmodel.uncertainty.step_samples import StepSamples, sample_steps
from planner.decision.confidence import confidence_of
from planner.decision.robust import (
    LEAST_SCENARIOS,
    RobustSearch,
    affordable_machines,
    robust_search,
)
from planner.environment.compiled import interpreted_modules
from planner.planned.report import Confidence
from planner.planned.verdict import SAME_STEP, kinds_text
from planner.search.one_sharder import run_sharder
from planner.search.search import Attempt, Search
from sharders.problem.sharding_problem import SearchStatus, ShardingProblem

MOST_STARTS = 4
"""Plans that are made better: those with the shortest mean steps on the sampled machines."""
MOST_BEHIND = 1.5
"""Times the shortest predicted step that theirs may be: to make a plan better gains some percent,
and the first look at one with collectives of its own takes 10 ms on every machine."""
CHOOSING = 0.4
"""Share of a time limit, in a comparison."""
INTERPRETED_SAMPLES = 32
"""Samples under which plans are timed where that is not compiled: 256 take 17 CPU seconds for each
plan of 26 tables on 128 GPUs."""
MOST_CANDIDATES = 8
LEAST_CANDIDATES = 4
"""Plans timed under all samples: as many as there is time for, and the fewest where descents were
made. Without time for these it is the plan with the shortest predicted step alone."""
SIMPLEST = "naive"
"""The sharder of the simplest plan: tables in turn. It is only weighed against what was found."""
WHOLE = "lookup_greedy"
"""The sharder of a plan of whole tables: descents change one table at a time, and do not leave a
type that all tables have, as its collectives stay until the last one has gone."""
IMPROVING = "annealing"
"""The sharder that makes plans better, whosever they were."""
DOUBT = 0.6
"""A plan is not faster than another whose odds are less."""
MOST_LOSS = 0.02
"""Nor is one equal that is slower by more in the mean, whatever its odds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan to use, and how sure that is."""

    attempt: Attempt
    """Whose plan it is; ``annealing``'s where another's was made better."""
    confidence: Confidence
    equals: tuple[Attempt, ...]
    """Candidates that the models cannot tell from it, itself included."""
    runner_up: Attempt | None
    """The best plan that was found otherwise."""
    probability_faster: float | None
    """That the chosen plan is faster than the runner-up."""
    samples: StepSamples
    plans: tuple[ShardingPlan, ...]
    """Those of the samples, the chosen one first."""
    simplest: Seconds = inf
    """The predicted step of the simplest plan (``SIMPLEST``); infinite where there is none."""


def choose(
    problem: ShardingProblem,
    attempts: Sequence[Attempt],
    time_left: Callable[[], Seconds],
    *,
    improve: bool = True,
    max_plans: int | None = None,
) -> Choice:
    """Choose among plans, the first of which is what a search that asks no more would return.

    Parameters
    ----------
    problem
        What is planned.
    attempts
        Plans found, each with its step time as predicted.
    time_left
        Asked between plans; one is always timed.
    improve
        Whether plans may be changed; if not, the first attempt is the choice, and the others what
        it is weighed against.
    max_plans
        How many plans the search was to look at, if they are counted: descents look at a table
        for every ``PLANS_PER_LOOK`` of them, so that the choice does not depend on the clock.

    """
    simplest = placed(problem, SIMPLEST) if improve else []
    found = _distinct(sorted([*attempts[1:], *simplest], key=_step_time), attempts[0])
    robust = robust_search(problem, time_left, max_plans) if improve else None
    ends: list[Attempt] = []
    if robust is not None:
        whole = placed(problem, WHOLE)
        found = _distinct(sorted([*found[1:], *whole], key=_step_time), found[0])
        most = MOST_BEHIND * found[0].step_time
        near = [each for each in found if each.step_time <= most]
        far = [each for each in found if each.step_time > most]
        for start in _by_mean(robust, near)[:MOST_STARTS]:
            if not ends or robust.has_time():
                ends += _improved(robust, start, problem)
        ends = _by_mean(robust, ends)
        found = [*found[:1], *_by_mean(robust, near), *far]
    elif improve:
        found = sorted(found, key=_step_time)
    by_others = [each for each in attempts if each.status is SearchStatus.GIVEN]
    candidates = _candidates(found, ends, by_others)
    least = 1 if robust is None else LEAST_CANDIDATES
    candidates, samples = _timed(problem, candidates, time_left, least)
    means = [samples.mean(number) for number in range(len(candidates))]
    best = min(range(len(candidates)), key=means.__getitem__) if improve else 0
    equal = [
        number
        for number in range(len(candidates))
        if number == best or _is_equal(samples, means, best, number)
    ]
    chosen = min(equal)  # without preferences, what the search itself would return
    if robust is not None and len(equal) > 1:
        chosen = min(equal, key=lambda n: (robust.preference(candidates[n].found), means[n]))
    made = _choice(candidates, samples, chosen, equal, ends)
    return replace(made, simplest=min(map(_step_time, simplest), default=inf))


def _candidates(
    found: Sequence[Attempt], ends: Sequence[Attempt], by_others: Sequence[Attempt]
) -> list[Attempt]:
    """Return what to time under all samples, the first of all found first.

    Among the earliest is the best plan of other sharding types, if any was found: what may turn the
    choice.
    """
    best = [*ends[:1], *found][0]
    others = [each for each in found if kinds_text(each.found) != kinds_text(best.found)]
    order = [*ends[:1], *by_others, *others[:1], *ends[1:], *found]
    return _distinct(order, found[0])[:MOST_CANDIDATES]


def choosing_time(problem: ShardingProblem, limit: Seconds) -> Seconds:
    """Return how much of a time limit to choose in, the search having the rest.

    A share where plans can be made better in it; none where that is worth more to the search.
    """
    share = CHOOSING * limit
    return share if affordable_machines(problem, share) >= LEAST_SCENARIOS else 0.0


def _choice(
    candidates: Sequence[Attempt],
    samples: StepSamples,
    chosen: int,
    equal: Sequence[int],
    ends: Sequence[Attempt],
) -> Choice:
    ended = {id(end) for end in ends}
    others = [n for n in range(len(candidates)) if n != chosen and id(candidates[n]) not in ended]
    runner_up = min(others, key=samples.mean, default=None)
    order = [chosen, *(n for n in range(len(candidates)) if n != chosen)]
    return Choice(
        attempt=candidates[chosen],
        confidence=confidence_of(samples, chosen),
        equals=tuple(candidates[n] for n in (chosen, *(n for n in equal if n != chosen))),
        runner_up=None if runner_up is None else candidates[runner_up],
        probability_faster=(
            None if runner_up is None else samples.probability_faster(chosen, runner_up)
        ),
        samples=samples.of(order),
        plans=tuple(candidates[n].found for n in order),
    )


def placed(problem: ShardingProblem, sharder: str) -> list[Attempt]:
    """Return what a greedy makes of the problem; nothing if it finds no room."""
    made = run_sharder(sharder, problem, Search(), inf)
    return [made] if made.plan else []


def _is_equal(samples: StepSamples, means: Sequence[Seconds], best: int, number: int) -> bool:
    """Return whether a plan cannot be told from the best one."""
    loss = means[number] / means[best] - 1
    return loss < SAME_STEP or (
        loss < MOST_LOSS and samples.probability_faster(best, number) < DOUBT
    )


def _timed(
    problem: ShardingProblem,
    candidates: Sequence[Attempt],
    time_left: Callable[[], Seconds],
    least: int,
) -> tuple[list[Attempt], StepSamples]:
    """Time plans under the samples, while there is time; the first ones in any case."""
    workload, topology = problem.workload, problem.topology
    draws = Draws.of(topology, INTERPRETED_SAMPLES if interpreted_modules() else NUM_SAMPLES)
    known = known_loads(problem)
    left = time_left()
    samples = sample_steps(workload, topology, (candidates[0].found,), draws=draws, loads=known)
    took = left - time_left() if left < inf else 0.0
    timed = [candidates[0]]
    for each in islice(candidates, 1, None):
        if len(timed) >= least and time_left() <= took:
            break
        own = sample_steps(workload, topology, (each.found,), draws=draws, loads=known)
        samples, timed = samples.beside(own), [*timed, each]
    return timed, samples


def known_loads(problem: ShardingProblem) -> PlanLoads:
    """Return what shards add to their ranks, with those of the plans that were timed known."""
    objective = problem.objective
    if isinstance(objective, Objective):
        return objective.loads
    return PlanLoads(problem.workload, problem.topology)


def _by_mean(robust: RobustSearch, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return attempts by the mean step of their plans on the sampled machines, the shortest first.

    Plans with shards that no option has come last.
    """
    return sorted(attempts, key=lambda each: robust.mean(each.found))


def _improved(robust: RobustSearch, start: Attempt, problem: ShardingProblem) -> Iterator[Attempt]:
    """Yield what a plan found becomes, as long as there is time.

    The best of where runs of annealing on single machines end, and where a descent from there does.
    """
    plan = min((start.found, *robust.elsewhere(start.found)), key=robust.mean)
    if plan != start.plan:
        yield _with_plan(start, plan, problem)
    if robust.has_time():
        yield _with_plan(start, robust.descend(plan), problem)


def _with_plan(attempt: Attempt, plan: ShardingPlan, problem: ShardingProblem) -> Attempt:
    return replace(
        attempt,
        sharder=attempt.sharder if plan == attempt.plan else IMPROVING,
        plan=plan,
        step_time=problem.objective.step_time(plan),
        status=SearchStatus.CONVERGED,
    )


def _distinct(attempts: Sequence[Attempt], first: Attempt) -> list[Attempt]:
    """Return attempts with plans of their own, a given one first."""
    seen: dict[ShardingPlan, Attempt] = {first.found: first}
    for each in attempts:
        for plan in each.plans:
            seen.setdefault(plan, each if plan is each.plan else replace(each, plan=plan))
    return list(seen.values())


def _step_time(attempt: Attempt) -> Seconds:
    return attempt.step_time
