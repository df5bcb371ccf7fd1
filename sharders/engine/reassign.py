"""A move that divides blocks of two ranks between them anew, in the best of all ways.

Where ranks hold few blocks, or all that they can, hardly a block finds a rank where it saves time,
and hardly two that change places: if a block leaves a rank that sends too much, others have to make
up for it. Of ten blocks on two ranks all 1,024 divisions are compared by lookups, bytes sent and
bytes held of both ranks; the best one is then timed as any move. Neighbourhoods this large are
usual where machines or vehicles exchange several tasks at once.

References
----------
Ahuja, Ergun, Orlin and Punnen, A survey of very large-scale neighborhood search techniques,
Discrete Applied Mathematics 123 (2002).

"""

import numpy as np

from costmodel.step.template import RANK_FEATURES
from sharders.engine.imbalance_penalty import BALANCE_ROOTS
from sharders.engine.moves import MoveProposer
from sharders.engine.rank_blocks import RankBlocks
from sharders.engine.tables import Move

NUM_FEATURES: int = len(RANK_FEATURES)
LOOKUPS: int = NUM_FEATURES
"""Column of blocks' seconds of lookups, after those of features."""
HELD: int = NUM_FEATURES + 1
"""Column of blocks' bytes."""
ANY: int = -1
"""Stands for blocks of any group."""
MAX_REASSIGNED: int = 10
"""Most blocks that are divided."""
LEAST_GAIN: float = 1e-9
"""Gains below this share of both ranks' value are rounding."""


