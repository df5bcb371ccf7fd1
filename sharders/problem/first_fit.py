"""Placing tables one after the other, each on the first ranks that have room for it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import whole_table_bytes
from sharders.problem.groundwork import Groundwork
from sharders.problem.option_arrays import HeldBytes
from sharders.problem.options import TableOption, make_plan, make_sharding

Ranks: TypeAlias = NDArray[np.intp]
Order: TypeAlias = "Callable[[int, Occupancy], Ranks]"
"""Returns all ranks, best first, given a table's index and the occupancy so far."""
Loads: TypeAlias = Callable[[TableSharding], Sequence[float]]
"""Returns what every shard adds to its rank's load."""
Candidates: TypeAlias = Callable[[int], Iterable[tuple[TableOption, Loads]]]
"""Returns the options to try, best first, given a table's index."""


class Occupancy:
    """Memory and load of ranks while a plan is built."""

    def __init__(self, ground: Groundwork) -> None:
        topology = ground.topology
        self.load = np.zeros(topology.world_size)
        self.free = np.array(ground.rooms)
        self.host_free = np.full(topology.num_nodes, float(ground.host_capacity))
        self._local_world_size = topology.local_world_size

    def least_loaded(self) -> Ranks:
        """Return all ranks, least loaded first; ties go to more free memory, then lower rank."""
        return np.lexsort((-self.free, self.load))

    def with_room(self, order: Ranks, size: float) -> list[int]:
        """Return those of some ranks that have so much HBM left, in their order."""
        roomy: list[int] = order[self.free[order] >= size].tolist()
        return roomy

    def fits(self, ranks: Sequence[int], sizes: Sequence[HeldBytes]) -> bool:
        """Return whether shards of these sizes fit on these ranks, all together."""
        free = self.free
        if any(
            size > free[rank]
            for rank, size in _summed(ranks, (size.total for size in sizes)).items()
        ):
            return False
        hosted = _summed(*self._hosted(ranks, sizes))
        return not any(size > self.host_free[node] for node, size in hosted.items())

    def add(self, ranks: Sequence[int], sizes: Sequence[HeldBytes], loads: Sequence[float]) -> None:
        """Put shards on ranks."""
        places = np.asarray(ranks)
        np.add.at(self.load, places, loads)
        np.subtract.at(self.free, places, [size.total for size in sizes])
        nodes, held = self._hosted(ranks, sizes)
        if nodes:
            np.subtract.at(self.host_free, nodes, held)

    def _hosted(
        self, ranks: Sequence[int], sizes: Sequence[HeldBytes]
    ) -> tuple[list[int], list[float]]:
        """Return the nodes whose hosts hold a part of some shards, and the bytes of each."""
        hosted = [number for number, size in enumerate(sizes) if size.host]
        nodes = [ranks[number] // self._local_world_size for number in hosted]
        return nodes, [float(sizes[number].host) for number in hosted]


def _summed(places: Sequence[int], sizes: Iterable[float]) -> dict[int, float]:
    """Return the sum of the sizes at every place where one is above 0."""
    total: dict[int, float] = {}
    for place, size in zip(places, sizes, strict=True):
        if size > 0:
            total[place] = total.get(place, 0.0) + size
    return total


@dataclass(eq=False)
class OutOfRoomError(Exception):
    """A table fits nowhere beside those placed before it: another order may have room."""

    table: EmbeddingTable
    free: Bytes
    """Bytes free on the roomiest rank, or on the table's given ranks."""
    host_free: Bytes
    """On the roomiest node's host."""


def place_by_bytes(ground: Groundwork) -> ShardingPlan | None:
    """Return a plan of tables placed by decreasing size, where fewest bytes are; None: no room."""
    sizes = [table.weight_bytes for table in ground.workload.tables]
    candidates = least_intrusive(ground, sizes)
    try:
        return place(ground, by_size(ground), candidates, least_loaded)
    except OutOfRoomError:
        return None


def least_loaded(index: int, occupancy: Occupancy) -> Ranks:
    """Return all ranks, least loaded first, for any table."""
    del index
    return occupancy.least_loaded()


def by_size(ground: Groundwork) -> list[int]:
    """Return the indices of all tables in the workload, largest ones first."""
    sizes = whole_bytes(ground)
    return sorted(range(len(sizes)), key=lambda i: -sizes[i])


def whole_bytes(ground: Groundwork) -> list[float]:
    """Return the bytes of every table as a whole, in the order of the workload."""
    workload, topology = ground.workload, ground.topology
    return [whole_table_bytes(workload, topology, table) for table in workload.tables]


def least_intrusive(ground: Groundwork, scores: Sequence[float]) -> Candidates:
    """Return a function: a table's options, whole ones first, with its score as load."""
    preferred: dict[int, list[TableOption]] = {}

    def candidates(index: int) -> Iterator[tuple[TableOption, Loads]]:
        table = ground.workload.tables[index]
        options = ground.options[table.name]
        if id(options) not in preferred:
            preferred[id(options)] = _by_preference(ground, options)
        for option in preferred[id(options)]:
            yield option, partial(_shares, table, scores[index])

    return candidates


def place(
    ground: Groundwork, indices: Sequence[int], candidates: Candidates, order: Order
) -> ShardingPlan:
    """Return a plan of tables placed one after the other, each by its first candidate with room.

    Tables that the user has put on certain ranks come first.

    Raises
    ------
    OutOfRoomError
        A table fits nowhere, by none of its candidates.

    """
    occupancy = Occupancy(ground)
    placed: dict[int, TableSharding] = {}
    tables = ground.workload.tables
    for index in sorted(indices, key=lambda index: not tables[index].ranks):
        placed[index] = _place_table(ground, index, candidates, order, occupancy)
    return make_plan(ground.topology, [placed[index] for index in range(len(indices))])


def _place_table(
    ground: Groundwork, index: int, candidates: Candidates, order: Order, occupancy: Occupancy
) -> TableSharding:
    """Return a table's first option on ranks with room, which it takes."""
    table = ground.workload.tables[index]
    preferred = order(index, occupancy)
    for option, loads in candidates(index):
        sizes = ground.option_bytes(table, option)
        for ranks in _rank_sets(ground, option, preferred, sizes, occupancy):
            sharding = make_sharding(table, ground.topology, option, ranks)
            if occupancy.fits(sharding.ranks, sizes):
                occupancy.add(sharding.ranks, sizes, loads(sharding))
                return sharding
    where = list(table.ranks)
    free = occupancy.free[where].sum() if where else occupancy.free.max()
    raise OutOfRoomError(table, float(free), float(occupancy.host_free.max()))


_ORDER = {kind: place for place, kind in enumerate(ShardingType)}


def _by_preference(ground: Groundwork, options: Sequence[TableOption]) -> list[TableOption]:
    """Return options from the least to the most intrusive; data_parallel comes last."""
    in_hbm = (ComputeKernel.FUSED, ComputeKernel.DENSE)
    return sorted(
        options,
        key=lambda option: (
            option.sharding_type is ShardingType.DATA_PARALLEL,
            option.compute_kernel not in in_hbm,
            option.sharding_type.splits_rows,
            option.num_shards(ground.topology),
            _ORDER[option.sharding_type],
        ),
    )


def _rank_sets(
    ground: Groundwork,
    option: TableOption,
    order: Ranks,
    sizes: Sequence[HeldBytes],
    occupancy: Occupancy,
) -> Iterator[tuple[int, ...]]:
    """Yield sets of ranks for an option, best first: shards on distinct ranks (or nodes)."""
    count, kind = option.num_ranks, option.sharding_type
    if count == 0:
        yield ()
        return
    local = ground.topology.local_world_size
    if kind.within_node:
        nodes = list(dict.fromkeys((order // local).tolist()))
        places = [
            node * local
            for node in nodes
            if occupancy.fits(range(node * local, (node + 1) * local), sizes[:local])
        ]
        yield from (tuple(places[i : i + count]) for i in range(len(places) - count + 1))
        return
    size = sizes[0].total
    if kind is ShardingType.TABLE_COLUMN_WISE:
        roomy = occupancy.with_room(order, size)
        for node in dict.fromkeys(rank // local for rank in roomy):
            mates = [rank for rank in roomy if rank // local == node]
            if len(mates) >= count:
                yield tuple(mates[:count])
        return
    # mostly the first ranks have room, and nobody asks for more
    head = order[:count].tolist()
    if len(head) == count and (occupancy.free[head] >= size).all():
        yield tuple(head)
    roomy = occupancy.with_room(order, size)
    yield from (tuple(roomy[i : i + count]) for i in range(len(roomy) - count + 1))


def _shares(table: EmbeddingTable, score: float, sharding: TableSharding) -> list[float]:
    """Return a table's score split over its shards by elements; copies share it by samples."""
    if sharding.sharding_type is ShardingType.DATA_PARALLEL:
        return [score / len(sharding.shards)] * len(sharding.shards)
    elements = table.num_embeddings * table.embedding_dim
    return [score * shard.num_rows * shard.num_columns / elements for shard in sharding.shards]
