"""All options of all tables as flat arrays, and a plan as a choice among them."""

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Ints

Shorts = NDArray[np.int32]
"""Short integers, such as ranks, of which there can be 32,767 at most."""
Indices = NDArray[np.int32]
EVERYWHERE, ON_RANKS, ON_NODES, FIXED = range(4)
"""Where an option's shards lie: one on every rank, one per block, one per block and local rank, or
on given ranks."""
FITS, SLOW, FULL, UNKNOWN = range(4)
"""Outcomes of a move: it was timed; a bound says that it takes too long; there is no room; the
step of its groups is missing."""
SPREADS = {"everywhere": EVERYWHERE, "ranks": ON_RANKS, "nodes": ON_NODES, "fixed": FIXED}


class Tables:
    """Options of all tables in one array, one table after the other; shards likewise.

    A move mostly waits for numbers that are in no near cache: so they are short.
    """

    def __init__(
        self,
        *,
        options: Ints,
        table_columns: Array,
        group: Shorts,
        kernel: Shorts,
        kind: Shorts,
        spread: Shorts,
        blocks: Shorts,
        one_node: Shorts,
        replicated: Array,
        cost: Array,
        shard_cost: Array,
        most: Array,
        first: Indices,
        rows: Indices,
        traffic: Array,
        features: Array,
        held: Array,
        at: Shorts,
    ) -> None:
        """Keep the arrays.

        Parameters
        ----------
        options
            Where each table's options begin; one more entry than tables.
        table_columns
            Output columns of each table per sample.
        group, kernel, kind
            Of every option: sharding group, lookup kernel, and sharding type by its place in
            ``ShardingType``.
        spread, blocks, one_node
            Where its shards lie; ranks (or nodes) to choose; 1 where all must be on one node.
        replicated
            Bytes that data parallelism keeps on every rank.
        cost, shard_cost
            Seconds over all shards, and of the largest one (``OptionCosts``).
        most
            The most of all shards of what combines by maximum, (options, ``MAXIMA``).
        first, rows
            Where its shards begin; of every shard, its row of the next three: most are alike.
        traffic, features, held
            (rows, ``NUM_TRAFFIC``); features, ids and columns; bytes in HBM and in host memory.
        at
            Of every shard, its rank, if its option's spread is ``FIXED``.

        """
        self.num_tables = table_columns.size
        self.options, self.table_columns = options, table_columns
        self.group, self.kernel, self.kind, self.spread = group, kernel, kind, spread
        self.blocks, self.one_node, self.replicated = blocks, one_node, replicated
        self.cost, self.shard_cost, self.most = cost, shard_cost, most
        self.price = np.array(cost)
        """Price of options, by which cheap ones are drawn (``Engine.offer``)."""
        self.first, self.rows = first, rows
        self.traffic, self.features, self.held, self.at = traffic, features, held, at
        self.offered = np.arange(kind.size)
        """Options that a search may take: of each table from ``options`` on, ``num_offered``."""
        self.num_offered = np.diff(options)

    def offer(self, types: int) -> None:
        """Limit a search to options of the sharding types with these bits.

        A table that has none of them may take all of its own. Options that a plan has already may
        stay.
        """
        for table in range(self.num_tables):
            first, last = self.options[table], self.options[table + 1]
            count = 0
            for option in range(first, last):
                if types >> self.kind[option] & 1:
                    self.offered[first + count] = option
                    count += 1
            if count == 0:
                for option in range(first, last):
                    self.offered[option] = option
                count = last - first
            self.num_offered[table] = count

    def num_shards(self, option: int) -> int:
        """Return how many shards an option has."""
        return self.first[option + 1] - self.first[option]


class Choices:
    """A sharding of every table: its option, and the ranks (or nodes) of the option's blocks."""

    def __init__(self, option: Ints, ranks: Shorts) -> None:
        """Keep options, (tables,), and ranks, (tables, most blocks)."""
        self.option, self.ranks = option, ranks

    def copy(self) -> "Choices":
        """Return the same choices in arrays of their own."""
        return Choices(np.array(self.option), np.array(self.ranks))

    def copy_row(self, table: int, target: "Choices", target_row: int) -> None:
        """Copy a table's ranks to a row of other choices, of the same width."""
        for block in range(self.ranks.shape[1]):
            target.ranks[target_row, block] = self.ranks[table, block]


class Move(Choices):
    """New choices of some tables, in its first ``length`` rows."""

    def __init__(self, most: int, widest: int) -> None:
        """Make room for so many tables, of so many blocks each."""
        super().__init__(np.zeros(most, dtype=np.int64), np.zeros((most, widest), dtype=np.int32))
        self.length = 0
        self.table = np.zeros(most, dtype=np.int64)
        """The table of every row."""

    def has(self, table: int) -> bool:
        """Return whether a move changes a table."""
        for row in range(self.length):
            if self.table[row] == table:
                return True
        return False

    def add(self, choices: Choices, table: int, option: int) -> int:
        """Add a table, on the ranks it is on now; return its row."""
        row = self.length
        self.table[row], self.option[row] = table, option
        for block in range(self.ranks.shape[1]):
            self.ranks[row, block] = choices.ranks[table, block]
        self.length = row + 1
        return row
