"""Choosing a plan among those found, by the shortest expected step.

1. The best plans found, the baseline's plan and their improvements are timed under the same samples
   of the models' errors (``costmodel.uncertainty``). Annealing on one sampled machine and descents
   on all of them make the improvements (``planner.decision.robust``).
2. The plan with the shortest mean step wins, of those that leave the search's headroom of memory,
   unless a fuller one is surely faster (``SURE``). Where the models cannot tell others from it,
   ``robust.Preference`` decides among them: small tables whole, few and wide shards, even memory
   and lookups.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import fits
from costmodel.step.loads import PlanLoads
from costmodel.uncertainty.sampling import NUM_SAMPLES, Draws
from costmodel.uncertainty.step_samples import StepSamples, sample_steps
from planner.decision.confidence import confidence_of
from planner.decision.evening import evened
from planner.decision.robust import (
    LEAST_SCENARIOS,
    RobustSearch,
    affordable_machines,
    robust_search,
)
from planner.environment.compiled import interpreted_modules
from planner.planned.report import Confidence
from planner.planned.verdict import SAME_STEP, Fuller, kinds_text
from planner.search.one_sharder import run_sharder
from planner.search.search import Attempt, Search, fastest
from sharders.problem.sharding_problem import SearchStatus, ShardingProblem

MOST_STARTS = 4
"""Largest number of plans that are improved: those with the shortest mean steps."""
MOST_BEHIND = 1.5
"""Plans are improved if their predicted step is at most this multiple of the shortest one."""
CHOOSING = 0.4
"""Share of a sharder's time limit that is spent on choosing, where sharders are compared."""
INTERPRETED_SAMPLES = 32
"""Number of error samples under which a plan is timed where the search runs interpreted."""
MOST_CANDIDATES = 8
LEAST_CANDIDATES = 4
"""Smallest number of plans that are timed under all samples once descents were made. Without time
for descents, only the fastest plan by the models and given ones, as the baseline's, need be."""
SIMPLE = ("naive", "lookup_greedy")
"""Sharders that place tables whole, in turn and by lookups. Descents start from the faster plan,
too, as one that changes one table at a time never gets there: collectives of a type cost the same
until its last table has gone."""
MOST_PASSES = 8
"""The second simple plan is made if there is time for so many of the first."""
IMPROVING = "annealing"
"""The sharder that improves plans, whichever sharder found them."""
DOUBT = 0.6
"""A plan counts as faster than another only if the probability that it is faster reaches this."""
SURE = 0.95
"""A fuller plan wins only if it is faster with this probability: then the 90% interval of the
difference of the two steps, which the same errors move, leaves out 0."""
MOST_LOSS = 0.02
"""A plan whose mean step is longer by more than this share is not equal to the best plan, whatever
the odds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan to use, and how sure that is."""

    attempt: Attempt
    """The chosen plan, and who made it: ``annealing`` where it improved another sharder's plan."""
    confidence: Confidence
    samples: StepSamples
    plans: tuple[ShardingPlan, ...]
    """The plans timed under the samples, the chosen one first."""
    simple: Attempt | None = None
    """The simple plan (``SIMPLE``), which is one of ``plans``; None: none fits, or nothing may be
    changed."""
    fuller: Fuller | None = None
    """The best plan that leaves less memory free than asked, if it is chosen or has a shorter
    expected step; None: it is neither."""

    def of(self, attempt: Attempt | None) -> Confidence | None:
        """Return how sure the step of another attempt's plan is; None: it was not timed."""
        if attempt is None or attempt.plan not in self.plans:
            return None
        return confidence_of(self.samples, self.plans.index(attempt.found))


