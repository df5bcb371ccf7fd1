"""How full every rank is while a plan is made, so that what comes next goes where least is taken.

A step waits for the rank that looks up longest and, in every sharding group's collectives, for the
one that sends most; and no rank holds more than its memory. Lookups include the launches of every
kernel but a rank's first, as all ranks have one. Of each of these, a rank's score is
exp(``STEEPNESS`` x the share that is taken), where a share of 1 is what all ranks take if they are
even. A shard goes where it adds least to the sum of all scores, each counted in the seconds that it
stands for: potential functions like this are usual where several loads are balanced at once.

While lookups alone decided, and memory was but a limit, plans of linear programs lost most of their
replicas for want of room where memory is tight: at 830 tables on 64 GPUs they began with 85 ms,
where they begin with 54.4 now and the best known is 51.4. Steps ended 2.0, 0.8 and 0.3% lower after
1, 3 and 10 CPU seconds in the mean of 23 problems (two seeds). With launches, 2.0, 2.5 and 1.7%
lower on 12 problems of several kinds of tables and small batches, and 24 others as low.
"""

import math

import numpy as np

from sharders.engine.search_state import SearchState

STEEPNESS: float = 6.0
"""With any from 3 to 20, runs from these plans end as low (ten problems, three seeds)."""
MOST_SHARE: float = 25.0
"""Shares beyond which all count alike: exponentials grow out of range."""
MOST_SCORE: float = math.exp(STEEPNESS * MOST_SHARE)
NO_TIME: float = 1e-30
"""Seconds that stand for none where shares of them are taken."""


class RankScores:
    """The scores of all ranks; how many bytes are left is counted by ``search.loads``."""

    def __init__(self, search: SearchState) -> None:
        tables, num_ranks, groups = search.tables, search.plan.num_ranks, search.loads.num_groups
        self.search, self.num_ranks, self.num_groups = search, num_ranks, groups
        self.load_score, self.memory_score = np.ones(num_ranks), np.ones(num_ranks)
        self.sent_score = np.ones((groups, num_ranks))
        rates = np.asarray(search.loads.exchange_rates).reshape(groups, -1)
        first = np.asarray(tables.rows)[np.asarray(tables.first)[:-1]]
        features = np.asarray(tables.features)[first]
        self.sent = np.array((features * rates[np.asarray(tables.group)]).sum(axis=1))
        """Seconds that ids and outputs of every option's first shard take to be exchanged."""
        self.even_load, self.even_sent = NO_TIME, np.full(groups, NO_TIME)
        """Seconds of lookups, and of every group's exchanges, on each rank if all are even,"""
        self.largest = np.zeros(groups)
        """and the latter of the largest shard: even ranks take as much at least."""
        self.capacity = 1.0
        """Bytes of a rank."""
        self.num_kernels = np.zeros(num_ranks, dtype=np.int64)
        """Lookup kernels with shards on every rank,"""
        self.is_busy = np.zeros((search.loads.num_kernels, num_ranks), dtype=np.int64)
        """and whether each of them has some."""
        self.group = self.kernel = 0
        """The group and the lookup kernel of the shard being placed,"""
        self.bytes = 0.0
        """its bytes,"""
        self.sent_time = NO_TIME
        """the seconds of its group's exchanges on the fullest rank if ranks are even,"""
        self.load_factor = self.memory_factor = self.sent_factor = self.launch_factor = 1.0
        """and what it multiplies the scores of its rank by."""

    def clear(self, capacity: float) -> None:
        """Expect nothing yet; ``capacity``: bytes of a rank."""
        self.capacity, self.even_load = capacity, NO_TIME
        for group in range(self.num_groups):
            self.even_sent[group] = NO_TIME
            self.largest[group] = 0.0

    def expect(self, option: int, load: float) -> None:
        """Count an option among those to be placed; ``load``: seconds of each of its shards."""
        tables = self.search.tables
        group, shards = tables.group[option], tables.num_shards(option)
        self.even_load += load * shards / self.num_ranks
        self.even_sent[group] += self.sent[option] * shards / self.num_ranks
        self.largest[group] = max(self.largest[group], self.sent[option])

    def begin(self) -> None:
        """Begin with empty ranks."""
        loads = self.search.loads
        for rank in range(self.num_ranks):
            self.load_score[rank] = 1.0
            self.num_kernels[rank] = 0
            for kernel in range(self.is_busy.shape[0]):
                self.is_busy[kernel, rank] = 0
            self.memory_score[rank] = _factor(1 - loads.rooms[rank] / self.capacity)
            for group in range(self.num_groups):
                self.sent_score[group, rank] = 1.0

    def share(self, load: float, size: float) -> float:
        """Return the most that a shard takes of a rank: of its time or of its memory."""
        return max(load / self.even_load, size / self.capacity)

    def consider(self, option: int, load: float, size: float) -> None:
        """Let scores be of an option; ``load`` and ``size``: seconds and bytes of each shard."""
        self.bytes, self.group = size, self.search.tables.group[option]
        self.kernel = self.search.tables.kernel[option]
        launch = self.search.loads.launch_seconds[self.kernel]
        self.load_factor = _factor(load / self.even_load)
        self.launch_factor = _factor((load + launch) / self.even_load)
        self.memory_factor = _factor(size / self.capacity)
        self.sent_time = max(self.even_sent[self.group], self.largest[self.group])
        self.sent_factor = _factor(self.sent[option] / self.sent_time)

    def added(self, rank: int) -> float:
        """Return what one of its shards adds to the sum of scores on a rank."""
        total = self.even_load * (self._load_factor(rank) - 1) * self.load_score[rank]
        total += self.sent_time * (self.sent_factor - 1) * self.sent_score[self.group, rank]
        memory = (self.memory_factor - 1) * self.memory_score[rank]
        return total + (self.even_load + self.sent_time) * memory

    def _load_factor(self, rank: int) -> float:
        """Return what the score of a rank's lookups is multiplied by."""
        if self.num_kernels[rank] > 0 and not self.is_busy[self.kernel, rank]:
            return self.launch_factor
        return self.load_factor

    def take(self, rank: int) -> None:
        """Put one of its shards on a rank."""
        group, load = self.group, self.load_score[rank] * self._load_factor(rank)
        self.load_score[rank] = min(MOST_SCORE, load)
        if not self.is_busy[self.kernel, rank]:
            self.is_busy[self.kernel, rank] = 1
            self.num_kernels[rank] += 1
        memory = self.memory_score[rank] * self.memory_factor
        self.memory_score[rank] = min(MOST_SCORE, memory)
        sent = self.sent_score[group, rank] * self.sent_factor
        self.sent_score[group, rank] = min(MOST_SCORE, sent)


def _factor(share: float) -> float:
    """Return what a score is multiplied by if a share is taken."""
    return math.exp(STEEPNESS * min(share, MOST_SHARE))
