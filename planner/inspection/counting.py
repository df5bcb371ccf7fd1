"""Counts batches of one table, one after the other: reuse in each, lengths, and hits over all."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.inspection.block_ids import Ids
from planner.inspection.key_counts import KeyCounts, Keys, mixed

MOST_BINS = 64
"""Bins of hits by powers of two: of 1, 2, 3-4, ... to 2^63."""
MOST_LENGTHS = 1024
"""Lengths that are counted apart; longer ones count as this one."""
FIRST_HALVES = 8
"""Batches whose first halves are counted, too."""
_MOST_BATCHES = 2**15
"""Batches whose distinct rows are kept apart; of more, neighbours are averaged."""


@dataclass(slots=True)
class Moments:
    """Number, sum and sum of squares of some numbers."""

    number: int = 0
    total: float = 0.0
    squares: float = 0.0

    def take(self, values: NDArray[np.float64], times: int = 1) -> None:
        """Take more numbers, each as often as given."""
        self.number += times * len(values)
        self.total += times * float(values.sum())
        self.squares += times * float(np.square(values).sum())

    @property
    def mean(self) -> float:
        """Their mean."""
        return self.total / max(self.number, 1)

    def std(self, ddof: int = 0) -> float:
        """Return their standard deviation."""
        spread = self.squares - self.number * self.mean**2
        return float(np.sqrt(max(spread, 0.0) / max(self.number - ddof, 1)))


@dataclass(slots=True)
class TableCounts:
    """What the batches so far say of one table."""

    most_kept: int
    hash_rows: int | None = None
    """Rows that ids are hashed to before they are counted; None: they are counted as they are."""
    log: KeyCounts = field(init=False)
    lengths: Moments = field(default_factory=Moments)
    length_counts: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(MOST_LENGTHS + 1, np.int64)
    )
    longest_bag: int = 0
    num_batches: int = 0
    """Whole batches with ids."""
    lookups: int = 0
    """Lookups in them."""
    unique: list[float] = field(default_factory=list)
    """Distinct rows of each, or of some neighbours on average."""
    together: int = 1
    """How many neighbours each of ``unique`` stands for."""
    rows_by_hits: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MOST_BINS))
    """Distinct rows of batches in the bins of hits."""
    hits_by_hits: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MOST_BINS))
    """And their hits."""
    halves: list[tuple[int, int]] = field(default_factory=list)
    """Lookups and distinct rows of the first halves of the first batches."""
    _rest: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = KeyCounts(self.most_kept)

    def take(self, features: Sequence[Ids], num_samples: int, *, is_batch: bool) -> None:
        """Count a batch: the ids of all features of the table.

        A rest that is no whole batch counts for lengths and hits, as a batch only if it is the
        only one.
        """
        self._take_lengths(features, num_samples)
        keys = self._keys([feature.keys for feature in features])
        if not len(keys):
            return
        distinct, hits = counted(keys)
        self.log.add(distinct, hits)
        if not is_batch and self.num_batches:
            return
        self._take_reuse(hits)
        if len(self.halves) < FIRST_HALVES:
            half = self._keys([feature.first(num_samples // 2) for feature in features])
            self.halves.append((len(half), len(counted(half)[0])))

    def _keys(self, parts: Sequence[Keys]) -> Keys:
        keys = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self.hash_rows is None:
            return keys
        hashed: Keys = (mixed(keys) % np.uint64(self.hash_rows)).astype(np.int64)
        return hashed

    def _take_reuse(self, hits: NDArray[np.int64]) -> None:
        self.num_batches += 1
        self.lookups += int(hits.sum())
        bins = np.frexp(hits - 1.0)[1]
        self.rows_by_hits += np.bincount(bins, minlength=MOST_BINS)
        self.hits_by_hits += np.bincount(bins, weights=hits, minlength=MOST_BINS)
        self._rest.append(len(hits))
        if len(self._rest) == self.together:
            self.unique.append(sum(self._rest) / self.together)
            self._rest = []
        if len(self.unique) == _MOST_BATCHES:
            pairs = np.array(self.unique).reshape(-1, 2)
            self.unique, self.together = pairs.mean(axis=1).tolist(), 2 * self.together

    def _take_lengths(self, features: Sequence[Ids], num_samples: int) -> None:
        if all(feature.lengths is None for feature in features):
            self.lengths.take(np.array([float(len(features))]), num_samples)
            self.length_counts[min(len(features), MOST_LENGTHS)] += num_samples
            self.longest_bag = max(self.longest_bag, 1)
            return
        total = np.zeros(num_samples)
        for feature in features:
            lengths = feature.lengths
            total += 1 if lengths is None else lengths
            longest = 1 if lengths is None else int(lengths.max(initial=0))
            self.longest_bag = max(self.longest_bag, longest)
        self.lengths.take(total)
        short = np.minimum(total, MOST_LENGTHS).astype(np.int64)
        self.length_counts += np.bincount(short, minlength=MOST_LENGTHS + 1)


def counted(keys: Keys) -> tuple[Keys, NDArray[np.int64]]:
    """Return the distinct keys of a batch, and the hits of each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.value_counts(pa.array(keys))
    distinct, hits = (found.field(place).to_numpy(zero_copy_only=False) for place in (0, 1))
    return distinct.astype(np.int64, copy=False), hits