def choose(
    problem: ShardingProblem,
    attempts: Sequence[Attempt],
    time_left: Callable[[], Seconds],
    *,
    improve: bool = True,
    max_plans: int | None = None,
    whole: ShardingProblem | None = None,
) -> Choice:
    """Return the plan to use, out of those found, and how sure the choice is.

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
    whole
        The problem with all memory, if ranks of ``problem`` keep a part of it free (``headroom``):
        plans found may fill that, and are chosen only if they are surely faster.

    """
    whole = whole or problem
    simple = simple_plan(whole, time_left) if improve else None
    besides = [] if simple is None else [simple]
    found = _distinct(sorted([*attempts[1:], *besides], key=_step_time), attempts[0])
    robust = robust_search(problem, time_left, max_plans) if improve else None
    ends: list[Attempt] = []
    roomy = found if whole is problem else [each for each in found if _fits(problem, each)]
    beside = [] if found[0] in roomy else roomy[:1]
    if robust is not None:
        near = _near(roomy or found)
        starts = [*_by_mean(robust, near)[:1], *(each for each in besides if each in near)]
        for start in _distinct([*starts, *_by_mean(robust, near)], starts[0])[:MOST_STARTS]:
            if not ends or robust.has_time():
                ends += _improved(robust, start, problem)
        ends = _by_mean(robust, ends)
        near = _near(found)
        found = [*found[:1], *_by_mean(robust, near), *(each for each in found if each not in near)]
    elif improve:
        found = sorted(found, key=_step_time)
    given = [each for each in attempts if each.status is SearchStatus.GIVEN]
    candidates = _candidates(found, ends, [*beside, *given, *besides])
    least = 1 + len(beside) + len(given) if robust is None else LEAST_CANDIDATES
    candidates, samples = _timed(problem, candidates, time_left, least)
    roomy_ones = [
        n for n, each in enumerate(candidates) if whole is problem or _fits(problem, each)
    ]
    chosen = _chosen(samples, roomy_ones, candidates, robust) if improve else 0
    order = [chosen, *(n for n in range(len(candidates)) if n != chosen)]
    return Choice(
        attempt=candidates[chosen],
        confidence=confidence_of(samples, chosen),
        samples=samples.of(order),
        plans=tuple(candidates[n].found for n in order),
        simple=simple,
        fuller=_fuller(samples, roomy_ones, chosen),
    )


def _near(found: Sequence[Attempt]) -> list[Attempt]:
    """Return the plans whose steps are near the shortest one's."""
    most = MOST_BEHIND * min(each.step_time for each in found)
    return [each for each in found if each.step_time <= most]


def _fits(problem: ShardingProblem, attempt: Attempt) -> bool:
    return fits(problem.workload, problem.topology, attempt.found)


def _chosen(
    samples: StepSamples,
    roomy: Sequence[int],
    candidates: Sequence[Attempt],
    robust: RobustSearch | None,
) -> int:
    """Return the number of the plan to use; ``roomy`` are those that leave the headroom.

    Without preferences, it is the first one that is as good as the best.
    """
    numbers: Sequence[int] = range(len(candidates))
    best = min(numbers, key=samples.mean)
    if roomy:
        roomiest = min(roomy, key=samples.mean)
        if best == roomiest or samples.probability_faster(best, roomiest) < SURE:
            best, numbers = roomiest, roomy
    equal = [number for number in numbers if number == best or _is_equal(samples, best, number)]
    if robust is None or len(equal) == 1:
        return min(equal)
    return min(equal, key=lambda n: (robust.preference(candidates[n].found), samples.mean(n)))


def _fuller(samples: StepSamples, roomy: Sequence[int], chosen: int) -> Fuller | None:
    """Return what the fuller plan gains that is chosen, or could have been; None: there is none."""
    is_chosen = chosen not in roomy
    full = [number for number in range(samples.times.shape[1]) if number not in roomy]
    if is_chosen and not roomy:
        return Fuller(is_chosen=True)
    best = chosen if is_chosen else min(full, key=samples.mean, default=chosen)
    other = min(roomy, key=samples.mean) if is_chosen else chosen
    longer = samples.mean(other) / samples.mean(best) - 1
    if not is_chosen and longer <= SAME_STEP:
        return None
    sure = samples.probability_faster(best, other)
    return Fuller(is_chosen=is_chosen, longer=longer, probability_slower=sure)


def _candidates(
    found: Sequence[Attempt], ends: Sequence[Attempt], by_others: Sequence[Attempt]
) -> list[Attempt]:
    """Return the plans to time under all samples, the first plan found being the first.

    The best plan of other sharding types comes early, if there is one: it may turn the choice.
    """
    best = [*ends[:1], *found][0]
    others = [each for each in found if kinds_text(each.found) != kinds_text(best.found)]
    order = [*ends[:1], *by_others, *others[:1], *ends[1:], *found]
    return _distinct(order, found[0])[:MOST_CANDIDATES]


