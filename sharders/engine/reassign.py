"""A move that divides blocks of two ranks between them anew, in the best of all ways.

Where ranks hold few blocks, or all that they can, hardly a block finds a rank where it saves time,
and hardly two that change places: what leaves a rank that sends too much has to be made up for by
what others hold. Of ten blocks on two ranks all 1,024 divisions are looked at, by what both ranks
look up, send and hold; the best one is then timed as any move. Neighbourhoods this large are usual
where machines or vehicles exchange several tasks at once.

References
----------
Ahuja, Ergun, Orlin and Punnen, A survey of very large-scale neighborhood search techniques,
Discrete Applied Mathematics 123 (2002).

"""

import numpy as np

from costmodel.step.template import RANK_FEATURES
from sharders.engine.imbalance_penalty import BALANCE_ROOTS
from sharders.engine.moves import MoveProposer
from sharders.engine.params import MoveParams
from sharders.engine.rank_blocks import RankBlocks
from sharders.engine.tables import Move

NUM_FEATURES: int = len(RANK_FEATURES)
LEAST_GAIN: float = 1e-9
"""Less than this share of what both ranks count for is rounding."""


class Reassigner:
    """Draws the slowest rank and another, and divides some of their blocks between them.

    Divisions are compared by the sum of the power means that a search minimises besides the step
    time (``SearchState``), as small changes of what two ranks take change it.
    """

    def __init__(self, proposer: MoveProposer, blocks: RankBlocks, params: MoveParams) -> None:
        self.proposer, self.search, self.blocks = proposer, proposer.search, blocks
        self.most = params.max_reassigned
        self.lookups = self.search.loads.exchange_rates.shape[0]
        """What ranks take are seconds of every group's features and, in this row, of lookups."""
        self.here, self.there, self.weight, self.counted = np.zeros((4, self.lookups + 1))
        """What both ranks take of each, how much its powers count, and what both count for."""
        self.table, self.block, self.is_here, self.first = np.zeros((4, self.most), dtype=np.int64)
        """The table of every block that is divided, its number there, whether it is on the slowest
        rank, and where its group's features begin."""
        self.seconds, self.bytes = np.zeros((self.most, NUM_FEATURES + 1)), np.zeros(self.most)
        """Seconds that it takes, those of lookups last, and what it holds."""
        self.slowest = self.other = 0
        """The two ranks."""
        self.count = self.seen = 0
        """Blocks that are divided, of those that could be."""
        self.total = 0.0
        """What both ranks count for."""

    def draw(self, move: Move) -> None:
        """Draw a move; none (``length`` 0) where blocks are divided in the best way already."""
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
        """Note a rank's blocks that could be on another; drawn ones, where there are many."""
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
            if index == self.most:
                index = self.proposer.rng.below(self.seen)
                if index >= self.most:
                    continue
            else:
                self.count += 1
            self.table[index], self.block[index], self.is_here[index] = table, block, is_here

    def _best_division(self) -> int:
        """Return the bits of the blocks that go to the other of both ranks in the best division."""
        search = self.search
        for index in range(self.count):
            self._describe(index)
            for feature in range(NUM_FEATURES):
                self._begin(self.first[index] + feature)
        self._begin(self.lookups)
        free = search.loads.free_row
        left_here = search.plan.numbers[free, self.slowest]
        left_there = search.plan.numbers[free, self.other]
        least_here, least_there = min(0.0, left_here), min(0.0, left_there)
        self.total = 0.0
        division, best, least = 0, 0, -LEAST_GAIN * self.counted[self.lookups]
        for number in range(1, 1 << self.count):
            index = 0  # a Gray code: each division differs from the one before by one block
            while not number >> index & 1:
                index += 1
            division ^= 1 << index
            sign = 1.0 if (division >> index & 1) != self.is_here[index] else -1.0
            for feature in range(NUM_FEATURES):
                if self.seconds[index, feature] > 0:
                    row = self.first[index] + feature
                    self._shift(row, sign * self.seconds[index, feature])
            self._shift(self.lookups, sign * self.seconds[index, NUM_FEATURES])
            left_here -= sign * self.bytes[index]
            left_there += sign * self.bytes[index]
            if self.total < least and left_here >= least_here and left_there >= least_there:
                best, least = division, self.total
        return best

    def _describe(self, index: int) -> None:
        """Note what a block takes."""
        search, tables = self.search, self.search.tables
        option = search.choices.option[self.table[index]]
        size = tables.rows[tables.first[option] + self.block[index]]
        first = tables.group[option] * NUM_FEATURES
        self.first[index], self.bytes[index] = first, tables.held[size, 0]
        for feature in range(NUM_FEATURES):
            rate = search.loads.exchange_rates[first + feature]
            self.seconds[index, feature] = rate * tables.features[size, feature]
        self.seconds[index, NUM_FEATURES] = tables.shard_cost[option]

    def _begin(self, row: int) -> None:
        """Note what both ranks take of something, and how much it counts."""
        search, loads = self.search, self.search.loads
        if row == self.lookups:
            self.here[row], self.there[row] = loads.work(self.slowest), loads.work(self.other)
            powers = loads.power_row
        else:
            rate = loads.exchange_rates[row]
            self.here[row] = rate * search.plan.loads[self.slowest, row]
            self.there[row] = rate * search.plan.loads[self.other, row]
            powers = loads.exchanged_row + row
        total = search.plan.numbers[powers, 0]
        self.weight[row] = search.power_mean(powers) / total if total > 0 else 0.0
        both = _power(self.here[row]) + _power(self.there[row])
        self.counted[row] = self.weight[row] * both

    def _shift(self, row: int, seconds: float) -> None:
        """Let the slowest rank take more of something, and the other less."""
        self.here[row] += seconds
        self.there[row] -= seconds
        both = _power(self.here[row]) + _power(self.there[row])
        self.total += self.weight[row] * both - self.counted[row]
        self.counted[row] = self.weight[row] * both


def _power(seconds: float) -> float:
    """Return a number to the power of 2 to the ``BALANCE_ROOTS``; compiled in place here."""
    for _ in range(BALANCE_ROOTS):
        seconds *= seconds
    return seconds
