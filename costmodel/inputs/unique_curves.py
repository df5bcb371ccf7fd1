"""Distinct rows among the lookups of tables, tabulated, and what caches make of them.

One function answers every question: U(n), the expected number of distinct rows among n lookups
of a table. A least-recently-used cache of C rows holds the distinct rows of the last T lookups,
U(T) = C (Che's approximation), so

* misses of n lookups that start from an empty cache:  U(n) if n <= T, else C + (n - T) U'(T);
* distinct rows of n lookups that a warm cache lacks:  U(T + n) - U(T), hit by n U'(T) of them.

``UniqueCurves`` answers for many shards at once, each with a curve of its own; a search asks for
ten thousand of them before its first plan.

References
----------
Che, Tung, Wang: Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002.

"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array

Numbers: TypeAlias = float | Array
GRID: Array = np.exp2(np.arange(177) / 4)
"""Lookups at which curves are tabulated: four points per octave up to 2**44."""
_FROM_ZERO: Array = np.append(0.0, GRID)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UniqueCurves:
    """U(n) of some shards; n counts the lookups of each one's whole table.

    Straight between the points of the grid, through the origin, and constant after the last one.
    Arguments are one number for all shards or an array of shape (shards,), and so are results.
    """

    unique: Array
    """Expected distinct rows of every different curve at 0 and on the grid, shape (curves, 178);
    concave and increasing."""
    curve: NDArray[np.intp]
    """The curve of every shard, shape (shards,)."""
    share: Array
    """Share of the curve's rows that the shard has, shape (shards,)."""

    @classmethod
    def of(cls, curves: Sequence["UniqueCurve"]) -> "UniqueCurves":
        """Return the curves of some shards, curves that differ by their share alone only once."""
        places: dict[int, int] = {}
        different: list[Array] = []
        which = []
        for each in curves:
            key = id(each.unique)
            if key not in places:
                places[key] = len(different)
                different.append(each.unique)
            which.append(places[key])
        return cls(
            unique=np.array(different).reshape(len(different), len(_FROM_ZERO)),
            curve=np.array(which, dtype=np.intp),
            share=np.array([each.share for each in curves]),
        )

    def unique_rows(self, num_lookups: Numbers) -> Array:
        """Return the expected distinct rows among that many lookups of the table."""
        at = np.broadcast_to(np.minimum(num_lookups, GRID[-1]), self.curve.shape)
        right = np.searchsorted(_FROM_ZERO[:-1], at, side="right")
        step = _FROM_ZERO[right] - _FROM_ZERO[right - 1]
        low, high = self.unique[self.curve, right - 1], self.unique[self.curve, right]
        rows: Array = self.share * (low + (high - low) / step * (at - _FROM_ZERO[right - 1]))
        return rows

    def cold_misses(self, num_lookups: Numbers, cache_rows: Numbers) -> Array:
        """Return how many lookups of a batch miss in a cache of so many rows that starts empty."""
        filled = self.filling_lookups(cache_rows)
        unique = self.unique_rows(num_lookups)
        until = np.minimum(filled, GRID[-1])  # finite
        seen = self.unique_rows(until)
        beyond = np.maximum(unique, seen + (num_lookups - until) * self._slope(until))
        return np.where(num_lookups <= filled, unique, beyond)

    def warm_misses(self, num_lookups: Numbers, cache_rows: Numbers) -> Array:
        """Return distinct rows of a batch that a cache warmed by earlier batches lacks."""
        filled = self.filling_lookups(cache_rows)
        until = np.minimum(filled, GRID[-1])
        missed = self.unique_rows(until + num_lookups) - self.unique_rows(until)
        return np.where(np.isinf(filled), 0.0, missed)

    def warm_reads(self, num_lookups: Numbers, cache_rows: Numbers) -> Array:
        """Return how many lookups of a batch ask for rows that a cache warmed by others lacks."""
        until = np.minimum(self.filling_lookups(cache_rows), GRID[-1])
        missed = self.warm_misses(num_lookups, cache_rows)
        return np.where(missed > 0, np.maximum(missed, num_lookups * self._slope(until)), 0.0)

    def _slope(self, num_lookups: Array) -> Array:
        """Return U', the share of lookups that hit a new row after so many."""
        step = np.where(num_lookups > 0, 0.01 * num_lookups, 1.0)
        slope: Array = (self.unique_rows(num_lookups + step) - self.unique_rows(num_lookups)) / step
        return slope

    def kept_rows(self, num_lookups: Numbers, cache_rows: Numbers, batches: Numbers) -> Array:
        """Return how many distinct rows of a batch find a place in a cache of that many rows.

        The rows of so many consecutive batches, this one included, may not be evicted while it
        takes these in. Where the cache has fewer places than the ``batches`` have distinct rows,
        every batch keeps the same share of its own.
        """
        unique, together = self.unique_rows(num_lookups), self.unique_rows(batches * num_lookups)
        return unique * np.minimum(1.0, cache_rows / np.maximum(together, 1e-300))

    def filling_lookups(self, cache_rows: Numbers) -> Array:
        """Return T, the lookups after which that many distinct rows have been seen; inf: never."""
        rows = np.broadcast_to(cache_rows, self.curve.shape) / self.share
        most = self.unique[self.curve, -1]
        never = rows >= most * (1 - 1e-9)
        inside = np.where(never, 0.0, rows)
        right = np.minimum(self._after(inside), len(GRID))
        low, high = self.unique[self.curve, right - 1], self.unique[self.curve, right]
        begin, end = _FROM_ZERO[right - 1], _FROM_ZERO[right]
        along = (inside - low) / np.where(high > low, high - low, 1.0)
        return np.where(never, np.inf, begin + along * (end - begin))

    def _after(self, rows: Array) -> NDArray[np.intp]:
        """Return the first point of every curve that is above so many rows."""
        low = np.ones(len(rows), dtype=np.intp)
        high = np.full(len(rows), len(_FROM_ZERO))
        while (low < high).any():
            middle = (low + high) // 2
            above = self.unique[self.curve, np.minimum(middle, len(GRID))] > rows
            open_ = low < high
            high = np.where(open_ & above, middle, high)
            low = np.where(open_ & ~above, middle + 1, low)
        return low


