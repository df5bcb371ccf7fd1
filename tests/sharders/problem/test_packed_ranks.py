"""What packed ranks hold is what plans hold, to the byte."""

from dataclasses import replace

import numpy as np
import pytest
from plans import MIXED, mixed

from costmodel.domain.plan import ShardingType
from costmodel.memory.rank_memory import memory_per_rank
from sharders.problem.packed_ranks import PackedRanks, PackedTable
from sharders.problem.sharding_problem import ShardingProblem


def packed_ranks(**fixed: tuple[int, ...]) -> PackedRanks:
    """Return six ranks, three to a node, and four tables, of which some must be somewhere."""
    work, ranks, _ = mixed()
    tables = (replace(each, ranks=fixed.get(each.name, ())) for each in work.tables)
    return PackedRanks(ShardingProblem.of(replace(work, tables=tuple(tables)), ranks).groundwork)


def option(packed: PackedRanks, table: int, kind: ShardingType) -> int:
    """Return the first option of a table that has a type."""
    arrays = packed.arrays
    own = range(arrays.begins[table], arrays.begins[table + 1])
    return next(number for number in own if arrays.flat[number].sharding_type is kind)


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_packed_is_held_as_in_its_plan(number: int) -> None:
    work, ranks, plans = mixed()
    packed = PackedRanks(ShardingProblem.of(work, ranks).groundwork)
    rooms = packed.free.copy()
    options = packed.arrays.places(plans[number]).tolist()
    for table, (name, own) in enumerate(zip(MIXED, options, strict=True)):
        blocks, where = packed.blocks(own), MIXED[name][number][1]
        packed.put(
            table, PackedTable(own, np.array([rank // blocks.width for rank in where or (0,)]))
        )
    assert packed.plan() == plans[number]
    held = [rank.tables for rank in memory_per_rank(work, ranks, plans[number])]
    assert rooms - packed.free == pytest.approx(held)
    for table in range(4):
        packed.take(table)
    assert packed.free.tolist() == rooms.tolist()
    assert not any(packed.tables_on)


@pytest.mark.parametrize(
    ("kind", "sizes", "tight", "roomy"),
    [
        # in sizes of the largest block: what just fits, and where most is left
        (ShardingType.TABLE_WISE, (3.0, 0.999, 1.0, 2.0, 5.0, 4.0), [2], [4]),
        (ShardingType.TABLE_WISE, (0.999,) * 6, None, None),
        # a node is as roomy as its fullest rank
        (ShardingType.TABLE_ROW_WISE, (9.0, 0.999, 9.0, 1.0, 1.0, 1.0), [1], [1]),
        (ShardingType.TABLE_ROW_WISE, (3.0, 2.0, 3.0, 1.0, 9.0, 9.0), [1], [0]),
        (ShardingType.ROW_WISE, (1.0,) * 6, [0], [0]),
        (ShardingType.ROW_WISE, (*(1.0,) * 5, 0.999), None, None),
        # two blocks on one node
        (ShardingType.TABLE_COLUMN_WISE, (9.0, 0.9, 0.9, 1.0, 2.0, 3.0), [3, 4], [5, 4]),
        (ShardingType.TABLE_COLUMN_WISE, (9.0, 0.9, 0.9, 1.0, 1.0, 0.9), [3, 4], [3, 4]),
        (ShardingType.TABLE_COLUMN_WISE, (9.0, 0.9, 0.9, 9.0, 0.9, 0.9), None, None),
        (ShardingType.COLUMN_WISE, (9.0, 0.9, 0.9, 1.0, 0.9, 0.9), [3, 0], [0, 3]),
    ],
)
def test_shards_go_where_they_leave_least_or_most(
    kind: ShardingType,
    sizes: tuple[float, ...],
    tight: list[int] | None,
    roomy: list[int] | None,
) -> None:
    packed = packed_ranks()
    arrays = packed.arrays
    blocks_of = (number for number in range(arrays.begins[0], arrays.begins[1])
                 if arrays.flat[number].sharding_type is kind)  # fmt: skip
    wanted = 2 if kind.splits_columns and kind is not ShardingType.GRID_SHARD else 1
    number = next(each for each in blocks_of if packed.blocks(each).count == wanted)
    packed.free = np.array(sizes) * packed.blocks(number).size.max()
    for packed.roomiest, expected in ((False, tight), (True, roomy)):
        found = packed.places(number)
        assert (None if found is None else found.tolist()) == expected


def test_ranks_that_the_user_says_have_room_to_the_last_byte() -> None:
    packed = packed_ranks(a=(4,))
    number = option(packed, 0, ShardingType.TABLE_WISE)
    (size,) = packed.blocks(number).size
    for left, fits in ((size, True), (size - 1, False)):
        packed.free = np.array([0.0, 0.0, 0.0, 0.0, left, 0.0])
        assert (packed.places(number) is not None) == fits
    packed.free[4] = size
    packed.put(0, PackedTable(number, packed.places(number)))
    assert packed.ranks_of_table(0).tolist() == [4]
    assert not any(packed.tables_on)  # it could be nowhere else
