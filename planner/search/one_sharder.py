"""Running one sharder: against the clock, until interrupted, and judged by our objective."""

from dataclasses import is_dataclass, replace
from random import Random
from typing import Any

from costmodel.base.errors import InfeasibleError, MissingDependencyError, PlannerError, PluginError
from costmodel.base.units import Seconds
from costmodel.domain.validity import check_plan
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import check_memory
from planner.search.plugins import load_sharder
from planner.search.search import Attempt, Search
from sharders import SHARDERS
from sharders.problem.sharding_problem import Budget, SearchResult, Sharder, ShardingProblem

STORAGE = "storage"
"""The field of a sharder for the URL of a storage, in which several searches share their trials."""


def preload(name: str) -> None:
    """Import a sharder's module, so that importing (0.1 s) is not counted as search."""
    load_sharder(name)


def run_sharder(name: str, problem: ShardingProblem, search: Search, deadline: Seconds) -> Attempt:
    """Return what one sharder finds until a deadline of the clock, checked."""
    sharder = with_storage(load_sharder(name), search.storage)
    budget = Budget(
        max_evaluations=search.max_plans,
        should_stop=lambda: search.interrupted() or search.clock() > deadline,
        time_left=lambda: deadline - search.clock(),
        report=lambda progress: search.watch(name, progress),
    )
    start = search.clock()
    try:
        rng = Random(search.seed)  # noqa: S311 - searching, not hiding
        result = _checked(name, sharder.shard(problem, budget, rng), problem)
    except (InfeasibleError, MissingDependencyError) as error:
        return Attempt(sharder=name, plan=None, error=error, time=search.clock() - start)
    known = name in SHARDERS and isinstance(problem.objective, Objective)
    return Attempt(
        sharder=name,
        plan=result.plan,
        step_time=result.step_time if known else _step_objective(problem).step_time(result.plan),
        status=result.status,
        bound=result.bound,
        evaluated=result.evaluated,
        time=search.clock() - start,
        proof=result.proof,
        others=result.others,
    )


def _step_objective(problem: ShardingProblem) -> Objective:
    """Return the objective that predicts the step; a sharder may have been given another one."""
    if isinstance(problem.objective, Objective):
        return problem.objective
    return Objective(problem.workload, problem.topology)


def with_storage(sharder: Sharder, storage: str | None) -> Sharder:
    """Return a sharder that keeps its trials in a storage, if it is one that can."""
    if storage is None or not (is_dataclass(type(sharder)) and hasattr(sharder, STORAGE)):
        return sharder
    made: Any = sharder
    changed: Sharder = replace(made, **{STORAGE: storage})
    return changed


def _checked(name: str, result: SearchResult, problem: ShardingProblem) -> SearchResult:
    """Return a sharder's result with our step time; a third party's plan is checked first."""
    if name in SHARDERS:
        return result
    if not isinstance(result, SearchResult):
        raise PluginError(name, f"returned a {type(result).__name__}, not a SearchResult")
    try:
        check_plan(problem.workload, problem.topology, result.plan)
        check_memory(problem.workload, problem.topology, result.plan)
    except PlannerError as error:
        raise PluginError(name, f"returned a plan that cannot be used: {error}") from error
    return result
