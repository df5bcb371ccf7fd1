"""How the ids of a batch spread over the rows of a table, and what caches make of it.

One function answers every question: U(n), the expected number of distinct rows among n lookups
of a table. A least-recently-used cache of C rows holds the distinct rows of the last T lookups,
U(T) = C (Che's approximation), so

* misses of n lookups that start from an empty cache:  U(n) if n <= T, else C + (n - T) U'(T);
* distinct rows of n lookups that a warm cache lacks:  U(T + n) - U(T).

References
----------
Che, Tung, Wang: Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002.

"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf:
    """The k-th most popular row is hit with probability proportional to k ** -exponent.

    The default exponent, 1.05, is the power law of the public H100 embedding benchmark
    (NVIDIA/recsys-examples, corelib/dynamicemb); 0 is uniform.
    """

    exponent: float = 1.05
    hot_rows_first: bool = False
    """Whether popular rows have small ids; otherwise ids are taken as hashed, so that every
    range of rows gets its share of hot ones."""

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 5:
            raise ValueError(f"zipf exponent must be in [0, 5], got {self.exponent}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseHistogram:
    """How often each distinct row is hit in one batch, in bins 1, 2, 3-4, 5-8, 9-16, ..."""

    row_shares: tuple[float, ...]
    """Share of the distinct rows in every bin; normalised to sum to 1."""
    num_lookups: float
    """Lookups of the table in the batch that was counted."""

    def __post_init__(self) -> None:
        if not self.row_shares or min(self.row_shares) < 0 or sum(self.row_shares) <= 0:
            raise ValueError("reuse_histogram needs shares of at least 0, not all 0")
        if not self.num_lookups >= 1:
            raise ValueError(f"num_lookups must be at least 1, got {self.num_lookups}")

    @property
    def mean_reuse(self) -> float:
        """Lookups per distinct row."""
        weighted = sum(s * c for s, c in zip(self.row_shares, self.bin_means(), strict=True))
        return weighted / sum(self.row_shares)

    def bin_means(self) -> tuple[float, ...]:
        """Return the mean hits of a row in every bin: 1, 2, then h / (sum of 1/k over the bin).

        That is, k hits are as common as 1/k inside a bin h+1 .. 2h; the sum is taken as a midpoint
        integral. The open dataset (tables_2021.csv: lookups over rows of a bin) has 3.4, 6.2, 11.7
        and 22.3 in the bins 3-4 to 17-32; this gives 3.4, 6.3, 12.0 and 23.6.
        """
        halves = (2.0 ** (b - 1) for b in range(2, len(self.row_shares)))
        upper = tuple(h / log((2 * h + 0.5) / (h + 0.5)) for h in halves)
        return ((1.0, 2.0, *upper))[: len(self.row_shares)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueFraction:
    """Distinct rows over lookups in one batch; becomes the Zipf law that yields it."""

    fraction: float
    num_lookups: float
    """Lookups of the table in the batch that was counted; a workload file that does not say
    means its local batch."""

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"unique_fraction must be in (0, 1], got {self.fraction}")
        if not self.num_lookups >= 1:
            raise ValueError(f"num_lookups must be at least 1, got {self.num_lookups}")


InputDistribution: TypeAlias = Zipf | ReuseHistogram | UniqueFraction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UniqueCurve:
    """U(n) of a table, or of a range of its rows, tabulated; n counts the whole table's lookups."""

    lookups: NDArray[np.float64]
    unique: NDArray[np.float64]
    """Expected distinct rows; concave and increasing in the number of lookups."""

    def unique_rows(self, num_lookups: float) -> float:
        """Return the expected distinct rows among that many lookups of the table."""
        if num_lookups <= self.lookups[0]:
            return float(self.unique[0] * num_lookups / self.lookups[0])
        return float(np.interp(num_lookups, self.lookups, self.unique))

    def cold_misses(self, num_lookups: float, cache_rows: float) -> float:
        """Return misses of a batch in a cache of that many rows that starts empty."""
        filled = self.filling_lookups(cache_rows)
        if num_lookups <= filled:
            return self.unique_rows(num_lookups)
        seen, step = self.unique_rows(filled), 0.01 * filled
        miss_ratio = (self.unique_rows(filled + step) - seen) / step
        return max(self.unique_rows(num_lookups), seen + (num_lookups - filled) * miss_ratio)

    def warm_misses(self, num_lookups: float, cache_rows: float) -> float:
        """Return distinct rows of a batch that a cache warmed by earlier batches lacks."""
        filled = self.filling_lookups(cache_rows)
        if filled == float("inf"):
            return 0.0
        return self.unique_rows(filled + num_lookups) - self.unique_rows(filled)

    def filling_lookups(self, cache_rows: float) -> float:
        """Return T, the lookups after which that many distinct rows have been seen."""
        if cache_rows >= self.unique[-1] * (1 - 1e-9):
            return float("inf")
        if cache_rows <= self.unique[0]:
            return float(cache_rows / self.unique[0] * self.lookups[0])
        return float(np.interp(cache_rows, self.unique, self.lookups))


