"""Ranks for every lookup kernel, so that no rank launches more kernels than it must.

Where batches are small, the step waits for the rank that launches most kernels. Placed one after
the other, the first tables of every kernel go to the emptiest ranks, and hardly a rank is left that
has one kernel only; then no move of one table shortens the step.

Kernels of tables with given ranks are there.
"""

import numpy as np

from sharders.engine.search_state import SearchState
from sharders.engine.tables import EVERYWHERE, FIXED, ON_NODES


class KernelRanks:
    """The ranks to which the shards of every lookup kernel may go."""

    def __init__(self, search: SearchState) -> None:
        kernels, ranks = search.loads.num_kernels, search.plan.num_ranks
        self.search, self.num_kernels, self.num_ranks = search, kernels, ranks
        self.is_allowed = np.ones((kernels, ranks), dtype=np.int64)
        """Whether a kernel may have shards on a rank, (kernels, ranks)."""
        self.is_given = np.zeros((kernels, ranks), dtype=np.int64)
        """Whether it must, as a table has that given rank."""
        self.load = np.zeros(kernels)
        """Load of all shards of each kernel, in ranks."""
        self.width, self.unit = (np.ones(kernels, dtype=np.int64) for _ in range(2))
        """Ranks among which the shards of a table are, a node's or any one, and the most of these
        that it needs at once;"""
        self.least, self.most, self.count = (np.zeros(kernels, dtype=np.int64) for _ in range(3))
        """the fewest and the most ranks that it could use, and how many it gets."""
        self.busy = np.zeros(ranks)
        """Expected load of every rank if kernels' shards are even."""
        self.num_allowed = np.zeros(ranks, dtype=np.int64)
        """Number of kernels that may be on each rank."""

    def clear(self) -> None:
        """Forget expected options, and allow all kernels everywhere."""
        for kernel in range(self.num_kernels):
            self.load[kernel] = 0.0
            self.width[kernel] = self.unit[kernel] = 1
            self.least[kernel] = self.most[kernel] = 0
            for rank in range(self.num_ranks):
                self.is_allowed[kernel, rank] = 1
                self.is_given[kernel, rank] = 0

    def expect(self, option: int, load: float) -> None:
        """Add an option that will be placed; ``load`` is each shard's share of a rank."""
        tables, local = self.search.tables, self.search.plan.local_ranks
        spread, kernel = tables.spread[option], tables.kernel[option]
        if spread == EVERYWHERE:
            return
        shards, least = tables.num_shards(option), tables.blocks[option]
        self.load[kernel] += load * shards
        if spread == FIXED:
            self._give(option)
            return
        if spread == ON_NODES:
            self.width[kernel] = self.unit[kernel] = local
            least *= local
        elif tables.one_node[option] != 0:
            self.width[kernel] = local
            self.unit[kernel] = max(self.unit[kernel], least)
        self.least[kernel] = max(self.least[kernel], least)
        self.most[kernel] += max(least, shards)

    def _give(self, option: int) -> None:
        """Note the given ranks of an option's shards."""
        tables = self.search.tables
        kernel, first = tables.kernel[option], tables.first[option]
        for shard in range(first, first + tables.num_shards(option)):
            rank = tables.at[shard]
            self.most[kernel] += 1 - self.is_given[kernel, rank]
            self.is_given[kernel, rank] = 1

    def divide(self) -> bool:
        """Divide ranks among the expected kernels, and return whether there are enough.

        Each rank gets as few kernels as possible, and each kernel ranks in proportion to its load.
        """
        for most_kernels in range(1, self.num_kernels + 1):
            if self._divide(most_kernels):
                return True
        return False

    def _divide(self, most_kernels: int) -> bool:
        """Divide ranks with at most so many kernels on each; return whether there are enough."""
        left = most_kernels * self.num_ranks
        for rank in range(self.num_ranks):
            self.busy[rank] = 0.0
            self.num_allowed[rank] = 0
        for kernel in range(self.num_kernels):
            given, least = self._allow_given(kernel), self.least[kernel]
            # shards that need several ranks at once may have no use for those that are given
            self.count[kernel] = max(given, least) if self.unit[kernel] == 1 else given + least
            left -= self.count[kernel]
        if left < 0:
            return False
        for rank in range(self.num_ranks):
            if self.num_allowed[rank] > most_kernels:
                return False
        self._share_out(left)
        kernel = self._next()
        while kernel >= 0:
            if not self._allow_all(kernel, most_kernels):
                return False
            self.count[kernel] = 0
            kernel = self._next()
        return True

    def _allow_given(self, kernel: int) -> int:
        """Allow a kernel on its given ranks, or everywhere if it has none; return the number."""
        given, is_expected = 0, self.most[kernel] > 0
        for rank in range(self.num_ranks):
            self.is_allowed[kernel, rank] = not is_expected or self.is_given[kernel, rank]
            self.num_allowed[rank] += self.is_given[kernel, rank]
            given += self.is_given[kernel, rank]
        return given

    def _share_out(self, left: int) -> None:
        """Give the ranks left to kernels with most load for each of theirs."""
        best = 0
        while best >= 0:
            best = -1
            for kernel in range(self.num_kernels):
                step, most = self._step(kernel), min(self.num_ranks, self.most[kernel])
                may = step <= left and self.count[kernel] + step <= most
                if may and (best < 0 or self._is_fuller(kernel, best)):
                    best = kernel
            if best >= 0:
                step = self._step(best)
                self.count[best] += step
                left -= step

    def _step(self, kernel: int) -> int:
        """Return how many more ranks help a kernel: a node's if it has shards on all of it."""
        return self.unit[kernel] if self.unit[kernel] == self.width[kernel] else 1

    def _is_fuller(self, kernel: int, other: int) -> bool:
        """Return whether a kernel has more load for each of its ranks than another one."""
        return self.load[kernel] * self.count[other] > self.load[other] * self.count[kernel]

    def _next(self) -> int:
        """Return the kernel whose ranks are chosen next; -1: none.

        It is the one that needs most at once, of these the one of most load for each.
        """
        best = -1
        for kernel in range(self.num_kernels):
            if self.count[kernel] == 0:
                continue
            larger = best < 0 or self.unit[kernel] > self.unit[best]
            same = best >= 0 and self.unit[kernel] == self.unit[best]
            if larger or (same and self._is_fuller(kernel, best)):
                best = kernel
        return best

    def _allow_all(self, kernel: int, most_kernels: int) -> bool:
        """Allow a kernel on its number of ranks, and return whether they are enough."""
        load, count, allowed = self.load[kernel] / self.count[kernel], self.count[kernel], 0
        for rank in range(self.num_ranks):
            if self.is_given[kernel, rank]:
                self.busy[rank] += load
                count -= 1
        more = 1
        while allowed < count and more > 0:
            more = self._allow(kernel, most_kernels, count - allowed, load)
            allowed += more
        return allowed >= min(count, self.least[kernel])

    def _allow(self, kernel: int, most_kernels: int, count: int, load: float) -> int:
        """Allow a kernel on some ranks of the node with least load, and return on how many.

        If shards of a table need not be on a node, all ranks count as one.
        """
        width, best, least = self.width[kernel], -1, 0.0
        for first in range(0, self.num_ranks - width + 1, width):
            total, possible, more = 0.0, 0, 0
            for rank in range(first, first + width):
                is_new = not self.is_allowed[kernel, rank]
                if is_new and self.num_allowed[rank] >= most_kernels:
                    continue
                possible += 1
                more += is_new
                total += self.busy[rank]
            is_enough = more > 0 and possible >= self.unit[kernel]
            if is_enough and (best < 0 or total < least * possible):
                best, least = first, total / possible
        if best < 0:
            return 0
        allowed, count = 0, max(count, self.unit[kernel])
        for rank in range(best, best + width):
            is_new = not self.is_allowed[kernel, rank]
            if is_new and self.num_allowed[rank] < most_kernels and allowed < count:
                self.is_allowed[kernel, rank] = 1
                self.num_allowed[rank] += 1
                self.busy[rank] += load
                allowed += 1
        return allowed
