"""Annealing improves on the plans it starts from, and says when it has nothing left to try."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Pipeline, Workload
from costmodel.engine.objective import Objective
from planner.examples import example_hardware, example_problem, example_workload
from sharders.annealing.sharder import Annealing
from sharders.greedy.cost_greedy import CostGreedy
from sharders.greedy.few_types import is_small
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem


def table_wise_problem(num_tables: int, world_size: int, seed: int) -> ShardingProblem:
    rng = Random(seed)
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}",
            num_embeddings=rng.choice([1000, 100_000, 1_000_000]),
            embedding_dim=rng.choice([32, 64, 128]),
            pooling_factor=rng.uniform(1, 60),
        )
        for i in range(num_tables)
    )
    workload = Workload(tables=tables, pipeline=Pipeline.DLRM, local_batch_size=4096)
    ranks = Topology(
        hardware=example_hardware(), world_size=world_size, local_world_size=world_size
    )
    return ShardingProblem.of(workload, ranks)


def best_by_enumeration(problem: ShardingProblem) -> float:
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    tables, ranks = problem.workload.tables, range(problem.topology.world_size)
    plans = [
        make_plan(
            problem.topology,
            [
                make_sharding(table, problem.topology, option, (rank,))
                for table, rank in zip(tables, where, strict=True)
            ],
        )
        for where in product(ranks, repeat=len(tables))
    ]
    objective = Objective(problem.workload, problem.topology)
    return float(objective.step_times(plans).min())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_finds_the_best_placement_of_small_problems(seed: int) -> None:
    problem = table_wise_problem(7, 3, seed)
    result = Annealing().shard(problem, Budget(), Random(0))
    assert result.step_time == pytest.approx(best_by_enumeration(problem), rel=1e-9)
    assert result.status is SearchStatus.CONVERGED


@pytest.mark.slow
def test_is_never_worse_than_the_plans_it_knows() -> None:
    problem = example_problem(example_workload(30, seed=4), world_size=8)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    known = replace(problem, known=(greedy.plan,))
    result = Annealing().shard(known, Budget(max_evaluations=500), Random(0))
    assert result.step_time <= greedy.step_time
    assert result.status is SearchStatus.LIMIT


def test_plans_of_other_types_are_kept_where_the_search_ends_before_its_time() -> None:
    """A choice is made among them, and they say what would turn it."""
    problem = example_problem(example_workload(20, seed=7), world_size=4)
    assert not is_small(problem)
    stopped = Budget(max_evaluations=3000)
    found = Annealing().shard(problem, stopped, Random(0))
    kinds = {frozenset(s.sharding_type for s in plan.tables) for plan in found.others}
    assert found.status is SearchStatus.LIMIT
    assert len(kinds) > 1
    late = replace(stopped, time_left=lambda: 0.0)
    assert Annealing().shard(problem, late, Random(0)).others == ()