class Reassigner:
    """Draws the slowest rank and another, and divides some of their blocks between them.

    Divisions are compared by the sum of the power means that a search minimises besides the step
    time (``SearchState``), as small changes of what two ranks take change it.
    """

    def __init__(self, proposer: MoveProposer, blocks: RankBlocks) -> None:
        self.proposer, self.search, self.blocks = proposer, proposer.search, blocks
        self.here, self.there, self.moved, self.counted = np.zeros((4, 1 << MAX_REASSIGNED))
        """What both ranks take of something in every division, by the bits of the blocks that go to
        the other rank, what the slowest one takes more of it, and what all counts for."""
        self.table, self.block, self.is_here, self.first = np.zeros(
            (4, MAX_REASSIGNED), dtype=np.int64
        )
        """The table of every block that is divided, its number there, whether it is on the slowest
        rank, and where its group's features begin."""
        self.taken, self.more = np.zeros((MAX_REASSIGNED, HELD + 1)), np.zeros(MAX_REASSIGNED)
        """Seconds that it takes of its group's features and of lookups, and what it holds; and what
        the slowest rank takes more of one of these if it changes places."""
        self.slowest = self.other = 0
        """The two ranks."""
        self.count = self.seen = 0
        """Number of blocks that are divided, and of those that could be."""

    def draw(self, move: Move) -> None:
        """Draw a move; one of ``length`` 0 if blocks are divided in the best way already."""
        move.length = self.count = self.seen = 0
        choices, order = self.search.choices, self.proposer.order
        self.slowest, self.other = order[order.shape[0] - 1], self.proposer.light_rank()
        if self.slowest == self.other:
            return
        self._gather(self.slowest, self.other, 1)
        self._gather(self.other, self.slowest, 0)
        division = self._best_division()
        for index in range(self.count):
            if division >> index & 1:
                table = self.table[index]
                row = move.add(choices, table, choices.option[table])
                goes_to = self.other if self.is_here[index] else self.slowest
                move.ranks[row, self.block[index]] = goes_to

    def _gather(self, rank: int, other: int, is_here: int) -> None:
        """Add a rank's blocks that could be on another; a drawn part of them, if they are many."""
        search, tables = self.search, self.search.tables
        local, widest = search.plan.local_ranks, self.blocks.widest
        entry = self.blocks.first[rank]
        while entry >= 0:
            table, block = entry // widest, entry % widest
            entry = self.blocks.after[entry]
            if tables.one_node[search.choices.option[table]] and rank // local != other // local:
                continue
            if search.block_at(table, other) >= 0:
                continue
            self.seen += 1
            index = self.count
            if index == MAX_REASSIGNED:
                index = self.proposer.rng.below(self.seen)
                if index >= MAX_REASSIGNED:
                    continue
            else:
                self.count += 1
            self.table[index], self.block[index], self.is_here[index] = table, block, is_here

    def _best_division(self) -> int:
        """Return the bits of the blocks that go to the other rank in the best division."""
        plan, loads = self.search.plan, self.search.loads
        for number in range(1 << self.count):
            self.counted[number] = 0.0
        for index in range(self.count):
            self._describe(index)
        for row in range(loads.exchange_rates.shape[0]):
            self._add_exchange(row)
        here, there = loads.work(self.slowest), loads.work(self.other)
        self._any_moves(LOOKUPS, ANY)
        self._add(here, there, loads.power_row)
        self._any_moves(HELD, ANY)
        self._sum_moved()
        free_here = plan.numbers[loads.free_row, self.slowest]
        free_there = plan.numbers[loads.free_row, self.other]
        least_here, least_there = min(0.0, free_here), min(0.0, free_there)
        best, least = 0, self.counted[0] * (1 - LEAST_GAIN)
        for number in range(1, 1 << self.count):
            if self.counted[number] < least:
                moved = self.moved[number]
                if free_here - moved >= least_here and free_there + moved >= least_there:
                    best, least = number, self.counted[number]
        return best

    def _describe(self, index: int) -> None:
        """Compute a block's seconds and bytes."""
        search, tables = self.search, self.search.tables
        option = search.choices.option[self.table[index]]
        size = tables.rows[tables.first[option] + self.block[index]]
        first = tables.group[option] * NUM_FEATURES
        self.first[index] = first
        for feature in range(NUM_FEATURES):
            rate = search.loads.exchange_rates[first + feature]
            self.taken[index, feature] = rate * tables.features[size, feature]
        self.taken[index, LOOKUPS] = tables.shard_cost[option]
        self.taken[index, HELD] = tables.held[size, 0]

    def _add_exchange(self, row: int) -> None:
        """Add the value of a group's exchange of a feature in every division."""
        loads, feature = self.search.loads, row % NUM_FEATURES
        if self._any_moves(feature, row - feature):
            rate = loads.exchange_rates[row]
            here = rate * self.search.plan.loads[self.slowest, row]
            there = rate * self.search.plan.loads[self.other, row]
            self._add(here, there, loads.exchanged_row + row)

    def _any_moves(self, column: int, first: int) -> bool:
        """Set how much more the slowest rank takes if each block moves, and return if any does.

        0 for blocks of groups other than the one whose features begin at ``first``, or ``ANY``.
        """
        any_moves = False
        for index in range(self.count):
            is_meant = first == ANY or first == self.first[index]
            amount = self.taken[index, column] if is_meant else 0.0
            self.more[index] = -amount if self.is_here[index] else amount
            any_moves = any_moves or amount > 0
        return any_moves

    def _sum_moved(self) -> None:
        """Compute how much more the slowest rank takes in every division."""
        self.moved[0] = 0.0
        for index in range(self.count):
            self._double(1 << index, self.more[index])

    def _double(self, count: int, amount: float) -> None:
        """Add the divisions in which one more block goes to the other rank."""
        for number in range(count):
            self.moved[count + number] = self.moved[number] + amount

    def _add(self, of_slowest: float, of_other: float, powers: int) -> None:
        """Add the value of one load of both ranks in every division."""
        total = self.search.plan.numbers[powers, 0]
        if total > 0:
            self._sum_moved()
            weight = self.search.power_mean(powers) / total
            self._add_powers(of_slowest, of_other, weight, 1 << self.count)

    def _add_powers(self, of_slowest: float, of_other: float, weight: float, count: int) -> None:
        """Add powers of both ranks' loads in every division."""
        for number in range(count):
            self.here[number] = of_slowest + self.moved[number]
            self.there[number] = of_other - self.moved[number]
        for _ in range(BALANCE_ROOTS):
            for number in range(count):
                self.here[number] *= self.here[number]
                self.there[number] *= self.there[number]
        for number in range(count):
            self.counted[number] += weight * (self.here[number] + self.there[number])
