"""Room for a move that overfills memory: column blocks of other tables leave full ranks.

Where memory is tight, most moves find no room (at 100 tables on 8 GPUs 60 to 80%), least of all
those of large tables.
"""

from math import inf

from sharders.engine.moves import MoveProposer
from sharders.engine.rank_blocks import RankBlocks
from sharders.engine.tables import Move

EJECT_TRIES: int = 64
"""Number of blocks of a full rank looked at for one that leaves it."""
EJECT_PLACES: int = 8
"""Number of ranks drawn as its new place."""


class Ejector:
    """Adds to a move that found no room the move of another table's block to another rank."""

    def __init__(self, proposer: MoveProposer, blocks: RankBlocks) -> None:
        self.search, self.rng, self.blocks = proposer.search, proposer.rng, blocks
        self.fullest = 0
        """The rank with least HBM left after the tried move."""
        self.lack = 0.0
        """Bytes that it lacks; negative: none."""
        self.found_block = 0
        self.found_bytes = self.left = 0.0

    def find_fullest(self) -> None:
        """Find the rank with least HBM left, while a move is tried."""
        search = self.search
        row = search.loads.free_row
        self.fullest = 0
        for other in range(1, search.plan.num_ranks):
            if search.plan.numbers[row, other] < search.plan.numbers[row, self.fullest]:
                self.fullest = other
        self.lack = -search.plan.numbers[row, self.fullest]

    def eject(self, move: Move) -> bool:
        """Add to a move that a column block leaves the rank that lacks bytes.

        Return whether there was one. The plan is the one before the move.
        """
        search, tables, choices = self.search, self.search.tables, self.search.choices
        table = self._smallest(move)
        if table < 0 or move.length == move.table.shape[0]:
            return False
        option, local = choices.option[table], search.plan.local_ranks
        for number in range(EJECT_PLACES):
            place = self._place(move.table[0], number % 2 == 0)
            if tables.one_node[option] and place // local != self.fullest // local:
                continue
            if self.left >= self.found_bytes and search.block_at(table, place) < 0:
                move.ranks[move.add(choices, table, option), self.found_block] = place
                return True
        return False

    def _smallest(self, move: Move) -> int:
        """Return a table with a block to leave the full rank.

        ``found`` has the block and its size.

        It is the smallest block of at least the bytes lacking, of no table that the move changes;
        -1: none.
        """
        search, tables, found = self.search, self.search.tables, -1
        entry, tries = self.blocks.first[self.fullest], 0
        while entry >= 0 and tries < EJECT_TRIES:
            table, block = entry // self.blocks.widest, entry % self.blocks.widest
            row = tables.rows[tables.first[search.choices.option[table]] + block]
            size = tables.held[row, 0]
            if size >= self.lack and (found < 0 or size < self.found_bytes) and not move.has(table):
                found, self.found_block, self.found_bytes = table, block, size
            entry = self.blocks.after[entry]
            tries += 1
        return found

    def _place(self, moved: int, origin: bool) -> int:
        """Return a drawn rank, with ``origin`` one that a table moves from.

        Note the bytes left there.

        The bytes that the table leaves are unknown, and hoped to be enough.
        """
        search = self.search
        blocks = search.tables.blocks[search.choices.option[moved]]
        if origin and blocks > 0:
            self.left = inf
            return search.choices.ranks[moved, self.rng.below(blocks)]
        place = self.rng.below(search.plan.num_ranks)
        self.left = search.plan.numbers[search.loads.free_row, place]
        return place