def fastest_with_room(
    problem: ShardingProblem, whole: ShardingProblem, attempts: Sequence[Attempt]
) -> Attempt:
    """Return the fastest plan by the models that leaves the headroom, or a surely faster one.

    ``problem`` and ``whole`` are as for ``choose``.
    """
    best = fastest(attempts)
    roomy = [each for each in attempts if whole is problem or _fits(problem, each)]
    if not roomy or best in roomy:
        return best
    other = fastest(roomy)
    plans, known = (best.found, other.found), known_loads(problem)
    samples = sample_steps(problem.workload, problem.topology, plans, loads=known)
    return best if samples.probability_faster(0, 1) >= SURE else other


def choosing_time(problem: ShardingProblem, limit: Seconds) -> Seconds:
    """Return the seconds of a time limit to spend on choosing; the search has the rest.

    It is a share of the limit where plans can be improved in that time, and 0 where the search
    needs it more.
    """
    share = CHOOSING * limit
    return share if affordable_machines(problem, share) >= LEAST_SCENARIOS else 0.0


def simple_plan(
    problem: ShardingProblem, time_left: Callable[[], Seconds] = lambda: inf
) -> Attempt | None:
    """Return the fastest plan of ``SIMPLE`` by the models; None: none fits.

    The second is left out where it would take much of the time left.
    """
    made: list[Attempt] = []
    for sharder in SIMPLE:
        if made and time_left() < MOST_PASSES * made[0].time:
            break
        made.append(run_sharder(sharder, problem, Search(), inf))
    return min((each for each in made if each.plan), key=_step_time, default=None)


def _is_equal(samples: StepSamples, best: int, number: int) -> bool:
    """Return whether the models cannot tell plan ``number`` from plan ``best``."""
    loss = samples.mean(number) / samples.mean(best) - 1
    return loss < SAME_STEP or (
        loss < MOST_LOSS and samples.probability_faster(best, number) < DOUBT
    )


def _timed(
    problem: ShardingProblem,
    candidates: Sequence[Attempt],
    time_left: Callable[[], Seconds],
    least: int,
) -> tuple[list[Attempt], StepSamples]:
    """Return the candidates timed under all samples, and their steps.

    The first ``least`` candidates are timed in any case, the others while there is time.
    """
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
    """Return what shards add to their ranks, including the shards of all plans timed so far."""
    objective = problem.objective
    if isinstance(objective, Objective):
        return objective.loads
    return PlanLoads(problem.workload, problem.topology)


def _by_mean(robust: RobustSearch, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return attempts by their plans' mean step on the sampled machines, the shortest first.

    Plans with shards that no option has come last.
    """
    return sorted(attempts, key=lambda each: robust.mean(each.found))


def _improved(robust: RobustSearch, start: Attempt, problem: ShardingProblem) -> Iterator[Attempt]:
    """Yield improvements of a plan found, as long as there is time.

    Annealing runs on single machines start from it; the best of their ends, the end of a descent
    from there, and the end of one from a plan of evener memory are yielded.
    """
    plan = min((start.found, *robust.elsewhere(start.found)), key=robust.mean)
    if plan != start.plan:
        yield _with_plan(start, plan, problem)
    if robust.has_time():
        end = robust.descend(plan)
        yield _with_plan(start, end, problem)
        even = evened(problem, end) if robust.has_time() else end
        if even != end:
            yield _with_plan(start, robust.descend(even), problem)


def _with_plan(attempt: Attempt, plan: ShardingPlan, problem: ShardingProblem) -> Attempt:
    return replace(
        attempt,
        sharder=attempt.sharder if plan == attempt.plan else IMPROVING,
        plan=plan,
        step_time=problem.objective.step_time(plan),
        status=SearchStatus.CONVERGED,
        others=(),
    )


def _distinct(attempts: Sequence[Attempt], first: Attempt) -> list[Attempt]:
    """Return attempts without those whose plan an earlier one has; ``first`` comes first."""
    seen: dict[ShardingPlan, Attempt] = {first.found: first}
    for each in attempts:
        for plan in each.plans:
            seen.setdefault(plan, each if plan is each.plan else replace(each, plan=plan))
    return list(seen.values())


def _step_time(attempt: Attempt) -> Seconds:
    return attempt.step_time
