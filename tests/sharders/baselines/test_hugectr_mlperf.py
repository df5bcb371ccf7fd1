"""NVIDIA's planner by hand: over how many GPUs or nodes it splits tables, and what plan that is."""

from random import Random

import pytest
from machines import topology

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.baselines.hugectr_mlperf import HugeCtrAuto, HugeCtrHierAuto, num_splits
from sharders.problem.sharding_problem import Budget, SearchResult, Sharder, ShardingProblem

AUTO = HugeCtrAuto()


def table(name: str, pooling: float, *, rows: int = 10**5, dim: int = 64) -> EmbeddingTable:
    return EmbeddingTable(name=name, num_embeddings=rows, embedding_dim=dim, pooling_factor=pooling)


def problem(*tables: EmbeddingTable, ranks: int = 4, nodes: int = 1) -> ShardingProblem:
    """Put tables on ranks whose memory is 10 times as fast as links, 100 times those of nodes."""
    workload = Workload(tables=tables, local_batch_size=1024)
    return ShardingProblem.of(workload, topology(ranks, ranks // nodes))


def shard(sharder: Sharder, given: ShardingProblem) -> SearchResult:
    return sharder.shard(given, Budget(), Random(0))


def splits(given: ShardingProblem, sharder: HugeCtrAuto = AUTO) -> list[int]:
    return num_splits(sharder.places(given), Budget())


def kinds(given: ShardingProblem, sharder: Sharder) -> dict[str, tuple[str, int]]:
    tables = shard(sharder, given).plan.tables
    return {each.table: (each.sharding_type.value, len(each.shards)) for each in tables}


def test_a_hot_table_is_split_until_its_gpu_is_no_longer_the_costliest() -> None:
    # a shard sends as much as 10 / 4 lookups take. Rows everywhere: 116 / 4 + 5 * 2.5 = 41.5.
    # Whole: 102.5. In halves: 52.5. In quarters: 25 + 2.5, and on each a small one, 4 + 2.5: 34
    tables = [table("hot", 100.0), *(table(f"t{i}", 4.0) for i in range(4))]
    given = problem(*tables)
    assert splits(given) == [4, 1, 1, 1, 1]
    made = kinds(given, HugeCtrAuto())
    assert made.pop("hot") == (ShardingType.ROW_WISE.value, 4)
    assert set(made.values()) == {(ShardingType.TABLE_WISE.value, 1)}
    # with links so slow that sending is all, nothing is split
    assert splits(given, HugeCtrAuto(memory_over_link=1e6)) == [1, 1, 1, 1, 1]


def test_rows_over_some_gpus_are_columns_over_as_many() -> None:
    # halves cost 20 + 2.5, as much as a small one; quarters would have each GPU send twice
    tables = [table("hot", 40.0), table("a", 20.0), table("b", 20.0)]
    given = problem(*tables)
    assert splits(given) == [2, 1, 1]
    assert kinds(given, HugeCtrAuto())["hot"] == (ShardingType.COLUMN_WISE.value, 2)
    ranks = [each.ranks for each in shard(HugeCtrAuto(), given).plan.tables]
    assert sorted(rank for each in ranks for rank in each) == [0, 1, 2, 3]


def test_tables_alike_are_split_unequally_where_that_is_even() -> None:
    # everywhere: 3 * (40 / 4 + 2.5) = 37.5; one everywhere, two in halves: 12.5 + 20 + 2.5 = 35
    assert splits(problem(*(table(f"t{i}", 40.0) for i in range(3)))) == [4, 2, 2]


@pytest.mark.parametrize(
    ("nodes", "rows", "is_small"),
    [(1, 30_000, True), (1, 31_000, False), (2, 48_000, True), (2, 49_000, False)],
)
def test_tables_below_the_threshold_are_replicated(
    nodes: int, rows: int, *, is_small: bool
) -> None:
    # a row holds 64 numbers and one of the optimizer's, 260 bytes: 30,769 of them 8 MB, 48,076 12.5
    tables = table("small", 1.0, rows=rows), *(table(f"t{i}", 1.0) for i in range(4))
    given = problem(*tables, nodes=nodes)
    assert (splits(given)[0] == 0) is is_small
    kind, _ = kinds(given, HugeCtrAuto())["small"]
    assert (kind == ShardingType.DATA_PARALLEL.value) is is_small
    assert 0 not in splits(given, HugeCtrAuto(replicated_below=0.0))


def test_nodes_have_rows_on_all_of_their_gpus() -> None:
    # to a node a shard sends as much as 25 lookups take: of 2 nodes, each has one table
    given = problem(table("a", 20.0), table("b", 20.0), nodes=2)
    assert splits(given, HugeCtrHierAuto()) == [1, 1]
    plan = shard(HugeCtrHierAuto(), given).plan
    assert {each.sharding_type for each in plan.tables} == {ShardingType.TABLE_ROW_WISE}
    assert sorted(each.ranks for each in plan.tables) == [(0, 1), (2, 3)]


def test_on_one_node_it_is_auto() -> None:
    given = problem(*(table(f"t{i}", 9.0 * i + 1) for i in range(5)))
    assert shard(HugeCtrHierAuto(), given).plan == shard(HugeCtrAuto(), given).plan


def test_a_table_without_room_is_split() -> None:
    rows = int(0.6 * problem(table("t", 1.0)).capacity / (64 * 4))
    given = problem(table("a", 1.0, rows=2 * rows), table("b", 1.0, rows=100_000))
    assert splits(given)[0] > 1
