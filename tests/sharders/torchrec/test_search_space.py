from dataclasses import replace

import pytest
from machines import machine, topology

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Pooling, Workload
from sharders.problem.sharding_problem import ShardingProblem
from sharders.torchrec.search_space import (
    Candidate,
    in_module_order,
    num_column_blocks,
    search_space,
)

TABLE = EmbeddingTable(name="t", num_embeddings=10, embedding_dim=256)


def offered(table: EmbeddingTable, ranks: int = 4, hosts: int = 2) -> tuple[Candidate, ...]:
    problem = ShardingProblem.of(
        Workload(tables=(table,), local_batch_size=8), topology(ranks, ranks // hosts, machine())
    )
    (candidates,) = search_space(problem).candidates
    return candidates


def kinds(candidates: tuple[Candidate, ...]) -> list[ShardingType]:
    return [each.option.sharding_type for each in candidates]


def test_all_types_but_grid_shard_are_offered_unasked() -> None:
    assert kinds(offered(TABLE)) == [
        ShardingType.DATA_PARALLEL,
        ShardingType.TABLE_WISE,
        ShardingType.COLUMN_WISE,
        ShardingType.TABLE_COLUMN_WISE,
        ShardingType.ROW_WISE,
        ShardingType.TABLE_ROW_WISE,
    ]


def test_grid_shard_is_offered_where_it_is_asked_for() -> None:
    asked = replace(TABLE, sharding_types=(ShardingType.GRID_SHARD, ShardingType.TABLE_WISE))
    assert kinds(offered(asked)) == [ShardingType.TABLE_WISE, ShardingType.GRID_SHARD]


def test_unpooled_tables_are_not_split_within_hosts() -> None:
    assert kinds(offered(replace(TABLE, pooling=Pooling.NONE))) == [
        ShardingType.DATA_PARALLEL,
        ShardingType.TABLE_WISE,
        ShardingType.COLUMN_WISE,
        ShardingType.ROW_WISE,
    ]


def test_every_kernel_of_a_type_is_a_candidate() -> None:
    cached = replace(
        TABLE,
        compute_kernels=(ComputeKernel.FUSED_UVM_CACHING, ComputeKernel.FUSED),
        sharding_types=(ShardingType.ROW_WISE,),
    )
    assert [each.option.compute_kernel for each in offered(cached)] == [
        ComputeKernel.FUSED,
        ComputeKernel.FUSED_UVM_CACHING,
    ]


@pytest.mark.parametrize(
    ("columns", "narrowest", "blocks"),
    [
        (256, None, 2),  # 128 wide
        (384, None, 3),
        (128, None, 1),
        (192, None, 1),  # of 128 to 191 none divides it
        (64, 16, 4),
        (96, 20, 4),  # 24 is the first multiple of 4 that divides it
        (64, 64, 1),
    ],
)
def test_columns_are_cut_as_narrow_as_may_be(
    columns: int, narrowest: int | None, blocks: int
) -> None:
    assert num_column_blocks(columns, narrowest) == blocks


def test_shards_are_counted_with_the_empty_ones() -> None:
    # 10 rows over 4 ranks: 3, 3, 3 and 1; 5 over 4: 2, 2, 1 and none
    rows = offered(TABLE)[4]
    assert [repeats for _, repeats in rows.storages] == [3, 1]
    assert (rows.num_shards, rows.storage_of(3)) == (4, rows.storages[1][0])
    few = offered(replace(TABLE, num_embeddings=5))[4]
    assert [repeats for _, repeats in few.storages] == [2, 1, 1]
    assert few.storage_of(3) == (0, 0)
    with pytest.raises(IndexError):
        few.storage_of(4)


def test_all_copies_and_blocks_count() -> None:
    copies, whole, columns = offered(TABLE)[:3]
    assert (copies.num_shards, whole.num_shards, columns.num_shards) == (4, 1, 2)
    assert copies.total_storage.hbm == 4 * copies.largest_storage.hbm
    assert columns.total_storage.hbm == 2 * columns.largest_storage.hbm


def test_collections_are_listed_from_the_last_one_on() -> None:
    names = ("a", "b", "c", "d", "e")
    first, weighted, unpooled, wide, last = (replace(TABLE, name=name) for name in names)
    tables = (
        first,
        replace(weighted, weighted=True),
        replace(unpooled, pooling=Pooling.NONE),
        replace(wide, pooling=Pooling.NONE, embedding_dim=512),
        last,
    )
    assert [each.name for each in in_module_order(tables)] == ["d", "c", "b", "a", "e"]


def test_tables_alike_share_candidates() -> None:
    twins = (TABLE, replace(TABLE, name="u"), replace(TABLE, name="v", pooling_factor=2.0))
    problem = ShardingProblem.of(Workload(tables=twins), topology(4, 2, machine()))
    first, second, third = search_space(problem).candidates
    assert first is second
    assert first != third
