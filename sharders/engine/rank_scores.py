"""How full every rank is while a plan is made, so that the next shard goes where it adds least.

A step waits for the rank that looks up longest and, in every sharding group's collectives, for the
one that sends most; and no rank holds more than its memory. Lookups include the launches of every
kernel but a rank's first, as all ranks have one. For each of these, a rank's score is
exp(``STEEPNESS`` x the share that is taken), where a share of 1 is what all ranks take if they are
even. A shard goes where it adds least to the sum of all scores, each weighted by the seconds that
it stands for: potential functions like this are usual where several loads are balanced at once.
"""

import math

import numpy as np

from sharders.engine.search_state import SearchState

STEEPNESS: float = 6.0
"""Steepness of scores."""
MOST_SHARE: float = 25.0
"""Largest share that is told apart: exponentials grow out of range."""
MOST_SCORE: float = math.exp(STEEPNESS * MOST_SHARE)
NO_TIME: float = 1e-30
"""Seconds that stand for 0 where shares of them are taken."""


class RankScores:
    """The scores of all ranks; ``search.loads`` counts the bytes left."""

    def __init__(self, search: SearchState) -> None:
        tables, num_ranks, groups = search.tables, search.plan.num_ranks, search.loads.num_groups
        self.search, self.num_ranks, self.num_groups = search, num_ranks, groups
        self.load_score, self.memory_score = np.ones(num_ranks), np.ones(num_ranks)
        self.sent_score = np.ones((groups, num_ranks))
        rates = np.asarray(search.loads.exchange_rates).reshape(groups, -1)
        first = np.asarray(tables.rows)[np.asarray(tables.first)[:-1]]
        features = np.asarray(tables.features)[first]
        self.sent = np.array((features * rates[np.asarray(tables.group)]).sum(axis=1))
        """Seconds to exchange ids and outputs of every option's first shard."""
        self.even_load, self.even_sent = NO_TIME, np.full(groups, NO_TIME)
        """Seconds of lookups, and of every group's exchanges, on each rank if all are even,"""
        self.largest = np.zeros(groups)
        """Seconds of each group's exchanges of its largest shard, the least that an even rank
        takes."""
        self.capacity = 1.0
        """Bytes of a rank."""
        self.num_kernels = np.zeros(num_ranks, dtype=np.int64)
        """Number of lookup kernels with shards on every rank."""
        self.is_busy = np.zeros((search.loads.num_kernels, num_ranks), dtype=np.int64)
        """Whether each kernel has shards on every rank, (kernels, ranks)."""
        self.group = self.kernel = 0
        """Group and lookup kernel of the present shard."""
        self.bytes = 0.0
        """Bytes of the present shard."""
        self.sent_time = NO_TIME
        """Seconds of its group's exchanges on the fullest rank if ranks are even."""
        self.load_factor = self.memory_factor = self.sent_factor = self.launch_factor = 1.0
        """Factors by which it multiplies the scores of its rank."""

    def clear(self, capacity: float) -> None:
        """Forget expected options; ``capacity`` is the bytes of a rank."""
        self.capacity, self.even_load = capacity, NO_TIME
        for group in range(self.num_groups):
            self.even_sent[group] = NO_TIME
            self.largest[group] = 0.0

    def expect(self, option: int, load: float) -> None:
        """Add an option that will be placed; ``load`` is the seconds of each of its shards."""
        tables = self.search.tables
        group, shards = tables.group[option], tables.num_shards(option)
        self.even_load += load * shards / self.num_ranks
        self.even_sent[group] += self.sent[option] * shards / self.num_ranks
        self.largest[group] = max(self.largest[group], self.sent[option])

    def begin(self) -> None:
        """Empty all ranks."""
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
        """Return the larger of a shard's shares of a rank's time and of its memory."""
        return max(load / self.even_load, size / self.capacity)

    def consider(self, option: int, load: float, size: float) -> None:
        """Set the option being placed.

        ``load`` and ``size`` are seconds and bytes of each shard.
        """
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
        """Return the factor of the score of a rank's lookups."""
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
    """Return the factor of a score when a share is taken."""
    return math.exp(STEEPNESS * min(share, MOST_SHARE))
