"""Making the plan that a result is compared with, by default as TorchRec's planner would.

It runs after the search, in the time that the limit leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from costmodel.base.units import Seconds
from planner.environment.extras import require_torchrec
from planner.search.one_sharder import run_sharder
from planner.search.plugins import TORCHREC, load_sharder
from planner.search.search import Attempt, Search
from sharders.problem.sharding_problem import SearchStatus, ShardingProblem

DEFAULT_BASELINE = "torchrec_port"
"""The port of TorchRec's planner: it makes the same plans without torchrec, in a second instead of
minutes."""
NONE = "none"
START = "start"
"""The first of the plans that a search begins with."""
_ENDING = (DEFAULT_BASELINE, TORCHREC)
"""Sharders that end by themselves; stopped earlier they might return another plan."""
WITHOUT = "no plan to compare with: "
_SHARE = 0.1
"""Share of the search's time limit that a baseline may take."""
_TABLE_TIME: Seconds = 4e-4
"""Seconds that the default baseline takes for each table until it has a plan. Where less time is
left, there is no baseline."""


def check_baseline(name: str) -> None:
    """Raise unless a baseline can be run, before anything is searched.

    Raises
    ------
    UnknownNameError, MissingDependencyError
        There is no such sharder, or its package is missing.

    """
    if name == TORCHREC:
        require_torchrec("the baseline `torchrec`")
    if name not in {NONE, START}:
        load_sharder(name)


def find_baseline(
    name: str,
    problem: ShardingProblem,
    search: Search,
    attempts: Sequence[Attempt],
    time_left: Callable[[], Seconds],
) -> Attempt | str | None:
    """Return what the baseline found, or the reason why there is none; None if none was asked for.

    Parameters
    ----------
    name
        A sharder, ``start`` or ``none``.
    problem, search, attempts
        What was planned, how, and what was found: plans of the same sharder are not made twice.
    time_left
        What the baseline may take.

    """
    if name == NONE:
        return None
    if name == START:
        known = next(iter(problem.known_times()), None)
        if known is None:
            return f"{WITHOUT}the one to begin with is not valid, or does not fit"
        return Attempt(sharder=START, step_time=known[0], plan=known[1])
    found = next((attempt for attempt in attempts if attempt.sharder == name), None)
    if found is None:
        needed = _TABLE_TIME * len(problem.workload.tables)
        if name == DEFAULT_BASELINE and time_left() < needed:
            return f"{WITHOUT}no time was left for `{name}`"
        found = _run(name, problem, search)
    if found.plan is None:
        return f"{WITHOUT}{found.error}"
    return found


def cut_short(found: Attempt) -> str | None:
    """Return why an attempt's plan may not be the one that its sharder would make; None: it is."""
    cut = found.sharder in _ENDING and found.status is SearchStatus.LIMIT
    return f"stopped after {found.evaluated:,} plans" if cut else None


def _run(name: str, problem: ShardingProblem, search: Search) -> Attempt:
    """Return what one sharder finds, without telling the watcher of its progress.

    Where plans are counted, the default baseline ends by itself.
    """
    counted = search.seconds == inf
    deadline = inf if counted else search.clock() + _SHARE * search.time_limit
    most = None if name == DEFAULT_BASELINE else search.max_plans
    unseen = replace(search, watch=Search().watch, max_plans=most)
    return run_sharder(name, problem, unseen, deadline)
