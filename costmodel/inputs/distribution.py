"""Laws of how a batch's ids spread over the rows of a table: U(n), distinct rows of n lookups.

``unique_curves`` derives the misses of caches from U(n).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base import limits
from costmodel.base.limits import check_at_most
from costmodel.inputs.unique_curves import GRID, UniqueCurve
from costmodel.inputs.zipf_law import ZipfRange, tabulated, zipf_classes, zipf_unique


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
    """Lookups of the table in the batch that was counted; a whole log is a (large) batch, too."""
    mean_hits: tuple[float, ...] = ()
    """Mean hits of the rows of every bin; empty: hits as common as 1/k (``bin_means``)."""
    range_lookups: tuple[float, ...] = ()
    """Share of the lookups on each of some equally long ranges of rows, the smallest ids first;
    empty: ids are taken as hashed."""
    range_rows: tuple[float, ...] = ()
    """Share of the distinct rows in each of these ranges."""

    def __post_init__(self) -> None:
        if not _are_shares(self.row_shares):
            raise ValueError("reuse_histogram needs shares of at least 0, not all 0")
        check_at_most("bins of reuse_histogram", len(self.row_shares), limits.MOST_BINS)
        _check_lookups(self.num_lookups)
        if self.mean_hits and len(self.mean_hits) != len(self.row_shares):
            raise ValueError(
                f"mean_hits needs one number for each of the {len(self.row_shares)} bins, "
                f"got {len(self.mean_hits)}"
            )
        for bin_, hits in enumerate(self.mean_hits):
            low, high = _bin_edges(bin_)
            if not low <= hits <= high:
                raise ValueError(f"mean_hits of the bin {low:g}-{high:g} must be in it, got {hits}")
        if len(self.range_lookups) != len(self.range_rows):
            raise ValueError("range_lookups and range_rows need the same number of ranges")
        check_at_most("range_lookups' number", len(self.range_lookups), limits.MOST_RANGES)
        if self.range_lookups and not (
            _are_shares(self.range_lookups) and _are_shares(self.range_rows)
        ):
            raise ValueError("range_lookups and range_rows need shares of at least 0, not all 0")

    @property
    def mean_reuse(self) -> float:
        """Lookups per distinct row."""
        weighted = sum(s * c for s, c in zip(self.row_shares, self.bin_means(), strict=True))
        return weighted / sum(self.row_shares)

    def bin_means(self) -> tuple[float, ...]:
        """Return the mean hits of a row in every bin: 1, 2, then h / (sum of 1/k over the bin).

        That is, k hits are as common as 1/k inside a bin h+1 .. 2h; the sum is taken as a midpoint
        integral. The open dataset (tables_2021.csv: lookups over rows of a bin) has 3.4, 6.2, 11.7
        and 22.3 in the bins 3-4 to 17-32; this gives 3.4, 6.3, 12.0 and 23.6. ``mean_hits``,
        where counted, says it exactly.
        """
        if self.mean_hits:
            return self.mean_hits
        halves = (2.0 ** (b - 1) for b in range(2, len(self.row_shares)))
        upper = tuple(h / log((2 * h + 0.5) / (h + 0.5)) for h in halves)
        return ((1.0, 2.0, *upper))[: len(self.row_shares)]


def _bin_edges(bin_: int) -> tuple[float, float]:
    """Return the fewest and the most hits of a row in a bin."""
    return (1.0, 1.0) if bin_ == 0 else (2.0 ** (bin_ - 1) + 1.0, 2.0**bin_)


def _are_shares(shares: tuple[float, ...]) -> bool:
    usable = bool(shares) and all(0 <= share <= limits.MOST_SHARE for share in shares)
    return usable and sum(shares) >= _SMALLEST_SUM


def _check_lookups(num_lookups: float) -> None:
    if not num_lookups >= 1:
        raise ValueError(f"num_lookups must be at least 1, got {num_lookups}")
    check_at_most("num_lookups", num_lookups, limits.MOST_LOOKUPS)


_SMALLEST_SUM = 1e-18
"""Shares need not add up to 1, so that counts will do; below this they would overflow."""


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
        _check_lookups(self.num_lookups)


InputDistribution: TypeAlias = Zipf | ReuseHistogram | UniqueFraction


def unique_curve(
    inputs: InputDistribution, num_embeddings: int, first_row: int = 0, num_rows: int | None = None
) -> UniqueCurve:
    """Return U(n) for the rows ``first_row .. first_row + num_rows`` of a table.

    Hashed ids spread evenly, so a range of rows sees its share of the whole table's distinct rows.
    """
    rows = num_embeddings if num_rows is None else num_rows
    if 0 < rows < num_embeddings and is_hashed(inputs):
        (whole,) = unique_curves([RowRange(inputs, num_embeddings, 0, num_embeddings)])
        return replace(whole, share=rows / num_embeddings)
    return unique_curves([RowRange(inputs, num_embeddings, first_row, rows)])[0]


class RowRange(NamedTuple):
    """Rows of a table, and how the table's ids are distributed."""

    inputs: InputDistribution
    num_embeddings: int
    first_row: int
    num_rows: int


