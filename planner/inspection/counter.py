"""Counts a log block by block: facts of columns, batches of tables, batches of ranks."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.inspection.asked import Asked
from planner.inspection.block_ids import IdBlock, Ids, head_samples
from planner.inspection.column_facts import ColumnFacts, told_padding
from planner.inspection.counting import Moments, TableCounts
from planner.inspection.key_counts import ALL_KEPT, LEAST_KEPT, MOST_KEPT
from planner.inspection.recorded import Recorded

_THREADS = 4

Watch: TypeAlias = Callable[[int, int | None], bool]
"""Is told the samples counted and those there are (None: unknown); returns whether to go on."""


@dataclass(slots=True)
class ColumnCounter:
    """What was counted so far of every column and table."""

    features: Mapping[str, Sequence[str]]
    """By table, its columns."""
    facts: dict[str, ColumnFacts]
    tables: dict[str, TableCounts]
    """Tables whose columns are all of whole numbers or texts."""
    ranks: "RankBatches | None"
    num_samples: int = 0
    interrupted: bool = False

    def count(self, recorded: Recorded, batch_samples: int, watch: Watch | None) -> None:
        """Count all batches, or as many as the watch lets pass.

        A last batch that is not whole counts as one only if it is the only one.
        """
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            for block in recorded.blocks(batch_samples):
                is_batch = block.num_samples == batch_samples or not self.num_samples
                self._take(block, pool, is_batch=is_batch)
                self.num_samples += block.num_samples
                if watch is not None and not watch(self.num_samples, recorded.num_rows):
                    self.interrupted = True
                    return

    def _take(self, block: IdBlock, pool: ThreadPoolExecutor, *, is_batch: bool) -> None:
        num_samples = block.num_samples

        def count_column(name: str) -> Ids | None:
            return self.facts[name].take(block.ids[name], num_samples)

        ids = dict(zip(self.facts, pool.map(count_column, self.facts), strict=True))

        def of_table(name: str) -> list[Ids]:
            return [each for column in self.features[name] if (each := ids[column]) is not None]

        for name in list(self.tables):
            if len(of_table(name)) < len(self.features[name]):
                del self.tables[name]

        def count_table(name: str) -> None:
            self.tables[name].take(of_table(name), num_samples, is_batch=is_batch)

        for _ in pool.map(count_table, list(self.tables)):
            pass  # errors are raised here
        if self.ranks is not None:
            self.ranks.take([each for name in self.tables for each in of_table(name)], num_samples)


def counter_of(
    recorded: Recorded,
    asked: Asked,
    features: Mapping[str, Sequence[str]],
    local_batch_size: int | None,
) -> ColumnCounter:
    """Return what counts tables of some columns; of batches of ranks, where their size is known."""
    most = min(MOST_KEPT, max(LEAST_KEPT, ALL_KEPT // max(len(features), 1)))
    head = next(recorded.blocks(head_samples(recorded.row_values)), IdBlock(num_samples=0, ids={}))
    facts = {}
    for place, (name, column) in enumerate(recorded.columns.items()):
        padding = asked.padding.get(name)
        if padding is None and column.is_listed:
            padding = asked.padding.get("")
        if padding is None and not (column.is_text or column.is_given) and name in head.ids:
            padding = told_padding(head.ids[name])
        facts[name] = ColumnFacts(
            name,
            place,
            is_text=column.is_text,
            is_listed=column.is_listed,
            is_given=column.is_given,
            is_prepared=column.is_prepared,
            padding=padding,
        )
    tables = {}
    for name, columns in features.items():
        hashed = [asked.hashed[each] for each in (name, *columns) if each in asked.hashed]
        tables[name] = TableCounts(most, hashed[0] if hashed else None)
    ranks = RankBatches(local_batch_size) if local_batch_size else None
    return ColumnCounter(features, facts, tables, ranks)


@dataclass(slots=True)
class RankBatches:
    """Ids in the batches of ranks, which are samples recorded one after the other.

    All features count together, so that lengths that go together, in a sample or over time, show.
    """

    samples: int
    """Samples of a rank's batch."""
    ids: Moments = field(default_factory=Moments)
    _waiting: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def take(self, features: Sequence[Ids], num_samples: int) -> None:
        """Take samples of all features."""
        sums = np.zeros(num_samples)
        for feature in features:
            sums += 1 if feature.lengths is None else feature.lengths
        waiting = np.concatenate((self._waiting, sums))
        whole = len(waiting) // self.samples * self.samples
        self.ids.take(waiting[:whole].reshape(-1, self.samples).sum(axis=1))
        self._waiting = waiting[whole:]
