"""Running sharders: in this process or several, together or apart."""

import traceback
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from costmodel.base.errors import (
    InfeasibleError,
    MissingDependencyError,
    PlannerError,
    PluginError,
    SharderFailedError,
)
from planner.planning.in_turn import run_in_turn, until_interrupted
from planner.planning.plugins import AUTO
from planner.planning.search import Attempt, Search, sharders_for
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import ShardingProblem


def run_sharders(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Run sharders one after the other; the time limit is for all of them together.

    Whether or not time is left, the first one that finds a plan is heard. The first Ctrl-C ends the
    search as soon as there is a plan, and the best one so far is the answer; a second one
    (``KeyboardInterrupt``) is raised only if no sharder has returned a plan. With ``search.jobs``
    all of this happens in so many processes (``planner.planning.parallel``).

    Raises
    ------
    PlannerError
        What the first sharder raised, if none finds a plan.

    """
    if search.jobs == 1:
        return run_in_turn(names, problem, search)
    from planner.planning.parallel import run_in_parallel

    check_room(problem)
    with until_interrupted(search) as heeding:
        return run_in_parallel(names, problem, heeding)


def run_apart(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Run sharders, or ``auto``, one after the other, none knowing what the others found.

    What the sharders of ``auto`` find is chosen among as ``plan`` does, within the time of
    ``auto``.

    Each has the whole time limit, and ends sooner where it gains nothing for a while. Being
    interrupted ends it; the last one heard is then one that has a plan. A sharder that finds no
    plan, or fails, costs the others nothing: its attempt has the error.
    """
    attempts: list[Attempt] = []
    with until_interrupted(search) as heeding:
        try:
            for name in names:
                if heeding.interrupted() and any(attempt.plan for attempt in attempts):
                    break
                attempts.append(_alone_or_error(name, problem, heeding))
        except KeyboardInterrupt:
            if not any(attempt.plan for attempt in attempts):
                raise
    return tuple(attempts)


def _alone_or_error(name: str, problem: ShardingProblem, search: Search) -> Attempt:
    """Return what a sharder, or ``auto``, finds alone, or an attempt with its error."""
    start = search.clock()
    error: PlannerError
    try:
        return _alone(name, problem, search)
    except (InfeasibleError, MissingDependencyError, PluginError) as own:
        error = own
    except MemoryError:
        raise
    except Exception as bug:  # noqa: BLE001 - whatever a sharder, ours or another's, raises
        error = SharderFailedError(name, _told(bug))
    return Attempt(sharder=name, plan=None, error=error, time=search.clock() - start)


def _told(bug: Exception) -> str:
    """Return an exception's type, message and the line that raised it."""
    last = traceback.extract_tb(bug.__traceback__)[-1]
    place = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{''.join(traceback.format_exception_only(bug)).strip()} ({place})"


def _alone(name: str, problem: ShardingProblem, search: Search) -> Attempt:
    from planner.planning.choice import choose, choosing_time

    start, timed = search.clock(), search.max_plans is None
    choosing = choosing_time(problem, search.time_limit) if name == AUTO and timed else 0.0
    searching = replace(search, time_limit=search.time_limit - choosing)
    tried = run_sharders(sharders_for(name), problem, searching)
    found = sorted((each for each in tried if each.plan), key=lambda each: each.step_time)
    best = found[0]
    if name == AUTO:
        end = start + search.time_limit if timed else inf
        best = choose(problem, found, lambda: end - search.clock()).attempt
    evaluated = sum(attempt.evaluated for attempt in tried)
    return replace(best, sharder=name, evaluated=evaluated, time=search.clock() - start)