@dataclass(frozen=True, kw_only=True, eq=False)
class UniqueCurve:
    """U(n) of a table, or of a range of its rows; n counts the whole table's lookups."""

    unique: Array
    """Expected distinct rows at 0 and on the grid, shape (178,)."""
    share: float = 1.0
    """Share of these rows that the range has."""

    @cached_property
    def _alone(self) -> UniqueCurves:
        """The curve as ``UniqueCurves`` of one shard."""
        return UniqueCurves.of([self])

    def unique_rows(self, num_lookups: float) -> float:
        """Return the expected distinct rows among that many lookups of the table."""
        return float(self._alone.unique_rows(num_lookups)[0])

    def cold_misses(self, num_lookups: float, cache_rows: float) -> float:
        """Return misses of a batch in a cache of that many rows that starts empty."""
        return float(self._alone.cold_misses(num_lookups, cache_rows)[0])

    def warm_misses(self, num_lookups: float, cache_rows: float) -> float:
        """Return distinct rows of a batch that a cache warmed by earlier batches lacks."""
        return float(self._alone.warm_misses(num_lookups, cache_rows)[0])

    def warm_reads(self, num_lookups: float, cache_rows: float) -> float:
        """Return the lookups of a batch whose rows a cache warmed by earlier batches lacks."""
        return float(self._alone.warm_reads(num_lookups, cache_rows)[0])

    def kept_rows(self, num_lookups: float, cache_rows: float, batches: int) -> float:
        """Return how many distinct rows of a batch find a place in a cache of that many rows."""
        return float(self._alone.kept_rows(num_lookups, cache_rows, batches)[0])

    def filling_lookups(self, cache_rows: float) -> float:
        """Return T, the lookups after which that many distinct rows have been seen; inf: never."""
        return float(self._alone.filling_lookups(cache_rows)[0])
