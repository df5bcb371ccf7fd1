"""Ranks for every lookup kernel, so that none launches more of them than it must.

Where batches are small, the step waits for the rank that launches most kernels. Placed one after
the other, the first tables of every kernel go to the emptiest ranks, and hardly a rank is left that
has one kernel only; then no move of one table shortens the step.
"""

import numpy as np

from sharders.engine.search_state import SearchState
from sharders.engine.tables import EVERYWHERE, FIXED, ON_NODES


class KernelRanks:
    """Which ranks the shards of every lookup kernel may go to."""

    def __init__(self, search: SearchState) -> None:
        kernels, ranks = search.loads.num_kernels, search.plan.num_ranks
        self.search, self.num_kernels, self.num_ranks = search, kernels, ranks
        self.is_allowed = np.ones((kernels, ranks), dtype=np.int64)
        """Whether a kernel may have shards on a rank."""
        self.load = np.zeros(kernels)
        """What all its shards take, in ranks."""
        self.unit = np.ones(kernels, dtype=np.int64)
        """Ranks that it gets at once: one, or a node's;"""
        self.least, self.most, self.count = (np.zeros(kernels, dtype=np.int64) for _ in range(3))
        """the fewest and the most that it can use, and how many it gets."""
        self.busy = np.zeros(ranks)
        """What is expected on every rank, where kernels' shards are even,"""
        self.num_allowed = np.zeros(ranks, dtype=np.int64)
        """and how many kernels may be there."""

    def clear(self) -> None:
        """Expect nothing yet, and allow all kernels everywhere."""
        for kernel in range(self.num_kernels):
            self.load[kernel] = 0.0
            self.unit[kernel] = 1
            self.least[kernel] = self.most[kernel] = 0
            for rank in range(self.num_ranks):
                self.is_allowed[kernel, rank] = 1

    def expect(self, option: int, load: float) -> None:
        """Count an option among those to be placed; ``load``: share of a rank of each shard."""
        tables, local = self.search.tables, self.search.plan.local_ranks
        spread, kernel = tables.spread[option], tables.kernel[option]
        if spread in (EVERYWHERE, FIXED):
            return
        shards, least = tables.num_shards(option), tables.blocks[option]
        if spread == ON_NODES:
            self.unit[kernel] = local
            least *= local
        elif tables.one_node[option] != 0:
            self.unit[kernel] = least = local
        self.load[kernel] += load * shards
        self.least[kernel] = max(self.least[kernel], least)
        self.most[kernel] = min(self.num_ranks, self.most[kernel] + max(least, shards))

    def divide(self) -> bool:
        """Divide ranks among the kernels that are expected; return whether there are enough.

        With as few kernels on a rank as there can be, and each on ranks by its load.
        """
        needed = 0
        for kernel in range(self.num_kernels):
            needed += self.least[kernel]
            self.count[kernel] = self.least[kernel]
            for rank in range(self.num_ranks):
                self.is_allowed[kernel, rank] = self.least[kernel] == 0
        for rank in range(self.num_ranks):
            self.busy[rank] = 0.0
            self.num_allowed[rank] = 0
        most_kernels = (needed + self.num_ranks - 1) // self.num_ranks
        self._share_out(most_kernels * self.num_ranks - needed)
        kernel = self._next()
        while kernel >= 0:
            for _ in range(self.count[kernel] // self.unit[kernel]):
                if not self._allow(kernel, most_kernels):
                    return False
            self.count[kernel] = 0
            kernel = self._next()
        return True

    def _share_out(self, left: int) -> None:
        """Give what is left of all ranks to the kernels that have most load for each of theirs."""
        best = 0
        while best >= 0:
            best = -1
            for kernel in range(self.num_kernels):
                more = self.count[kernel] + self.unit[kernel]
                if self.least[kernel] == 0 or more > self.most[kernel] or self.unit[kernel] > left:
                    continue
                if best < 0 or self._is_fuller(kernel, best):
                    best = kernel
            if best >= 0:
                self.count[best] += self.unit[best]
                left -= self.unit[best]

    def _is_fuller(self, kernel: int, other: int) -> bool:
        """Return whether a kernel has more load for each of its ranks than another one."""
        return self.load[kernel] * self.count[other] > self.load[other] * self.count[kernel]

    def _next(self) -> int:
        """Return the kernel whose ranks are next: of whole nodes first, and most load; -1: none."""
        best = -1
        for kernel in range(self.num_kernels):
            if self.count[kernel] == 0:
                continue
            larger = best < 0 or self.unit[kernel] > self.unit[best]
            same = best >= 0 and self.unit[kernel] == self.unit[best]
            if larger or (same and self._is_fuller(kernel, best)):
                best = kernel
        return best

    def _allow(self, kernel: int, most_kernels: int) -> bool:
        """Allow a kernel on the rank or node that has least to do; return whether there was one."""
        unit, best, least = self.unit[kernel], -1, 0.0
        for first in range(0, self.num_ranks - unit + 1, unit):
            if self.is_allowed[kernel, first]:
                continue
            total, fullest = 0.0, 0
            for rank in range(first, first + unit):
                total += self.busy[rank]
                fullest = max(fullest, self.num_allowed[rank])
            if fullest < most_kernels and (best < 0 or total < least):
                best, least = first, total
        if best < 0:
            return False
        for rank in range(best, best + unit):
            self.is_allowed[kernel, rank] = 1
            self.num_allowed[rank] += 1
            self.busy[rank] += self.load[kernel] / self.count[kernel]
        return True