def unique_curves(ranges: Sequence[RowRange]) -> list[UniqueCurve]:
    """Return U(n) of many ranges of rows, in a tenth of the time of one after the other."""
    missing = [each for each in dict.fromkeys(ranges) if each not in _TABULATED]
    if len(_TABULATED) + len(missing) > MOST_CURVES:
        _TABULATED.clear()
        missing = list(dict.fromkeys(ranges))
    laws: dict[RowRange, ZipfRange] = {}
    for each in missing:
        law = resolved(each.inputs, each.num_embeddings)
        if isinstance(law, Zipf):
            laws[each] = ZipfRange(law.exponent, *each[1:])
        else:
            part = counted_rows(law, *each[1:])
            _TABULATED[each] = _curve(_counted_unique(part, GRID / law.num_lookups, each.num_rows))
    if laws:
        for each, unique in zip(laws, tabulated(tuple(laws.values())), strict=True):
            _TABULATED[each] = _curve(unique)
    return [_TABULATED[each] for each in ranges]


_TABULATED: dict[RowRange, UniqueCurve] = {}
MOST_CURVES = 65536


def _curve(unique: NDArray[np.float64]) -> UniqueCurve:
    return UniqueCurve(unique=np.append(0.0, np.maximum.accumulate(unique)))


def is_hashed(inputs: InputDistribution) -> bool:
    """Return whether every range of rows has its share of hot rows."""
    if isinstance(inputs, ReuseHistogram):
        return not inputs.range_lookups
    return not (isinstance(inputs, Zipf) and inputs.hot_rows_first)


@lru_cache(maxsize=65536)
def lookup_share(
    inputs: InputDistribution, num_embeddings: int, first_row: int, num_rows: int
) -> float:
    """Return the share of a table's lookups that fall on a range of its rows."""
    if is_hashed(inputs) or isinstance(inputs, UniqueFraction):
        return num_rows / num_embeddings
    if isinstance(inputs, ReuseHistogram):
        return _range_share(inputs.range_lookups, num_embeddings, first_row, num_rows)
    _, mass = zipf_classes(ZipfRange(inputs.exponent, num_embeddings, first_row, num_rows))
    return float(mass.sum())


def _range_share(
    shares: tuple[float, ...], num_embeddings: int, first_row: int, num_rows: int
) -> float:
    """Return a range of rows' share of a quantity that is spread evenly inside equal ranges."""
    until = np.concatenate(([0.0], np.cumsum(shares)))
    at = np.array([first_row, first_row + num_rows]) * (len(shares) / num_embeddings)
    low, high = np.interp(at, np.arange(len(until)), until)
    return float((high - low) / until[-1])


def resolved(inputs: InputDistribution, num_embeddings: int) -> Zipf | ReuseHistogram:
    """Return the law to compute with: of a unique fraction the Zipf law, others unchanged."""
    return _fitted_zipf(inputs, num_embeddings) if isinstance(inputs, UniqueFraction) else inputs


@lru_cache(maxsize=65536)
def _fitted_zipf(inputs: UniqueFraction, num_embeddings: int) -> Zipf:
    """Return the Zipf law with that unique fraction; uniform where no law reaches it."""
    target = inputs.fraction * inputs.num_lookups
    low, high = 0.0, 5.0
    for _ in range(40):
        middle = (low + high) / 2
        law = ZipfRange(middle, num_embeddings, 0, num_embeddings)
        unique = zipf_unique(law, inputs.num_lookups)
        low, high = (middle, high) if unique > target else (low, middle)
    return Zipf(exponent=low)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedRows:
    """Rows of a counted batch by their hits in it."""

    rows: NDArray[np.float64]
    """Distinct rows of every class."""
    hits: NDArray[np.float64]
    """Hits of each row of a class, at least 1."""


