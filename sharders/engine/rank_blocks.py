"""The column blocks on every rank, kept as plans change.

The blocks of a rank are a linked list, in no order: entries of all tables, ``widest`` of each.
"""

import numpy as np

from sharders.engine.tables import ON_RANKS, Choices, Tables

NONE: int = -1


class RankBlocks:
    """The column blocks on every rank, of options whose ranks can be chosen."""

    def __init__(self, tables: Tables, choices: Choices, num_ranks: int) -> None:
        """List nothing yet, of a plan's choices."""
        self.tables, self.choices, self.widest = tables, choices, choices.ranks.shape[1]
        self.first = np.full(num_ranks, NONE, dtype=np.int64)
        """First entry of every rank's list."""
        self.after, self.before = np.full((2, tables.num_tables * self.widest), NONE)
        """and of every entry, those beside it."""

    def rebuild(self) -> None:
        """List the blocks of all tables."""
        for rank in range(self.first.shape[0]):
            self.first[rank] = NONE
        for table in range(self.tables.num_tables):
            self._add(table)

    def change(self, table: int, past: Choices, row: int) -> None:
        """Move a table's blocks from the ranks in a row of past choices to its present ones."""
        option = past.option[row]
        if self.tables.spread[option] == ON_RANKS:
            for block in range(self.tables.blocks[option]):
                self._remove(table * self.widest + block, past.ranks[row, block])
        self._add(table)

    def _add(self, table: int) -> None:
        """Put a table's blocks first in the lists of their ranks."""
        option = self.choices.option[table]
        if self.tables.spread[option] != ON_RANKS:
            return
        for block in range(self.tables.blocks[option]):
            entry, rank = table * self.widest + block, self.choices.ranks[table, block]
            other = self.first[rank]
            self.after[entry], self.before[entry] = other, NONE
            if other >= 0:
                self.before[other] = entry
            self.first[rank] = entry

    def _remove(self, entry: int, rank: int) -> None:
        """Take an entry out of the list of a rank."""
        after, before = self.after[entry], self.before[entry]
        if after >= 0:
            self.before[after] = before
        if before >= 0:
            self.after[before] = after
        else:
            self.first[rank] = after