@lru_cache(maxsize=65536)
def unique_curve(
    inputs: InputDistribution, num_embeddings: int, first_row: int = 0, num_rows: int | None = None
) -> UniqueCurve:
    """Return U(n) for the rows ``first_row .. first_row + num_rows`` of a table.

    The grid has four points per octave up to 2**44 lookups. Hashed ids spread evenly, so a range
    of rows sees its share of the whole table's distinct rows.
    """
    rows = num_embeddings if num_rows is None else num_rows
    if is_hashed(inputs) and rows < num_embeddings:
        whole = unique_curve(inputs, num_embeddings)
        return UniqueCurve(lookups=whole.lookups, unique=whole.unique * (rows / num_embeddings))
    lookups = np.exp2(np.arange(0, 44.25, 0.25))
    law = _resolved(inputs, num_embeddings)
    if isinstance(law, ReuseHistogram):
        unique = _histogram_unique(law, lookups, num_embeddings)
    else:
        unique = _zipf_unique(law.exponent, num_embeddings, first_row, rows, lookups)
    return UniqueCurve(lookups=lookups, unique=np.maximum.accumulate(unique))


def is_hashed(inputs: InputDistribution) -> bool:
    """Return whether every range of rows gets its share of hot ones."""
    return not (isinstance(inputs, Zipf) and inputs.hot_rows_first)


@lru_cache(maxsize=65536)
def lookup_share(
    inputs: InputDistribution, num_embeddings: int, first_row: int, num_rows: int
) -> float:
    """Return the share of a table's lookups that fall on a range of its rows."""
    if is_hashed(inputs) or not isinstance(inputs, Zipf):
        return num_rows / num_embeddings
    _, mass = _zipf_classes(inputs.exponent, num_embeddings, first_row, num_rows)
    return float(mass.sum())


def _resolved(inputs: InputDistribution, num_embeddings: int) -> Zipf | ReuseHistogram:
    return _fitted_zipf(inputs, num_embeddings) if isinstance(inputs, UniqueFraction) else inputs


@lru_cache(maxsize=65536)
def _fitted_zipf(inputs: UniqueFraction, num_embeddings: int) -> Zipf:
    """Return the Zipf law with that unique fraction; uniform where no law reaches it."""
    lookups = np.array([inputs.num_lookups])
    target = inputs.fraction * inputs.num_lookups
    low, high = 0.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        unique = _zipf_unique(middle, num_embeddings, 0, num_embeddings, lookups)[0]
        low, high = (middle, high) if unique > target else (low, middle)
    return Zipf(exponent=low)


def _zipf_unique(
    exponent: float,
    num_embeddings: int,
    first_row: int,
    num_rows: int,
    lookups: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Sum over row classes of (rows in the class) x (1 - (1 - p) ** n)."""
    rows, mass = _zipf_classes(exponent, num_embeddings, first_row, num_rows)
    probability = np.minimum(mass / rows, 1 - 1e-12)
    missed = np.exp(np.outer(lookups, np.log1p(-probability)))
    unique: NDArray[np.float64] = (1.0 - missed) @ rows
    return unique


def _zipf_classes(
    exponent: float, num_embeddings: int, first_row: int, num_rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows and probability mass of classes of rows of similar popularity.

    The first 64 ranks are classes of their own; from there on eight classes per octave, whose
    mass is the integral of k ** -exponent from half a rank before to half a rank after.
    """

    def edges(low: int, high: int) -> NDArray[np.float64]:
        fine = np.arange(low, min(max(low, 64), high) + 1, dtype=np.float64)
        coarse = np.exp2(np.arange(6.0, 48.0, 0.125))
        coarse = np.floor(coarse[(coarse > fine[-1]) & (coarse < high)])
        return np.unique(np.concatenate((fine, coarse, [float(high)])))

    def mass(at: NDArray[np.float64]) -> NDArray[np.float64]:
        head = at[:-1] < 64
        middle = at[:-1] + 1.0
        integral = _power_integral(at[1:] + 0.5, exponent) - _power_integral(
            at[:-1] + 0.5, exponent
        )
        return np.where(head & (np.diff(at) == 1), middle**-exponent, integral)

    total = mass(edges(0, num_embeddings)).sum()
    part = edges(first_row, first_row + num_rows)
    return np.diff(part), mass(part) / total


def _power_integral(x: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    if abs(exponent - 1) < 1e-9:
        return np.log(x)
    power: NDArray[np.float64] = x ** (1 - exponent) / (1 - exponent)
    return power


def _histogram_unique(
    law: ReuseHistogram, lookups: NDArray[np.float64], num_embeddings: int
) -> NDArray[np.float64]:
    """U(n) of a counted batch: thinned below its size, a power law above it.

    A row hit c times is still seen in a share f of the batch with probability 1 - (1 - f) ** c.
    Beyond the batch U grows with the exponent it ends with, the share of rows hit once.
    """
    shares = np.asarray(law.row_shares) / sum(law.row_shares)
    counts = np.asarray(law.bin_means())
    distinct = law.num_lookups / law.mean_reuse
    part = np.minimum(lookups / law.num_lookups, 1.0)
    inside = distinct * ((1.0 - (1.0 - part[:, None]) ** counts) @ shares)
    beyond = np.maximum(lookups / law.num_lookups, 1.0) ** shares[0]
    unique: NDArray[np.float64] = np.minimum(inside * beyond, float(num_embeddings))
    return unique


def histogram_of(counts: Iterable[int]) -> tuple[float, ...]:
    """Return the row shares of a ``ReuseHistogram`` from the hits of every distinct row."""
    bins: dict[int, int] = {}
    for count in counts:
        if count > 0:
            bins[(count - 1).bit_length()] = bins.get((count - 1).bit_length(), 0) + 1
    total = sum(bins.values())
    return tuple(bins.get(b, 0) / total for b in range(max(bins) + 1)) if total else (1.0,)