def counted_rows(
    law: ReuseHistogram, num_embeddings: int, first_row: int, num_rows: int
) -> CountedRows:
    """Return the hits of the distinct rows in a range of rows, as in the counted batch.

    A range with q of the lookups and r of the distinct rows has other hits per row than the whole
    table; its rows' hits beyond the first are scaled to that mean, c' = 1 + (c - 1) x.
    """
    shares, hits = _spread_hits(law)
    mean = law.mean_reuse
    distinct = law.num_lookups / mean
    if is_hashed(law):
        return CountedRows(rows=distinct * (num_rows / num_embeddings) * shares, hits=hits)
    lookups = _range_share(law.range_lookups, num_embeddings, first_row, num_rows)
    share = _range_share(law.range_rows, num_embeddings, first_row, num_rows)
    own_mean = max(1.0, mean * lookups / share) if share > 0 else 1.0
    scale = (own_mean - 1.0) / (mean - 1.0) if mean > 1 else 0.0
    return CountedRows(rows=distinct * share * shares, hits=1.0 + (hits - 1.0) * scale)


@lru_cache(maxsize=65536)
def _spread_hits(law: ReuseHistogram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shares of rows and their hits: every bin as up to eight classes."""
    total = sum(law.row_shares)
    bins = [_spread_bin(bin_, mean) for bin_, mean in enumerate(law.bin_means())]
    shares = [part * (share / total) for share, (part, _) in zip(law.row_shares, bins, strict=True)]
    return np.concatenate(shares), np.concatenate([hits for _, hits in bins])


@lru_cache(maxsize=65536)
def _spread_bin(bin_: int, mean: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return up to eight counts of hits in a bin, and their shares, k as common as k ** -a.

    The exponent a gives the bin its mean hits; it is about 1 if they were not counted.
    """
    low, high = _bin_edges(bin_)
    counts = np.unique(np.round(np.linspace(low, high, 8)))
    steepest, flattest = 400.0, -400.0
    for _ in range(40 if low < high else 0):
        exponent = (steepest + flattest) / 2
        weights = np.exp(-exponent * np.log(counts / mean))
        above = float(weights @ counts) > mean * float(weights.sum())
        steepest, flattest = (steepest, exponent) if above else (exponent, flattest)
    weights = np.exp(-(steepest + flattest) / 2 * np.log(counts / mean))
    return weights / weights.sum(), counts


def _counted_unique(
    counted: CountedRows, batches: NDArray[np.float64], num_rows: int
) -> NDArray[np.float64]:
    """Return U(n) of a counted batch: thinned below its size, extrapolated above it.

    A row hit c times is still seen in a share f of the batch with probability 1 - (1 - f) ** c.
    Above, the number of rows hit once, N1, says how fast new ones appear (Good 1953). From there U
    grows by a power law of exponent N1 / U, but no faster than if all rows not seen were equally
    likely, which is the most that a pool of Z of them can give: U + Z (1 - exp(-N1 (f - 1) / Z)).
    """
    distinct = min(float(counted.rows.sum()), float(num_rows))
    if distinct <= 0:
        return np.zeros_like(batches)
    # 1.2 hits, of a scaled range, are four rows of one hit beside one of two
    once = float(counted.rows @ np.maximum(2.0 - counted.hits, 0.0))
    thinned = batches < 1.0
    inside = -np.expm1(np.outer(np.log1p(-batches[thinned]), counted.hits)) @ counted.rows
    more = np.maximum(batches, 1.0)
    beyond = distinct * more ** min(1.0, once / distinct)
    pool = max(num_rows - distinct, 1e-9)
    even = distinct + pool * -np.expm1(-once * (more - 1.0) / pool)
    unique: NDArray[np.float64] = np.minimum(beyond, even)
    unique[thinned] = inside
    return np.minimum(unique, float(num_rows))


Hits: TypeAlias = Iterable[int] | NDArray[np.int64]
"""Hits of every row in a batch."""


def histogram_of(counts: Hits) -> tuple[float, ...]:
    """Return the row shares of a ``ReuseHistogram`` from the hits of every distinct row."""
    hits, bins = _hits_and_bins(counts)
    return tuple((np.bincount(bins) / len(hits)).tolist()) if len(hits) else (1.0,)


def mean_hits_of(counts: Hits) -> tuple[float, ...]:
    """Return the mean hits of every bin of ``histogram_of``; an empty bin has its least hits."""
    hits, bins = _hits_and_bins(counts)
    if not len(hits):
        return (1.0,)
    rows, sums = np.bincount(bins), np.bincount(bins, weights=hits)
    means = zip(rows.tolist(), sums.tolist(), strict=True)
    return tuple(
        total / number if number else _bin_edges(bin_)[0]
        for bin_, (number, total) in enumerate(means)
    )


def _hits_and_bins(counts: Hits) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the hits of rows that have any, and the number of the power of two each is up to."""
    hits = counts if isinstance(counts, np.ndarray) else np.array(list(counts), dtype=np.int64)
    hits = hits[hits > 0]
    bins: NDArray[np.int32] = np.frexp(hits - 1.0)[1]  # the bit length of hits - 1
    return hits, bins
