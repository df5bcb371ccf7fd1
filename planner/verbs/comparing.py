"""Comparing sharders: each searches alone, and their plans stand beside each other."""

import traceback
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from costmodel.base.errors import (
    InfeasibleError,
    MissingDependencyError,
    PlannerError,
    PluginError,
    SharderFailedError,
)
from planner.decision.choice import choose, choosing_time
from planner.decision.confidence import ranked
from planner.environment.settings import DEFAULT_HARDWARE
from planner.planned.planned import Comparison
from planner.search.headroom import run_with_headroom
from planner.search.in_turn import until_interrupted
from planner.search.plugins import AUTO, sharder_names
from planner.search.search import Attempt, Search, several, sharders_for
from planner.verbs.planning import HardwareLike, WorkloadLike, advised, planning_task
from sharders.problem.sharding_problem import ShardingProblem


def compare(
    workload: WorkloadLike,
    *,
    gpus: int,
    nodes: int | None = None,
    hardware: HardwareLike = DEFAULT_HARDWARE,
    sharders: Sequence[str] | str = (),
    search: Search | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Search
) -> Comparison:
    """Return the plans of several sharders (none named: all, and ``auto``), simulated.

    The shortest expected step comes first.

    None knows what the others found, and each has the whole time limit. ``errors`` of the result
    has why a sharder has no plan, by its name; if none finds one, the first's error is raised.
    """
    task = planning_task(workload, hardware, gpus, nodes)
    search = replace(search or Search(), **options)
    names = several(sharders) or (*sharder_names(), AUTO)
    attempts = run_apart(names, task.problem, search)
    errors = {attempt.sharder: attempt.error for attempt in attempts if attempt.error}
    found = sorted((a for a in attempts if a.plan), key=lambda attempt: attempt.step_time)
    if not found:
        raise advised(next(iter(errors.values())), task.problem, search)
    plans = [attempt.found for attempt in found]
    order = ranked(task.problem.workload, task.problem.topology, plans)
    compared = (
        task.planned(
            found[number],
            task.report(
                found[number],
                (found[number],),
                confidence,
                requested=found[number].sharder,
                search=search,
            ),
        )
        for number, confidence in order
    )
    return Comparison(compared, errors)


def run_apart(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Return what each sharder, or ``auto``, finds alone, one after the other.

    ``auto`` chooses among its sharders' plans as ``plan`` does, within its own time limit.

    Each has the whole time limit, and ends sooner where it gains nothing for a while. An interrupt
    ends all, the last one run being the first that has a plan. If a sharder fails, its attempt has
    the error.
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
        error = SharderFailedError(name, _bug_text(bug))
    return Attempt(sharder=name, plan=None, error=error, time=search.clock() - start)


def _bug_text(bug: Exception) -> str:
    """Return an exception's type, message and the line that raised it."""
    last = traceback.extract_tb(bug.__traceback__)[-1]
    place = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{''.join(traceback.format_exception_only(bug)).strip()} ({place})"


def _alone(name: str, problem: ShardingProblem, search: Search) -> Attempt:
    """Return what one sharder finds by itself, in all of the time."""
    start, timed = search.clock(), search.max_plans is None
    choosing = choosing_time(problem, search.time_limit) if name == AUTO and timed else 0.0
    searching = replace(search, time_limit=search.time_limit - choosing)
    own, tried = run_with_headroom(sharders_for(name), problem, searching, fuller=name == AUTO)
    found = sorted((each for each in tried if each.plan), key=lambda each: each.step_time)
    best = found[0]
    if name == AUTO:
        end = start + search.time_limit if timed else inf
        best = choose(own, found, lambda: end - search.clock(), whole=problem).attempt
    evaluated = sum(attempt.evaluated for attempt in tried)
    return replace(best, sharder=name, evaluated=evaluated, time=search.clock() - start)
