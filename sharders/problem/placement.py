"""Placing tables one after the other, each where there is room: what all greedies share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Bytes, size_texts
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import (
    Place,
    host_reserve_text,
    infeasible,
    least_table_bytes,
    whole_table_bytes,
)
from sharders.problem.option_arrays import HeldBytes
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem

Score: TypeAlias = Callable[[EmbeddingTable], float]
Ranks: TypeAlias = NDArray[np.intp]
Order: TypeAlias = "Callable[[int, Occupancy], Ranks]"
"""From a table's index in the workload and the occupancy so far: all ranks, best first."""
Loads: TypeAlias = Callable[[TableSharding], Sequence[float]]
"""What every shard adds to its rank's load."""
Candidates: TypeAlias = Callable[[int], Iterable[tuple[TableOption, Loads]]]
"""From a table's index in the workload: the options to try, best first."""


class Occupancy:
    """What the ranks hold while a plan is built."""

    def __init__(self, problem: ShardingProblem) -> None:
        topology = problem.topology
        self.load = np.zeros(topology.world_size)
        self.free = np.array(problem.rooms)
        self.host_free = np.full(topology.num_nodes, float(problem.host_capacity))
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
        """Return the nodes whose hosts hold a part of some shards, and how much of each."""
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
    """On the roomiest rank, or those where the table is to be."""
    host_free: Bytes
    """On the roomiest node's host."""


def place_tables(
    problem: ShardingProblem, score: Score, order: Order, *, sort: bool = True
) -> ShardingPlan:
    """Place every table whole where possible, on the first rank of ``order`` that has room.

    A table that fits on no rank whole, or must not be whole, is split: into as few shards as
    fit, columns before rows, HBM before host memory.

    Parameters
    ----------
    problem
        Gives tables, options and capacities.
    score
        What a table adds to its ranks' load; shards share it by their number of elements.
    order
        Which ranks to try first.
    sort
        Whether to place by decreasing score (ties: decreasing size, then later tables first, as in
        DreamShard) or in the workload's order. If that fails for lack of memory, tables are
        placed once more by decreasing size, and if that fails, packed (``packing``).

    Raises
    ------
    InfeasibleError
        A table fits nowhere, in either order, and no packing is found.

    """
    tables = problem.workload.tables
    scores = [score(table) for table in tables]
    candidates = _least_intrusive(problem, scores)
    indices = list(range(len(tables)))
    if sort:
        sizes = _whole_bytes(problem)
        indices.sort(key=lambda i: (-scores[i], -sizes[i], -i))
    try:
        return place(problem, indices, candidates, order)
    except OutOfRoomError:
        return place_or_pack(problem, _by_size(problem), candidates, order)


def place_by_bytes(problem: ShardingProblem) -> ShardingPlan | None:
    """Place tables by decreasing size, each where fewest bytes are; None: a table fits nowhere."""
    sizes = [table.weight_bytes for table in problem.workload.tables]
    candidates = _least_intrusive(problem, sizes)
    try:
        return place(problem, _by_size(problem), candidates, least_loaded)
    except OutOfRoomError:
        return None


def least_loaded(index: int, occupancy: Occupancy) -> Ranks:
    """Return all ranks, least loaded first, whichever the table is."""
    del index
    return occupancy.least_loaded()


def _by_size(problem: ShardingProblem) -> list[int]:
    """Return all tables' places in the workload, largest ones first."""
    sizes = _whole_bytes(problem)
    return sorted(range(len(sizes)), key=lambda i: -sizes[i])


def _whole_bytes(problem: ShardingProblem) -> list[float]:
    workload, topology = problem.workload, problem.topology
    return [whole_table_bytes(workload, topology, table) for table in workload.tables]


def _least_intrusive(problem: ShardingProblem, scores: Sequence[float]) -> Candidates:
    """Return what yields a table's options, whole ones first, and shares of its score as loads."""
    preferred: dict[int, list[TableOption]] = {}

    def candidates(index: int) -> Iterator[tuple[TableOption, Loads]]:
        table = problem.workload.tables[index]
        options = problem.options[table.name]
        if id(options) not in preferred:
            preferred[id(options)] = _by_preference(problem, options)
        for option in preferred[id(options)]:
            yield option, partial(_shares, table, scores[index])

    return candidates


def place_or_pack(
    problem: ShardingProblem, indices: Sequence[int], candidates: Candidates, order: Order
) -> ShardingPlan:
    """Place tables as ``place`` does; where that finds no room, pack them by size alone.

    Raises
    ------
    InfeasibleError
        A table fits nowhere, and no packing is found either.

    """
    try:
        return place(problem, indices, candidates, order)
    except OutOfRoomError as error:
        if problem.packing is None:
            raise no_room(problem, error.table, error.free, error.host_free) from None
        return problem.packing


def place(
    problem: ShardingProblem, indices: Sequence[int], candidates: Candidates, order: Order
) -> ShardingPlan:
    """Place tables one after the other, each by its first candidate that there is room for.

    Tables that the user has put on certain ranks come first.

    Raises
    ------
    OutOfRoomError
        A table fits nowhere, by none of its candidates.

    """
    occupancy = Occupancy(problem)
    placed: dict[int, TableSharding] = {}
    tables = problem.workload.tables
    for index in sorted(indices, key=lambda index: not tables[index].ranks):
        placed[index] = _place_table(problem, index, candidates, order, occupancy)
    return make_plan(problem.topology, [placed[index] for index in range(len(indices))])


