"""Running sharders one after the other, each with its share of the time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf

from costmodel.base.errors import PlannerError
from costmodel.base.units import Seconds
from planner.environment.collecting import seldom_collecting
from planner.environment.interrupts import interruptible
from planner.planning.gains import Gains
from planner.planning.one_sharder import run_sharder
from planner.planning.plugins import load_sharder
from planner.planning.search import Attempt, Search, Watch
from sharders import PORTFOLIO, PortfolioMember
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import Paced, Progress, ShardingProblem


@seldom_collecting()
def run_in_turn(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Run sharders in this process, one after the other.

    Raises
    ------
    PlannerError
        What the first sharder raised, if none finds a plan.

    """
    check_room(problem)
    attempts: list[Attempt] = []
    with until_interrupted(search) as heeding:
        try:
            for attempt in _in_turn(names, problem, heeding):
                attempts.append(attempt)
                if attempt.plan is not None:
                    _tell(heeding.watch, attempts)
        except KeyboardInterrupt:
            if not any(attempt.plan for attempt in attempts):
                raise
    if not any(attempt.plan for attempt in attempts):
        raise _first_error(attempts)
    return tuple(attempts)


def _tell(watch: Watch, attempts: Sequence[Attempt]) -> None:
    """Tell where the search stands after a sharder: not all of them report on the way."""
    evaluated = sum(attempt.evaluated for attempt in attempts)
    best = min(attempt.step_time for attempt in attempts)
    watch(attempts[-1].sharder, Progress(evaluated=evaluated, best=best))


@contextmanager
def until_interrupted(search: Search) -> Iterator[Search]:
    """Yield a search that the first Ctrl-C ends, too."""
    with interruptible() as interrupt:
        yield replace(search, interrupted=lambda: interrupt.happened or search.interrupted())


def _in_turn(names: Sequence[str], problem: ShardingProblem, search: Search) -> Iterator[Attempt]:
    """Yield what each sharder finds, as soon as it has."""
    deadline = search.clock() + search.seconds
    gains = Gains(search)
    search = replace(search, watch=gains.watch)
    fractions = {name: _member(name).time_fraction for name in names}
    attempts: list[Attempt] = []
    known = problem.known
    for position, name in enumerate(names):
        found = any(attempt.plan for attempt in attempts)
        quickest = min((attempt.time for attempt in attempts), default=0.0)
        deadline = min(deadline, search.deadline(quickest))
        gains.quickest = quickest
        now = search.clock()
        over = now + quickest > deadline  # none is quicker than the first
        if found and (search.interrupted() or over or gains.over()):
            break
        plans = tuple(plan for attempt in attempts for plan in attempt.plans)
        share, plans_left = 1.0, _plans_left(search, attempts)
        if plans_left is not None:
            if found and plans_left == 0:
                break
            share = fractions[name] if len(names) > 1 else 1.0
            plans_left = max(1, int(share * plans_left))
        elif len(names) > 1 and (attempts or fractions[name] < 1):
            left = deadline - now
            share = _share(names[position:], problem, left, quickest)
        if found and share == 0:
            continue
        until = now + share * max(0.0, deadline - now) if plans_left is None else inf
        problem = problem.with_known((*known, *plans))  # with all that was computed of it so far
        own = replace(search, max_plans=plans_left)
        if fractions[name] == 1:
            own = replace(own, interrupted=gains.end_of(name))
        attempts.append(replace(run_sharder(name, problem, own, until), early=gains.early))
        yield attempts[-1]


def _plans_left(search: Search, attempts: Sequence[Attempt]) -> int | None:
    """Return how many plans may still be looked at; None: as many as there is time for."""
    if search.max_plans is None:
        return None
    return max(0, search.max_plans - sum(attempt.evaluated for attempt in attempts))


def _member(name: str) -> PortfolioMember:
    """Return how a sharder shares the time; one that ``auto`` does not run is not limited."""
    return PORTFOLIO.get(name, PortfolioMember())


def _share(
    names: Sequence[str], problem: ShardingProblem, left: Seconds, pass_time: Seconds
) -> float:
    """Return the share of the time left that the first of some sharders may take; 0: none.

    ``pass_time``: what the first plan took.
    """
    own = pass_time * _startup_passes(names[0], problem)
    member = _member(names[0])
    main = [name for name in names[1:] if _member(name).time_fraction == 1]
    needed = [pass_time * _startup_passes(name, problem) for name in main]
    kept = max((each for each in needed if each <= left), default=0.0)
    time = member.time_fraction * (left - kept) if member.time_fraction < 1 else left
    if member.mandatory and (time < own or kept == 0):
        time = own if 0 < kept <= left - own else left
    return time / left if time >= own and left > 0 else 0.0


def _startup_passes(name: str, problem: ShardingProblem) -> float:
    sharder = load_sharder(name)
    return sharder.startup_passes(problem) if isinstance(sharder, Paced) else 0.0


def _first_error(attempts: Sequence[Attempt]) -> PlannerError:
    errors = [attempt.error for attempt in attempts if attempt.error is not None]
    return errors[0]
