"""Room for a move that overfills memory: column blocks of other tables leave full ranks.

Where memory is tight, most moves find no room (at 100 tables on 8 GPUs 60 to 80%), least of all
those of large tables. With this and ``moves.KEEP_SHARE`` together, 5,000 moves a table end
0.9% lower there (eight plans, eight seeds each); with the latter alone 0.3% (four of them).
"""

from math import inf

from sharders.engine.moves import MoveProposer
from sharders.engine.rank_blocks import RankBlocks
from sharders.engine.tables import Move

EJECT_TRIES: int = 64
"""Blocks of a full rank that are looked at for one that leaves it. While these were blocks of
any tables, of which the rank has hardly one where ranks are many, and one left for a move, not
``MAX_EJECTED``, 1, 3 and 10 CPU seconds ended 0.7, 0.1 and 0.3% higher in the mean of 19
problems of full memory (standard errors 0.2, 0.2 and 0.1%, 38 runs), and 10 seconds 4.0% off
at worst, not 1.9%; 24 others as low."""
EJECT_PLACES: int = 8
"""Ranks drawn for where it could go."""


class Ejector:
    """Adds to a move that found no room that a block of another table goes elsewhere."""

    def __init__(self, proposer: MoveProposer, blocks: RankBlocks) -> None:
        self.search, self.rng, self.blocks = proposer.search, proposer.rng, blocks
        self.fullest = 0
        """The rank with least HBM left after a move that was tried,"""
        self.lack = 0.0
        """and how many bytes it lacks; none, if negative."""
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

        Return whether one could. The plan is the one before the move.
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
        """Return a table with a block on the full rank, which and how large is in ``found``.

        The smallest block of at least the bytes that lack, but none of a table that the move
        changes; -1: there is none.
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
        """Draw a rank, if ``origin`` one that a table moves from; note the bytes left there.

        What the table leaves behind is not known: enough, one hopes.
        """
        search = self.search
        blocks = search.tables.blocks[search.choices.option[moved]]
        if origin and blocks > 0:
            self.left = inf
            return search.choices.ranks[moved, self.rng.below(blocks)]
        place = self.rng.below(search.plan.num_ranks)
        self.left = search.plan.numbers[search.loads.free_row, place]
        return place
