"""Memory and load of ranks while tables are placed one by one, to the last byte."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from load_objective import with_room

from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable, Optimizer, Workload
from planner.examples import example_hardware
from sharders.problem.first_fit import (
    Loads,
    Occupancy,
    OutOfRoomError,
    Ranks,
    least_intrusive,
    place,
)
from sharders.problem.groundwork import Groundwork
from sharders.problem.option_arrays import HeldBytes
from sharders.problem.options import TableOption

WHOLE = EmbeddingTable(name="t", num_embeddings=10_000_000, embedding_dim=64)
"""2.56 GB."""


def ground(*tables: EmbeddingTable, room: float = 3 * GB) -> Groundwork:
    """Put tables on two nodes of three ranks."""
    workload = Workload(tables=tables, local_batch_size=16, optimizer=Optimizer.SGD)
    ranks = Topology(hardware=example_hardware(), world_size=6, local_world_size=3)
    return with_room(workload, ranks, room).groundwork


@pytest.mark.parametrize(
    ("ranks", "held", "host", "fits"),
    [
        ((1, 2), (70, 50), (0, 0), True),
        ((1, 2), (71, 50), (0, 0), False),
        ((2, 2), (30, 20), (0, 0), True),  # both on one rank
        ((2, 2), (30, 21), (0, 0), False),
        ((3, 5), (0, 0), (7, 4), True),  # on one host
        ((3, 5), (0, 0), (7, 5), False),
        ((2, 5), (0, 0), (5, 11), True),
        ((2, 5), (0, 0), (6, 1), False),
    ],
)
def test_shards_fit_together_to_the_last_byte(
    ranks: tuple[int, int], held: tuple[int, int], host: tuple[int, int], *, fits: bool
) -> None:
    occupancy = Occupancy(ground(WHOLE))
    occupancy.free = np.array([90.0, 70.0, 50.0, 40.0, 30.0, 20.0])
    occupancy.host_free = np.array([5.0, 11.0])
    sizes = [HeldBytes(*each) for each in zip(held, host, strict=True)]
    assert occupancy.fits(ranks, sizes) is fits
    assert occupancy.with_room(np.array([5, 1, 4, 2]), 50.0) == [1, 2]


def test_what_is_put_on_ranks_is_taken_from_their_memory_and_their_hosts() -> None:
    occupancy = Occupancy(ground(WHOLE))
    free, host_free = occupancy.free.copy(), occupancy.host_free.copy()
    sizes = [HeldBytes(7, 3), HeldBytes(2, 0), HeldBytes(5, 4), HeldBytes(1, 6)]
    occupancy.add((1, 1, 5, 0), sizes, (0.5, 0.25, 0.75, 1.0))
    assert (free - occupancy.free).tolist() == [1, 9, 0, 0, 0, 5]
    assert (host_free - occupancy.host_free).tolist() == [9, 4]
    assert occupancy.load.tolist() == [1.0, 0.75, 0.0, 0.0, 0.0, 0.75]
    occupancy.free[3] += 1.0
    assert occupancy.least_loaded().tolist() == [3, 2, 4, 5, 1, 0]  # by load, then by room


@pytest.mark.parametrize(
    ("kind", "blocks", "free", "ranks"),
    [
        (ShardingType.TABLE_WISE, 1, (2, 2.56, 9, 9, 9, 9), (2,)),
        (ShardingType.COLUMN_WISE, 2, (9, 2, 1, 9, 9, 9), (0, 1)),
        (ShardingType.COLUMN_WISE, 2, (1, 2, 1, 9, 9, 9), (1, 3)),
        (ShardingType.TABLE_COLUMN_WISE, 2, (2, 2, 1, 9, 9, 9), (0, 1)),
        (ShardingType.TABLE_COLUMN_WISE, 2, (1, 2, 1, 1, 9, 9), (4, 5)),
        (ShardingType.TABLE_COLUMN_WISE, 2, (1, 2, 1, 1, 1, 9), None),
        (ShardingType.TABLE_ROW_WISE, 1, (9, 9, 0.8, 0.9, 0.9, 0.9), (3, 4, 5)),
        (ShardingType.TABLE_ROW_WISE, 1, (9, 9, 0.8, 9, 9, 0.8), None),
        (ShardingType.ROW_WISE, 1, (0.5,) * 6, tuple(range(6))),
        (ShardingType.ROW_WISE, 1, (*(0.5,) * 5, 0.4), None),
    ],
)
def test_shards_go_on_the_first_ranks_that_have_room(
    kind: ShardingType, blocks: int, free: tuple[float, ...], ranks: tuple[int, ...] | None
) -> None:
    own = ground(replace(WHOLE, min_shard_dim=32))
    option = TableOption(sharding_type=kind, num_column_shards=blocks)

    def in_order(index: int, occupancy: Occupancy) -> Ranks:
        assert index == 0
        occupancy.free = np.array(free) * GB
        occupancy.free[1] -= free == (2, 2.56, 9, 9, 9, 9)  # a byte less than what it takes
        return np.arange(6)

    def choices(_: int) -> Iterator[tuple[TableOption, Loads]]:
        yield option, lambda sharding: [1.0] * len(sharding.shards)

    if ranks is None:
        with pytest.raises(OutOfRoomError) as caught:
            place(own, [0], choices, in_order)
        assert caught.value.free == max(free) * GB
    else:
        assert place(own, [0], choices, in_order).tables[0].ranks == ranks


def test_options_are_tried_from_whole_to_copied_and_share_a_score_by_elements() -> None:
    own = ground(replace(WHOLE, num_embeddings=601, min_shard_dim=32))
    tried = list(least_intrusive(own, [12.0])(0))
    kinds = [option.sharding_type for option, _ in tried]
    assert kinds[0] is ShardingType.TABLE_WISE
    assert kinds[-1] is ShardingType.DATA_PARALLEL
    columns = kinds.index(ShardingType.COLUMN_WISE)
    assert columns < kinds.index(ShardingType.TABLE_ROW_WISE) < kinds.index(ShardingType.ROW_WISE)

    def shares(kind: ShardingType) -> list[float]:
        option, loads = tried[kinds.index(kind)]
        return list(map(float, loads(sharding_of(own, option))))

    assert shares(ShardingType.COLUMN_WISE) == [6.0, 6.0]
    assert shares(ShardingType.DATA_PARALLEL) == [2.0] * 6
    # 601 rows in blocks of 101, the last one of 96
    rows = [12.0 * count / 601 for count in (*(101,) * 5, 96)]
    assert shares(ShardingType.ROW_WISE) == pytest.approx(rows)


def sharding_of(own: Groundwork, option: TableOption) -> TableSharding:
    loads: Loads = partial(lambda sharding: [0.0] * len(sharding.shards))
    return place(own, [0], lambda _: [(option, loads)], lambda *_: np.arange(6)).tables[0]
