"""HugeCTR's planner by hand: what a shard costs, what is replicated, what is split."""

from random import Random

import pytest
from machines import topology

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.baselines.hugectr import HugeCtrLike, _plans, shard_cost
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import Budget, SearchResult, ShardingProblem


def table(name: str, pooling: float, *, rows: int = 10**6, dim: int = 64) -> EmbeddingTable:
    return EmbeddingTable(name=name, num_embeddings=rows, embedding_dim=dim, pooling_factor=pooling)


def problem(*tables: EmbeddingTable, nodes: int = 1) -> ShardingProblem:
    """Put tables on 4 ranks: memory is 10 times as fast as links, 100 times those of nodes."""
    workload, ranks = Workload(tables=tables, local_batch_size=1024), topology(4, 4 // nodes)
    return ShardingProblem.of(workload, ranks)


def shard(given: ShardingProblem) -> SearchResult:
    return HugeCtrLike().shard(given, Budget(), Random(0))


@pytest.mark.parametrize(
    ("kind", "blocks", "nodes", "cost"),
    [
        (ShardingType.DATA_PARALLEL, 1, 1, 0.0),
        (ShardingType.TABLE_WISE, 1, 1, 4 * 20 * 64 + 10 * 64),
        (ShardingType.COLUMN_WISE, 2, 1, 4 * 20 * 32 + 10 * 32),
        (ShardingType.ROW_WISE, 1, 1, 4 * 5 * 64 + 10 * 64),
        (ShardingType.TABLE_WISE, 1, 2, 4 * 20 * 64 + 100 * 64),
        (ShardingType.TABLE_ROW_WISE, 1, 2, 4 * 10 * 64 + 1.5 / 2 * 100 * 64),
        (ShardingType.GRID_SHARD, 2, 2, 4 * 10 * 32 + 1.5 / 2 * 100 * 32),
    ],
)
def test_a_shard_costs_its_lookups_and_what_it_sends(
    kind: ShardingType, blocks: int, nodes: int, cost: float
) -> None:
    one = table("t", 20.0)
    option = TableOption(sharding_type=kind, num_column_shards=blocks)
    assert shard_cost(problem(one, nodes=nodes), one, option) == pytest.approx(cost)


def test_a_hot_table_is_split_and_small_ones_are_replicated() -> None:
    # on all ranks the hot one costs each 7,040, in halves 13,120; 18 rounds are left for others
    others = [table(f"t{i}", 1.0) for i in range(30)]
    plans = _plans(problem(table("hot", 100.0), table("small", 1.0, rows=1000), *others))
    _, *_, last = plans
    kinds = {each.table: each.sharding_type for each in last.tables}
    assert kinds.pop("hot") is ShardingType.ROW_WISE
    assert kinds.pop("small") is ShardingType.DATA_PARALLEL
    assert set(kinds.values()) == {ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE}


def test_tables_alike_are_whole_and_even() -> None:
    plans = list(_plans(problem(*(table(f"t{i}", 2.0, dim=32) for i in range(8)))))
    kinds = {each.sharding_type for plan in plans for each in plan.tables}
    assert kinds == {ShardingType.ROW_WISE, ShardingType.TABLE_WISE}  # too narrow for halves
    ranks = [each.ranks for each in plans[1].tables]
    assert sorted(ranks) == [(rank,) for rank in range(4) for _ in range(2)]


def test_on_several_nodes_rows_within_nodes_are_tried() -> None:
    given = problem(*(table(f"t{i}", 20.0, dim=32) for i in range(2)), nodes=2)
    plans = list(_plans(given))
    kinds = {each.sharding_type for plan in plans for each in plan.tables}
    assert {ShardingType.TABLE_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.ROW_WISE} <= kinds
    assert shard(given).step_time == min(map(given.objective.step_time, plans))
