"""Memory of ranks while tables are packed into them, and places for shards, tightest first."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array, Places
from costmodel.domain.plan import ShardingPlan, ShardingType
from sharders.problem.groundwork import Groundwork
from sharders.problem.options import make_plan, make_sharding

GIVEN: Places = np.zeros(1, dtype=np.intp)
"""Place of a table with given ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """An option as blocks of memory: like blocks, each on a rank, on all of a node, or on all."""

    count: int
    width: int
    """Number of neighbouring ranks that a block takes."""
    one_node: bool
    """Whether all blocks are on one node."""
    size: Array
    """Bytes of HBM of a block on each of its ranks; of all shards if ranks are given."""
    host: Array
    """Bytes of host memory in the same way."""
    hosted: bool
    """Whether any of them is not 0."""
    ranks: Places | None = None
    """Given ranks of all shards; None: none are given."""


class PackedTable(NamedTuple):
    """A table's option and place."""

    option: int
    """Number among the options of all tables."""
    places: Places
    """Ranks, or nodes, of its blocks."""


class PackedRanks:
    """Places of tables, and the room they leave; no rank or host ever holds too much."""

    def __init__(self, ground: Groundwork) -> None:
        self.ground, self.arrays = ground, ground.arrays
        topology = ground.topology
        self.num_ranks, self.local = topology.world_size, topology.local_world_size
        self.roomiest = False
        """Whether shards go where they leave most, not least, so that many small tables are
        even."""
        self._blocks: dict[int, Blocks] = {}
        self.clear()

    def clear(self) -> None:
        """Take all tables away."""
        self.free = np.array(self.ground.rooms)
        self.host_free = np.full(self.ground.topology.num_nodes, float(self.ground.host_capacity))
        self.at: list[PackedTable | None] = [None] * len(self.ground.workload.tables)
        self.tables_on: list[set[int]] = [set() for _ in range(self.num_ranks)]
        """Tables with movable blocks, by rank."""

    def blocks(self, option: int) -> Blocks:
        """Return the blocks of an option."""
        if option not in self._blocks:
            self._blocks[option] = self._blocks_of(option)
        return self._blocks[option]

    def _blocks_of(self, number: int) -> Blocks:
        """Return how an option takes ranks: so many blocks of one width, and the bytes of each."""
        option = self.arrays.flat[number]
        table = self.ground.workload.tables[self.arrays.codes.table[number]]
        sizes = self.ground.option_bytes(table, option)
        held = np.array([(each.total, float(each.host)) for each in sizes])
        kind = option.sharding_type
        if option.num_ranks == 0 and not kind.everywhere:
            ranks = np.array(make_sharding(table, self.ground.topology, option).ranks)
            size, host = held.T
            return Blocks(
                count=1, width=self.num_ranks, one_node=False,
                size=size, host=host, hosted=bool(host.any()), ranks=ranks,
            )  # fmt: skip
        width = self.num_ranks if kind.everywhere else self.local if kind.within_node else 1
        one_node = kind is ShardingType.TABLE_COLUMN_WISE
        size, host = held[:width].T
        count = max(1, option.num_ranks)
        return Blocks(
            count=count, width=width, one_node=one_node,
            size=size, host=host, hosted=bool(host.any()),
        )  # fmt: skip

    def places(self, option: int) -> Places | None:
        """Return places where an option's blocks fit, the best ones; None: nowhere."""
        blocks = self.blocks(option)
        if blocks.ranks is not None:
            return GIVEN if self._fits(blocks.ranks, blocks) else None
        left = self.free - blocks.size if blocks.width == 1 else self._left_by(blocks)
        if blocks.one_node:
            left = self._one_node(left, blocks.count)
        roomy = np.flatnonzero(left >= 0)
        if len(roomy) < blocks.count:
            return None
        keys = -left[roomy] if self.roomiest else left[roomy]
        if blocks.count == 1:
            found = roomy[np.argmin(keys)][None]
        else:
            found = roomy[np.argsort(keys, kind="stable")[: blocks.count]]
        return found if self.hosts_fit(blocks, found) else None

    def _left_by(self, blocks: Blocks) -> Array:
        """Return the least bytes that a block leaves on any of its ranks, for every place."""
        least: Array = (self.free.reshape(-1, blocks.width) - blocks.size).min(axis=1)
        return least

    def _one_node(self, left: Array, count: int) -> Array:
        """Return the bytes left on the first node with room for so many blocks, -inf elsewhere.

        Of shape (ranks,); -inf everywhere if no node has room.
        """
        fits = left.reshape(-1, self.local) >= 0
        nodes = np.flatnonzero(fits.sum(axis=1) >= count)
        only = np.full_like(left, -np.inf)
        if len(nodes):
            own = slice(nodes[0] * self.local, (nodes[0] + 1) * self.local)
            only[own] = left[own]
        return only

    def _fits(self, ranks: Places, blocks: Blocks) -> bool:
        """Return whether ranks and their hosts have room for all blocks at once."""
        free, host = self.free.copy(), self.host_free.copy()
        np.subtract.at(free, ranks, blocks.size)
        np.subtract.at(host, ranks // self.local, blocks.host)
        return bool(free.min() >= 0 and host.min() >= 0)

    def hosts_fit(self, blocks: Blocks, places: Places) -> bool:
        """Return whether hosts have room for blocks in some places."""
        if not blocks.hosted:
            return True
        held = np.zeros_like(self.host_free)
        self._add_host(held, blocks, places, 1.0)
        return bool((held <= self.host_free).all())

    def ranks_of(self, blocks: Blocks, places: Places) -> Places:
        """Return the rank of every shard of blocks in some places."""
        if blocks.ranks is not None:
            return blocks.ranks
        if blocks.width == 1:
            return places
        ranks: Places = (places[:, None] * blocks.width + np.arange(blocks.width)).ravel()
        return ranks

    def _add_host(self, held: Array, blocks: Blocks, places: Places, sign: float) -> None:
        """Add the blocks' host bytes, times ``sign``, to those held by every node."""
        ranks = self.ranks_of(blocks, places)
        sizes = np.resize(blocks.host, len(ranks))
        np.add.at(held, ranks // self.local, sign * sizes)

    def _change(self, placed: PackedTable, sign: float) -> None:
        """Take the bytes of a table from its ranks (``sign`` 1), or give them back (-1)."""
        blocks = self.blocks(placed.option)
        ranks = self.ranks_of(blocks, placed.places)
        if blocks.ranks is None and (blocks.width == 1 or blocks.count == 1):
            self.free[ranks] -= sign * blocks.size
        else:
            np.subtract.at(self.free, ranks, sign * np.resize(blocks.size, len(ranks)))
        if blocks.hosted:
            self._add_host(self.host_free, blocks, placed.places, -sign)

    def put(self, table: int, placed: PackedTable) -> None:
        """Put a table, which was nowhere, in a place."""
        self._change(placed, 1.0)
        self.at[table] = placed
        for rank in self._own_ranks(placed):
            self.tables_on[rank].add(table)

    def take(self, table: int) -> PackedTable:
        """Remove a table, and return its place."""
        placed = self.placed(table)
        self._change(placed, -1.0)
        self.at[table] = None
        for rank in self._own_ranks(placed):
            self.tables_on[rank].discard(table)
        if not any(self.at):  # nothing is left of sums that are rounded
            self.clear()
        return placed

    def _own_ranks(self, placed: PackedTable) -> list[int]:
        """Return the ranks that a table is on; empty if they are given."""
        blocks = self.blocks(placed.option)
        if blocks.ranks is not None:
            return []
        own: list[int] = self.ranks_of(blocks, placed.places).tolist()
        return own

    def placed(self, table: int) -> PackedTable:
        """Return a table's place; it must have one."""
        placed = self.at[table]
        if placed is None:
            raise ValueError(f"table {table} is nowhere")
        return placed

    def ranks_of_table(self, table: int) -> Places:
        """Return the rank of every shard of a table."""
        placed = self.placed(table)
        return self.ranks_of(self.blocks(placed.option), placed.places)

    def is_narrow(self, table: int) -> bool:
        """Return whether each block of a table is on one rank."""
        return self.blocks(self.placed(table).option).width == 1

    def plan(self) -> ShardingPlan:
        """Return the plan; every table must have a place."""
        topology, shardings = self.ground.topology, []
        for index, table in enumerate(self.ground.workload.tables):
            placed = self.placed(index)
            option, blocks = self.arrays.flat[placed.option], self.blocks(placed.option)
            places = (placed.places * blocks.width).tolist() if option.num_ranks else ()
            shardings.append(make_sharding(table, topology, option, places))
        return make_plan(topology, shardings)
