"""Hits of ids in a log of any length, in bounded memory: all ids, or a share drawn by their hash.

While at most so many ids were seen, all are kept, with exact hits. Then only those whose hash ends
in a zero bit are kept, then in two, and so on: every id kept still has its exact hits, and stands
for 2^level ids. Distinct ids are so told to 1 / sqrt(ids kept), 0.4% of 2^16, and so is how many
were hit once or twice. A few hot ids take much of the lookups and may not be drawn: they are
counted apart, by what they have in every batch where they are among the hottest.

References
----------
Gibbons, VLDB 2001: distinct sampling. Metwally et al., ICDT 2005: few counters for the hottest.

"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]

MOST_KEPT, LEAST_KEPT = 2**20, 2**16
"""Ids of one table that are kept at most, where few and where many tables are counted."""
ALL_KEPT = 2**22
"""Ids that all tables together keep: 64 MiB, and some times as much while they are merged."""
_BATCH_HOT, _HOT = 2048, 8192
"""Hottest ids of a batch that are counted apart, and counters kept for them."""
_HOT_SHARE = 5e-4
"""Share of all lookups from which an id's counter is exact enough to be used: such an id is among
the 2,048 hottest of nearly every batch."""
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def mixed(keys: Keys) -> NDArray[np.uint64]:
    """Return 64 bits for every key, each depending on all of its bits.

    The finaliser of splitmix64 (Steele et al., OOPSLA 2014).
    """
    bits = keys.astype(np.int64, copy=False).view(np.uint64)
    for shift, factor in zip(_SHIFTS, _MIX, strict=False):
        bits = (bits ^ (bits >> shift)) * factor
    return bits ^ (bits >> _SHIFTS[2])


def added(keys: Keys, hits: NDArray[np.int64]) -> tuple[Keys, NDArray[np.int64]]:
    """Return distinct keys in order, and the sum of the hits of each."""
    if not len(keys):
        return keys, hits
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.add.reduceat(hits[order], starts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spectrum:
    """Distinct ids of a log and their hits; each stands for ``weights`` ids like it."""

    keys: Keys
    hits: NDArray[np.float64]
    weights: NDArray[np.float64]
    exact: bool
    """Whether all ids are there, with weight 1."""

    @property
    def num_distinct(self) -> float:
        """Number of distinct ids."""
        return float(self.weights.sum())

    @property
    def lookups(self) -> float:
        """Number of lookups."""
        return float(self.weights @ self.hits)

    def hit(self, times: int) -> float:
        """Return how many ids were hit so many times."""
        return float(self.weights[np.rint(self.hits) == times].sum())

    @property
    def unseen(self) -> float:
        """Least number of ids that exist and were not seen, by Chao's first estimate.

        f1 (f1 - 1) / (2 (f2 + 1)), of the numbers of ids seen once and twice (Chao 1984).
        """
        once = self.hit(1)
        return once * max(once - 1.0, 0.0) / (2.0 * (self.hit(2) + 1.0))

    @property
    def coverage(self) -> float:
        """Share of all lookups, of future ones, too, that are of ids seen (Good 1953, Turing)."""
        return 1.0 - self.hit(1) / max(self.lookups, 1.0)

    def unique_rows(self, lookups: float) -> float:
        """Return the expected distinct ids of so many lookups drawn from all, without order."""
        share = min(1.0, lookups / max(self.lookups, 1.0))
        if share == 1.0:
            return self.num_distinct
        return float(self.weights @ -np.expm1(self.hits * np.log1p(-share)))

    def lasting(self, share: float) -> int:
        """Return how many of the hottest ids take this share of all lookups."""
        order = np.argsort(-self.hits, kind="stable")
        taken = np.cumsum((self.hits * self.weights)[order])
        place = int(np.searchsorted(taken, share * taken[-1] * (1 - 1e-12)))
        return round(float(np.cumsum(self.weights[order])[min(place, len(taken) - 1)]))


class KeyCounts:
    """Counts the hits of ids, batch by batch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._level = 0
        self._keys, self._hits = np.empty(0, np.int64), np.empty(0, np.int64)
        self._waiting: list[tuple[Keys, NDArray[np.int64]]] = []
        self._num_waiting = 0
        self._hot = (self._keys, self._hits)
        self._lookups = 0

    def add(self, keys: Keys, hits: NDArray[np.int64]) -> None:
        """Count the distinct keys of a batch, with their hits."""
        self._lookups += int(hits.sum())
        if self._level:
            self._add_hot(keys, hits)
            drawn = _drawn(keys, self._level)
            keys, hits = keys[drawn], hits[drawn]
        self._waiting.append((keys, hits))
        self._num_waiting += len(keys)
        if self._num_waiting >= self._most:
            self._merge()

    def spectrum(self) -> Spectrum:
        """Return what was counted."""
        self._merge()
        weight = 2.0**self._level
        if not self._level:
            weights = np.ones(len(self._keys))
            hits = self._hits.astype(np.float64)
            return Spectrum(keys=self._keys, hits=hits, weights=weights, exact=True)
        hottest = self._hot[1] >= _HOT_SHARE * self._lookups
        hot_keys, hot_hits = self._hot[0][hottest], self._hot[1][hottest]
        rest = ~np.isin(self._keys, hot_keys)
        kept, hits = self._keys[rest], self._hits[rest].astype(np.float64)
        distinct = len(self._keys) * weight
        weights = np.full(len(kept), max(distinct - len(hot_keys), 1.0) / max(len(kept), 1))
        # the hits of hot and other ids add up to all lookups; hits of 1 and 2 stay whole
        left = self._lookups - float(hot_hits.sum())
        many = hits > 2
        few, sampled = float(weights[~many] @ hits[~many]), float(weights[many] @ hits[many])
        if sampled > 0 and left > few:
            hits[many] = np.maximum(hits[many] * ((left - few) / sampled), 2.6)
        return Spectrum(
            keys=np.concatenate((hot_keys, kept)),
            hits=np.concatenate((hot_hits.astype(np.float64), hits)),
            weights=np.concatenate((np.ones(len(hot_keys)), weights)),
            exact=False,
        )

    def _merge(self) -> None:
        keys, hits = added(
            np.concatenate([self._keys, *(part for part, _ in self._waiting)]),
            np.concatenate([self._hits, *(part for _, part in self._waiting)]),
        )
        self._waiting, self._num_waiting = [], 0
        if len(keys) > self._most and not self._level:
            self._hot = _hottest(keys, hits, _HOT)
        while len(keys) > self._most:
            self._level += 1
            drawn = _drawn(keys, self._level)
            keys, hits = keys[drawn], hits[drawn]
        self._keys, self._hits = keys, hits

    def _add_hot(self, keys: Keys, hits: NDArray[np.int64]) -> None:
        more, often = _hottest(keys, hits, _BATCH_HOT)
        both = added(np.concatenate((self._hot[0], more)), np.concatenate((self._hot[1], often)))
        self._hot = _hottest(*both, _HOT)


def _drawn(keys: Keys, level: int) -> NDArray[np.bool_]:
    drawn: NDArray[np.bool_] = (mixed(keys) & np.uint64((1 << level) - 1)) == 0
    return drawn


def _hottest(keys: Keys, hits: NDArray[np.int64], most: int) -> tuple[Keys, NDArray[np.int64]]:
    if len(keys) <= most:
        return keys, hits
    chosen = np.argpartition(-hits, most)[:most]
    return keys[chosen], hits[chosen]
