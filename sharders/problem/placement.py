"""Placing tables one after the other, each where there is room: what all greedies share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import size_text
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import infeasible, least_table_bytes, whole_table_bytes
from costmodel.memory.storage import (
    ShardBytes,
    table_shard_bytes,
)
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem

Score: TypeAlias = Callable[[EmbeddingTable], float]
Order: TypeAlias = "Callable[[int, Occupancy], Sequence[int]]"
"""From a table's index in the workload and the occupancy so far: all ranks, best first."""
Loads: TypeAlias = Callable[[TableSharding], Sequence[float]]
"""What every shard adds to its rank's load."""
Candidates: TypeAlias = Callable[[int], Iterable[tuple[TableOption, Loads]]]
"""From a table's index in the workload: the options to try, best first."""


class Occupancy:
    """What the ranks hold while a plan is built."""

    def __init__(self, problem: ShardingProblem) -> None:
        topology = problem.topology
        self.load = [0.0] * topology.world_size
        self.free = list(problem.rooms)
        self.host_free = [problem.host_capacity] * topology.num_nodes
        self._local_world_size = topology.local_world_size

    def least_loaded(self) -> list[int]:
        """Return all ranks, least loaded first; ties go to more free memory, then lower rank."""
        return sorted(range(len(self.load)), key=lambda r: (self.load[r], -self.free[r], r))

    def fits(self, ranks: Sequence[int], sizes: Sequence[ShardBytes]) -> bool:
        """Return whether shards of these sizes fit on these ranks, all together."""
        hbm: dict[int, float] = {}
        host: dict[int, float] = {}
        for rank, size, total in zip(ranks, sizes, _totals(sizes), strict=True):
            node = rank // self._local_world_size
            hbm[rank] = hbm.get(rank, 0.0) + total
            host[node] = host.get(node, 0.0) + float(size.host)
        return all(self.free[rank] >= size for rank, size in hbm.items()) and all(
            self.host_free[node] >= size for node, size in host.items() if size
        )

    def add(
        self, ranks: Sequence[int], sizes: Sequence[ShardBytes], loads: Sequence[float]
    ) -> None:
        """Put shards on ranks."""
        for rank, size, total, load in zip(ranks, sizes, _totals(sizes), loads, strict=True):
            self.load[rank] += load
            self.free[rank] -= total
            self.host_free[rank // self._local_world_size] -= float(size.host)


def _totals(sizes: Sequence[ShardBytes]) -> Iterator[float]:
    """Yield the HBM of every shard; neighbours are mostly the same object."""
    last, total = None, 0.0
    for size in sizes:
        if size is not last:
            last, total = size, float(size.total)
        yield total


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
    size = [whole_table_bytes(problem.workload, problem.topology, table) for table in tables]
    scores = [score(table) for table in tables]
    indices = list(range(len(tables)))
    if sort:
        indices.sort(key=lambda i: (-scores[i], -size[i], -i))

    def least_intrusive(index: int) -> Iterator[tuple[TableOption, Loads]]:
        table, score = tables[index], scores[index]
        for option in _by_preference(problem, table):
            yield option, partial(_shares, table, score)

    try:
        return place(problem, indices, least_intrusive, order)
    except InfeasibleError:
        by_size = sorted(indices, key=lambda i: (-size[i], i))
        return place_or_pack(problem, by_size, least_intrusive, order)


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
    except InfeasibleError:
        if problem.packing is None:
            raise
        return problem.packing


def place(
    problem: ShardingProblem, indices: Sequence[int], candidates: Candidates, order: Order
) -> ShardingPlan:
    """Place tables one after the other, each by its first candidate that there is room for.

    Tables that the user has put on certain ranks come first.

    Raises
    ------
    InfeasibleError
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
    raise _no_room(problem, table, occupancy)


def option_bytes(
    problem: ShardingProblem, table: EmbeddingTable, option: TableOption
) -> tuple[ShardBytes, ...]:
    """Return the bytes of every shard an option makes; they do not depend on the ranks."""
    key = (table.name, option)
    if key not in problem.known_bytes:
        anywhere = make_sharding(table, problem.topology, option, (0,) * option.num_ranks)
        sizes = table_shard_bytes(problem.workload, problem.topology, anywhere)
        problem.known_bytes[key] = sizes
    return problem.known_bytes[key]


_ORDER = {kind: place for place, kind in enumerate(ShardingType)}


def _by_preference(problem: ShardingProblem, table: EmbeddingTable) -> list[TableOption]:
    """Options from the least to the most intrusive; data_parallel is the last resort."""
    in_hbm = (ComputeKernel.FUSED, ComputeKernel.DENSE)
    return sorted(
        problem.options[table.name],
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
    order: Sequence[int],
    sizes: Sequence[ShardBytes],
    occupancy: Occupancy,
) -> Iterator[tuple[int, ...]]:
    """Yield rank choices for an option, best first: shards on distinct ranks (or nodes)."""
    count, kind = option.num_ranks, option.sharding_type
    if count == 0:
        yield ()
        return
    local = problem.topology.local_world_size
    if kind.within_node:
        nodes = list(dict.fromkeys(rank // local for rank in order))
        places = [
            node * local
            for node in nodes
            if occupancy.fits(range(node * local, (node + 1) * local), sizes[:local])
        ]
        yield from (tuple(places[i : i + count]) for i in range(len(places) - count + 1))
        return
    size = float(sizes[0].total)
    roomy = [rank for rank in order if occupancy.free[rank] >= size]
    if kind is ShardingType.TABLE_COLUMN_WISE:
        for node in dict.fromkeys(rank // local for rank in roomy):
            mates = [rank for rank in roomy if rank // local == node]
            if len(mates) >= count:
                yield tuple(mates[:count])
        return
    yield from (tuple(roomy[i : i + count]) for i in range(len(roomy) - count + 1))


def _shares(table: EmbeddingTable, score: float, sharding: TableSharding) -> list[float]:
    """Split a table's score over its shards by elements; copies share it by samples."""
    if sharding.sharding_type is ShardingType.DATA_PARALLEL:
        return [score / len(sharding.shards)] * len(sharding.shards)
    elements = table.num_embeddings * table.embedding_dim
    return [score * shard.num_rows * shard.num_columns / elements for shard in sharding.shards]


def no_room(problem: ShardingProblem, table: EmbeddingTable, free: float) -> InfeasibleError:
    """Return the error for a table that fits nowhere, with so many bytes free where it may be."""
    workload, topology, where = problem.workload, problem.topology, "one GPU"
    if table.ranks:
        where = f"rank {', '.join(map(str, table.ranks))}, where it is to be"
    total = sum(least_table_bytes(workload, topology, each) for each in workload.tables)
    if total > problem.total_capacity:
        return infeasible(workload, topology)
    needed = least_table_bytes(workload, topology, table)
    return infeasible(
        workload,
        topology,
        f"no plan fits: table `{table.name}` needs {size_text(needed)}, and at most "
        f"{size_text(free)} is free on {where}",
    )


def _no_room(
    problem: ShardingProblem, table: EmbeddingTable, occupancy: Occupancy
) -> InfeasibleError:
    if not table.ranks:
        return no_room(problem, table, max(occupancy.free))
    return no_room(problem, table, sum(occupancy.free[rank] for rank in table.ranks))
