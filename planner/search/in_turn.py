"""Running sharders one after the other, as long as there is time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from costmodel.base.errors import PlannerError
from planner.environment.collecting import seldom_collecting
from planner.environment.interrupts import interruptible
from planner.search.gains import Gains, is_small
from planner.search.one_sharder import preload, run_sharder
from planner.search.search import Attempt, Search, SearchEnd, Watch
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import Progress, ShardingProblem


@seldom_collecting()
def run_in_turn(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Return what each sharder finds, run in this process one after the other.

    Raises
    ------
    PlannerError
        What the first sharder raised, if none finds a plan.

    """
    check_room(problem.groundwork)
    attempts: list[Attempt] = []
    with until_interrupted(search) as heeding:
        try:
            for attempt in _in_turn(names, problem, heeding):
                attempts.append(attempt)
                if attempt.plan is not None:
                    _tell(heeding.watch, attempts)
            was_told_to_end = heeding.interrupted()
        except KeyboardInterrupt:
            if not any(attempt.plan for attempt in attempts):
                raise
            was_told_to_end = True
    if was_told_to_end and attempts[-1].early is None:
        attempts[-1] = replace(attempts[-1], early=SearchEnd.INTERRUPTED)
    if not any(attempt.plan for attempt in attempts):
        raise _first_error(attempts)
    return tuple(attempts)


def _tell(watch: Watch, attempts: Sequence[Attempt]) -> None:
    """Tell the watcher the best step once a sharder has ended: not all report progress."""
    evaluated = sum(attempt.evaluated for attempt in attempts)
    best = min(attempt.step_time for attempt in attempts)
    watch(attempts[-1].sharder, Progress(evaluated=evaluated, best=best))


@contextmanager
def until_interrupted(search: Search) -> Iterator[Search]:
    """Yield a copy of a search that also ends at the first Ctrl-C."""
    with interruptible() as interrupt:
        yield replace(search, interrupted=lambda: interrupt.happened or search.interrupted())


def _in_turn(names: Sequence[str], problem: ShardingProblem, search: Search) -> Iterator[Attempt]:
    """Yield the attempt of each sharder as soon as it has ended."""
    gains = Gains(search, is_small=is_small(problem))
    preload(names[0])
    gains.begin()
    search = replace(search, watch=gains.watch)
    attempts: list[Attempt] = []
    known = problem.known
    for name in names:
        plans_left = _plans_left(search, attempts)
        if any(attempt.plan for attempt in attempts) and (
            plans_left == 0
            or search.interrupted()
            or gains.over()
            or search.clock() + gains.first_plan > gains.deadline()
        ):
            break
        plans = tuple(plan for attempt in attempts for plan in attempt.plans)
        problem = replace(problem, known=(*known, *plans))
        plans_left = None if plans_left is None else max(1, plans_left)
        own = replace(search, max_plans=plans_left, interrupted=gains.end_of(name))
        attempt = run_sharder(name, problem, own, gains.deadline())
        gains.end(attempt)
        told = replace(attempt, early=gains.early, gained_for=gains.gained_for)
        attempts.append(replace(told, first_plan=gains.first_plan))
        yield attempts[-1]


def _plans_left(search: Search, attempts: Sequence[Attempt]) -> int | None:
    """Return how many plans may still be looked at; None: as many as there is time for."""
    if search.max_plans is None:
        return None
    return max(0, search.max_plans - sum(attempt.evaluated for attempt in attempts))


def _first_error(attempts: Sequence[Attempt]) -> PlannerError:
    errors = [attempt.error for attempt in attempts if attempt.error is not None]
    return errors[0]
