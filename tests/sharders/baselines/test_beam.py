from dataclasses import replace
from itertools import accumulate
from random import Random

from machines import machine, topology

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.examples import example_problem, example_workload
from sharders.baselines.beam import Beam
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem


def _one_large_table() -> ShardingProblem:
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=1_000_000, embedding_dim=128,
            pooling_factor=100.0 if i == 0 else 2.0,
            sharding_types=(ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE),
        )
        for i in range(8)
    )  # fmt: skip
    workload = Workload(tables=tables)
    ranks = topology(4, 4, machine())
    return ShardingProblem.of(workload, ranks)


def test_splits_the_table_that_holds_everybody_up() -> None:
    plan = Beam().shard(_one_large_table(), Budget(), Random(0)).plan
    assert plan.table("t0").sharding_type is ShardingType.COLUMN_WISE


def test_more_breadth_is_no_worse() -> None:
    problem = _one_large_table()
    narrow, wide = (
        Beam(breadth=breadth).shard(problem, Budget(), Random(0)).step_time for breadth in (1, 3)
    )
    assert wide <= narrow * (1 + 1e-9)


def test_a_table_alone_is_split_step_by_step_while_its_shards_get_lighter() -> None:
    (table, *_) = _one_large_table().workload.tables
    kinds = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.ROW_WISE,
             ShardingType.DATA_PARALLEL)  # fmt: skip
    workload = Workload(tables=(replace(table, sharding_types=kinds, min_shard_dim=16),))
    problem = ShardingProblem.of(workload, topology(4, 4, machine()))
    costs = sorted(
        (cost.option.num_shards(problem.topology), cost.total_load, cost.shard_load)
        for cost in problem.groundwork.costs.all_of(workload.tables[0])
        if cost.option.sharding_type is not ShardingType.DATA_PARALLEL
    )
    lightest = list(accumulate((shard_load for *_, shard_load in costs), min))
    result = Beam().shard(problem, Budget(), Random(0))
    assert len(costs) > len(set(lightest)) > 2
    assert (result.status, result.evaluated) == (SearchStatus.CONVERGED, len(set(lightest)))


def test_says_when_the_budget_ended_it() -> None:
    problem = example_problem(example_workload(20))
    result = Beam().shard(problem, Budget(max_evaluations=5), Random(0))
    assert result.evaluated <= 5
    assert result.status is SearchStatus.LIMIT
