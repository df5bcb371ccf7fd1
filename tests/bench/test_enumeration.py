from dataclasses import replace
from random import Random

import pytest

from bench.enumeration import FAMILIES, FOUND, every_plan, optimum
from costmodel.bounds.lower_bound import step_time_bound
from planner.search.running import run_sharders
from planner.search.search import Search, sharders_for
from sharders.baselines.ilp import Ilp
from sharders.problem.sharding_problem import Budget, ShardingProblem

CASES = (("open", 2), ("tight", 0), ("wide", 3), ("tiers", 3), ("limits", 4))
"""Families and seeds with 400 to 3,000 plans."""


@pytest.fixture(params=CASES, ids=lambda case: case[0])
def solved(request: pytest.FixtureRequest) -> tuple[ShardingProblem, float]:
    family, seed = request.param
    problem = FAMILIES[family].problem(seed)
    best = optimum(problem)
    assert best is not None
    return problem, best[0]


@pytest.mark.slow
def test_ilp_and_auto_find_the_optimum_and_the_bound_is_below_it(
    solved: tuple[ShardingProblem, float],
) -> None:
    problem, best = solved
    assert step_time_bound(problem.workload, problem.topology) <= best
    ilp = Ilp().shard(problem, Budget(max_evaluations=6000), Random(0))
    assert ilp.step_time == pytest.approx(best, rel=FOUND)
    attempts = run_sharders(sharders_for("auto"), replace(problem), Search(time_limit=60.0))
    assert min(attempt.step_time for attempt in attempts) == pytest.approx(best, rel=FOUND)


def test_plans_are_enumerated_up_to_names_of_ranks() -> None:
    # one table on two ranks: replicated, whole, by rows, by columns, by rows in the node: on which
    # rank the whole one is makes no difference, and columns in the only node are columns
    problem = FAMILIES["open"].problem(2)
    table = replace(problem.workload.tables[0], embedding_dim=8)
    workload = replace(problem.workload, tables=(table,))
    topology = replace(problem.topology, world_size=2, local_world_size=2)
    small = ShardingProblem.of(workload, topology)
    assert len(every_plan(small)) == 5