def _place_table(
    problem: ShardingProblem, index: int, candidates: Candidates, order: Order, occupancy: Occupancy
) -> TableSharding:
    table = problem.workload.tables[index]
    preferred = order(index, occupancy)
    for option, loads in candidates(index):
        sizes = option_bytes(problem, table, option)
        for ranks in _rank_sets(problem, option, preferred, sizes, occupancy):
            sharding = make_sharding(table, problem.topology, option, ranks)
            if occupancy.fits(sharding.ranks, sizes):
                occupancy.add(sharding.ranks, sizes, loads(sharding))
                return sharding
    where = list(table.ranks)
    free = occupancy.free[where].sum() if where else occupancy.free.max()
    raise OutOfRoomError(table, float(free), float(occupancy.host_free.max()))


def option_bytes(
    problem: ShardingProblem, table: EmbeddingTable, option: TableOption
) -> tuple[HeldBytes, ...]:
    """Return the bytes of every shard an option makes; they do not depend on the ranks."""
    key = (table.name, option)
    if key not in problem.known_bytes:
        block = _block_bytes(problem, table, option)
        sizes = [size for size, count in block for _ in range(count)]
        problem.known_bytes[key] = tuple(sizes * option.num_column_shards)
    return problem.known_bytes[key]


def different_bytes(
    problem: ShardingProblem, table: EmbeddingTable, option: TableOption
) -> list[tuple[HeldBytes, int]]:
    """Return the bytes of every different shard of an option, and how many there are of each.

    The same as ``option_bytes``, without a shard for every rank.
    """
    block = _block_bytes(problem, table, option)
    return [(size, count * option.num_column_shards) for size, count in block]


def _block_bytes(
    problem: ShardingProblem, table: EmbeddingTable, option: TableOption
) -> list[tuple[HeldBytes, int]]:
    index, arrays = problem.places[table.name], problem.option_arrays
    place = arrays.place(index, option)
    if place < 0:  # of a plan that others made: caches may have other sizes
        arrays = arrays.with_other(index, option)
        place = arrays.place(index, option)
    return arrays.block_bytes(place)


_ORDER = {kind: place for place, kind in enumerate(ShardingType)}


def _by_preference(problem: ShardingProblem, options: Sequence[TableOption]) -> list[TableOption]:
    """Options from the least to the most intrusive; data_parallel is the last resort."""
    in_hbm = (ComputeKernel.FUSED, ComputeKernel.DENSE)
    return sorted(
        options,
        key=lambda option: (
            option.sharding_type is ShardingType.DATA_PARALLEL,
            option.compute_kernel not in in_hbm,
            option.sharding_type.splits_rows,
            option.num_shards(problem.topology),
            _ORDER[option.sharding_type],
        ),
    )


def _rank_sets(
    problem: ShardingProblem,
    option: TableOption,
    order: Ranks,
    sizes: Sequence[HeldBytes],
    occupancy: Occupancy,
) -> Iterator[tuple[int, ...]]:
    """Yield rank choices for an option, best first: shards on distinct ranks (or nodes)."""
    count, kind = option.num_ranks, option.sharding_type
    if count == 0:
        yield ()
        return
    local = problem.topology.local_world_size
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
    """Split a table's score over its shards by elements; copies share it by samples."""
    if sharding.sharding_type is ShardingType.DATA_PARALLEL:
        return [score / len(sharding.shards)] * len(sharding.shards)
    elements = table.num_embeddings * table.embedding_dim
    return [score * shard.num_rows * shard.num_columns / elements for shard in sharding.shards]


def no_room(
    problem: ShardingProblem, table: EmbeddingTable, free: float, host_free: float | None = None
) -> InfeasibleError:
    """Return the error for a table that fits nowhere, with so many bytes free where it may be.

    ``host_free``: and so many on one host; None: by HBM alone, it fits nowhere even without the
    others.
    """
    workload, topology = problem.workload, problem.topology
    where = f"one {topology.hardware.device.unit}"
    if table.ranks:
        where = f"rank {', '.join(map(str, table.ranks))}, where it is to be"
    total = sum(least_table_bytes(workload, topology, each) for each in workload.tables)
    if total > problem.total_capacity:
        return infeasible(workload, topology)
    needed, left = size_texts(least_table_bytes(workload, topology, table), free)
    hosted = "" if host_free is None else _host_text(problem, table, host_free)
    return infeasible(
        workload,
        topology,
        f"{'no plan fits' if host_free is None else 'no plan was found that fits'}: "
        f"table `{table.name}` needs {needed}, and at most {left} is free on {where}{hosted}",
        Place.BOTH if hosted else Place.DEVICE,
    )


def _host_text(problem: ShardingProblem, table: EmbeddingTable, free: float) -> str:
    """Return what a table needs of host memory, where any of its options is there; else nothing."""
    arrays, index = problem.option_arrays, problem.places[table.name]
    sizes = arrays.host_bytes[slice(*arrays.begins[index : index + 2])]
    if not sizes.any():
        return ""
    needed, left = size_texts(float(sizes[sizes > 0].min()), free)
    reserve = host_reserve_text(problem.topology)
    return f"; in host memory it needs {needed}, and at most {left} is free on one host{reserve}"
