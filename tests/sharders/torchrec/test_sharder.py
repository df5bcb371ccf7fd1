"""The port as a sharder; ``tests/planner/with_torchrec`` holds it to TorchRec's planner."""

from dataclasses import replace
from random import Random

import pytest

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.examples import example_problem, example_workload
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem
from sharders.torchrec.sharder import TorchRecPort


def planned(problem: ShardingProblem, budget: Budget | None = None) -> dict[str, ShardingType]:
    plan = TorchRecPort().shard(problem, budget or Budget(), Random(0)).plan
    return {table.table: table.sharding_type for table in plan.tables}


def test_small_tables_are_replicated_and_large_ones_are_not() -> None:
    # gradients of 26 kB are reduced in less than a microsecond, those of 4 GB in 80 ms
    small = EmbeddingTable(name="small", num_embeddings=100, embedding_dim=64)
    large = EmbeddingTable(name="large", num_embeddings=16_000_000, embedding_dim=64)
    problem = example_problem(Workload(tables=(small, large)), world_size=4, fill=0.5)
    kinds = planned(problem)
    assert kinds["small"] is ShardingType.DATA_PARALLEL
    assert kinds["large"] is not ShardingType.DATA_PARALLEL


def test_it_ends_by_itself_and_is_the_same_again() -> None:
    problem = example_problem(example_workload(12), world_size=4)
    results = [TorchRecPort().shard(problem, Budget(), Random(seed)) for seed in (0, 1)]
    assert results[0] == results[1]
    assert results[0].status is SearchStatus.CONVERGED
    assert results[0].step_time == problem.objective.step_time(results[0].plan)


def test_the_plan_is_in_the_order_of_the_workload() -> None:
    first, second, *others = example_workload(4).tables
    tables = (replace(first, weighted=True), second, *others)
    problem = example_problem(Workload(tables=tables), world_size=2)
    assert list(planned(problem)) == [table.name for table in tables]


def test_a_first_plan_is_looked_for_whatever_the_budget() -> None:
    # replicas of all tables, which cost least where hosts exchange slowly, have no room
    tables = [
        EmbeddingTable(
            name=name,
            num_embeddings=10**5,
            embedding_dim=64,
            pooling_factor=20.0,
            sharding_types=(ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE),
        )
        for name in "abcd"
    ]
    workload = Workload(tables=tuple(tables))
    problem = example_problem(workload, world_size=8, num_nodes=2, fill=0.6)
    result = TorchRecPort().shard(problem, Budget(should_stop=lambda: True), Random(0))
    assert result.status is SearchStatus.LIMIT
    assert result.evaluated > 1


def test_where_nothing_has_room_it_says_whose_planner_found_none() -> None:
    problem = example_problem(example_workload(), fill=1.5)
    with pytest.raises(InfeasibleError, match="TorchRec's planner finds no plan"):
        planned(problem)
