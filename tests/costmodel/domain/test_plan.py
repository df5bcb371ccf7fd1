from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.domain.plan import (
    ComputeKernel,
    Shard,
    ShardingType,
    Shards,
    TableSharding,
    column_counts,
    make_shards,
    row_block_sizes,
    row_blocks,
)


def shards_of(kind: ShardingType, *ranks: int, rows: int = 10, dim: int = 16) -> Shards:
    return make_shards(kind, rows, dim, ranks=ranks, world_size=4, local_world_size=2)


def corners(shards: Sequence[Shard]) -> list[tuple[int, ...]]:
    return [(s.rank, s.row_offset, s.num_rows, s.column_offset, s.num_columns) for s in shards]


def test_data_parallel_is_a_full_copy_on_every_rank() -> None:
    assert corners(shards_of(ShardingType.DATA_PARALLEL)) == [(r, 0, 10, 0, 16) for r in range(4)]


def test_copies_are_the_same_sharding_together_and_one_by_one() -> None:
    made = shards_of(ShardingType.DATA_PARALLEL)
    together, alone = (
        TableSharding(
            table="t",
            sharding_type=ShardingType.DATA_PARALLEL,
            compute_kernel=ComputeKernel.DENSE,
            shards=shards,
        )
        for shards in (made, tuple(made))
    )
    assert (alone, hash(alone)) == (together, hash(together))
    assert (alone.ranks, alone.block_ranks) == ((0, 1, 2, 3), (0,))
    assert list(alone.distinct_shards()) == [(made[0], range(4))]
    assert (len(made), made[-1].rank, made[1:3]) == (4, 3, tuple(made)[1:3])


@pytest.mark.parametrize("ranks", [(), (1, 0), (0, 0), (0, 2)])
def test_copies_on_other_ranks_stay_as_they_are(ranks: tuple[int, ...]) -> None:
    (whole,) = shards_of(ShardingType.TABLE_WISE, 0)
    shards = tuple(replace(whole, rank=rank) for rank in ranks)
    found = TableSharding(table="t", sharding_type=ShardingType.DATA_PARALLEL, shards=shards)
    assert (found.shards, found.ranks) == (shards, ranks)


def test_table_wise_is_one_shard() -> None:
    assert corners(shards_of(ShardingType.TABLE_WISE, 3)) == [(3, 0, 10, 0, 16)]


def test_row_wise_gives_the_last_rank_the_rest() -> None:
    # ceil(10 / 4) = 3 rows each, 1 is left for rank 3
    assert corners(shards_of(ShardingType.ROW_WISE)) == [
        (0, 0, 3, 0, 16),
        (1, 3, 3, 0, 16),
        (2, 6, 3, 0, 16),
        (3, 9, 1, 0, 16),
    ]


def test_few_rows_leave_trailing_shards_empty() -> None:
    assert row_blocks(5, 4) == ((0, 2), (2, 2), (4, 1), (5, 0))
    assert row_blocks(2, 4) == ((0, 1), (1, 1), (2, 0), (2, 0))


def test_column_wise_may_use_a_rank_twice() -> None:
    assert corners(shards_of(ShardingType.COLUMN_WISE, 2, 0, 2, 1)) == [
        (2, 0, 10, 0, 4),
        (0, 0, 10, 4, 4),
        (2, 0, 10, 8, 4),
        (1, 0, 10, 12, 4),
    ]


def test_any_rank_stands_for_its_node() -> None:
    assert corners(shards_of(ShardingType.TABLE_ROW_WISE, 3)) == [
        (2, 0, 5, 0, 16),
        (3, 5, 5, 0, 16),
    ]


def test_grid_is_columns_times_the_rows_of_a_node() -> None:
    assert corners(shards_of(ShardingType.GRID_SHARD, 2, 0)) == [
        (2, 0, 5, 0, 8),
        (3, 5, 5, 0, 8),
        (0, 0, 5, 8, 8),
        (1, 5, 5, 8, 8),
    ]


@pytest.mark.parametrize(
    ("dim", "narrowest", "counts"),
    [
        (16, 4, (1, 2, 4)),
        (16, 8, (1, 2)),
        (48, 4, (1, 2, 3, 4, 6, 12)),
        (4, 4, (1,)),
        (8, 128, (1,)),
    ],
)
def test_column_widths_are_multiples_of_four(
    dim: int, narrowest: int, counts: tuple[int, ...]
) -> None:
    assert column_counts(dim, narrowest) == counts
    assert column_counts(dim, narrowest, 16) == tuple(c for c in counts if dim / c <= 16)


@given(st.integers(1, 1000), st.integers(1, 64))
def test_row_blocks_tile_the_table(rows: int, blocks: int) -> None:
    made = row_blocks(rows, blocks)
    assert len(made) == blocks
    assert sum(length for _, length in made) == rows
    assert all(
        offset == min(rows, sum(length for _, length in made[:index]))
        for index, (offset, _) in enumerate(made)
    )


@given(st.integers(1, 300), st.integers(1, 130))
def test_lengths_of_row_blocks_are_counted(rows: int, blocks: int) -> None:
    lengths = [length for _, length in row_blocks(rows, blocks)]
    counted = row_block_sizes(rows, blocks)
    assert [length for length, repeats in counted for _ in range(repeats)] == lengths
    assert len({length for length, _ in counted}) == len(counted)


def test_column_blocks_of_some_types_take_the_memory_of_whole_tables() -> None:
    whole = {ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE}
    for kind in ShardingType:
        alike = ShardingType.TABLE_WISE if kind in whole else kind
        assert kind.alike_in_memory is alike
