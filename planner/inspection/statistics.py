"""Statistics of a table's recorded ids: rows, pooling, reuse in a batch, hot rows, evenness."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.limits import MOST_ROWS
from costmodel.inputs.distribution import ReuseHistogram, UniqueFraction, Zipf
from costmodel.inputs.reuse import NUM_BINS, ZipfFit, fitted_zipf, reuse_rows
from planner.inspection.column_facts import ColumnFacts
from planner.inspection.counting import Moments, TableCounts
from planner.inspection.key_counts import Spectrum, mixed
from planner.inspection.kinds import Kind

NUM_HOT_ROWS = 5
"""Number of hottest rows that are listed."""
NUM_RANGES = 64
"""Number of ranges of rows counted apart: a row-wise split over as many ranks is described
exactly."""
SKEW_RANKS = 8
"""Number of ranks, a node's GPUs, of the row-wise split whose skew is shown and decides whether
ranges are kept."""
LEAST_BATCHES = 8
"""Smallest number of batches from which a spread is computed; from fewer it is off by a quarter."""
EVEN_SKEW = 1.05
"""Largest skew with which ids count as hashed: 5% more on the busiest of eight ranks."""
LARGEST_ERROR = 0.25
"""Largest standard error of a Zipf exponent that is used: from 0.8 to 1.3 the hottest thousand of a
million rows go from a fifth of all lookups to nine tenths."""
_RESAMPLED, _LEAST_RESAMPLED = 1000, 4
"""Resamples of batches for an interval, and batches from which there is one."""
_TAIL = 0.05
"""Probability on either side of an interval: of 90%."""
_CURVE_POINTS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRow:
    """One of the rows that are looked up most."""

    id: int | None
    """None: of texts and hashed ids nothing is kept but a key."""
    lookup_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObservation:
    """How recorded batches read one table."""

    name: str
    feature_names: tuple[str, ...]
    kind: Kind
    reason: str
    """What says that it is of that kind."""
    num_embeddings: int
    """Rows of the table."""
    rows_from: str
    """Where they come from, in words."""
    num_distinct: int
    """Number of distinct ids; an estimate unless ``is_exact``."""
    num_unseen: int
    """Least number of ids that exist beside them (Chao1); 0 where rows are known without."""
    coverage: float
    """Share of all lookups that are of ids seen (Good-Turing)."""
    is_exact: bool
    """Whether distinct ids, hits and ranges were counted, not estimated from a share of the ids."""
    largest_id: int | None
    """None: of texts and hashed ids."""
    num_samples: int
    num_batches: int
    num_lookups: float
    """Mean lookups of a batch."""
    pooling_factor: float
    """Mean ids per sample, over all features."""
    pooling_std: float
    """Standard deviation of the ids per sample."""
    longest_bag: int
    """Largest number of ids of one feature in one sample."""
    lengths: tuple[tuple[int, int], ...]
    """Ids per sample, and how many samples have as many; 1,024 is as many or more."""
    unique_rows: float
    """Mean distinct rows of a batch."""
    unique_interval: tuple[float, float] | None
    """90% interval of it, by resampling batches; None: too few batches."""
    shuffled_rows: float
    """Mean distinct rows of batches of as many lookups, drawn from all of them without order."""
    order_effect: float
    """Distinct rows of shuffled batches over those counted, minus 1: large if samples close to each
    other resemble each other; in few batches, of first halves."""
    reuse_rows: tuple[float, ...]
    """Mean distinct rows of a batch in the 17 reuse bins."""
    inputs: ReuseHistogram
    """The counts as a table's input distribution."""
    hot_rows: tuple[HotRow, ...]
    half_rows: int
    """Number of rows that take half of all lookups."""
    skew: float
    """Lookups on the busiest of eight equal blocks of rows, over the mean."""
    zipf: ZipfFit | None
    """Zipf law fitted to the hits; None: they determine no exponent."""
    rank_frequency: tuple[tuple[float, float], ...]
    """Rank of rows, the hottest is 1, and share of the lookups that each has there."""

    @property
    def unique_fraction(self) -> float:
        """Distinct rows over lookups in one batch."""
        return self.unique_rows / self.num_lookups

    def inputs_as(self, law: str) -> ReuseHistogram | UniqueFraction | Zipf:
        """Return the distribution in another form: ``histogram``, ``unique_fraction``, ``zipf``.

        It stays a histogram if there is no exponent.
        """
        if law == "zipf" and self.zipf is not None:
            return Zipf(exponent=self.zipf.exponent)
        if law == "unique_fraction":
            return UniqueFraction(fraction=self.unique_fraction, num_lookups=self.num_lookups)
        return self.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """How many rows a table has, who says so, and whether ids are their places."""

    number: int
    source: str
    are_places: bool


def rows_of(
    kind: Kind, largest: int, spectrum: Spectrum, *, given: int | None, hashed: int | None
) -> TableRows:
    """Return the rows of a table, as told, or by its kind."""
    if hashed is not None:
        return TableRows(number=hashed, source="--hash", are_places=True)
    places = kind in {Kind.IDS, Kind.SEQUENCE}
    if given is not None:
        return TableRows(number=given, source="given", are_places=places)
    if places and largest < MOST_ROWS:
        return TableRows(number=largest + 1, source="the largest id + 1", are_places=True)
    number = spectrum.num_distinct + spectrum.unseen
    if kind is not Kind.CATEGORY:
        number = min(number, largest + 1)
    return TableRows(
        number=int(min(max(round(number), 1), MOST_ROWS)),
        source="distinct ids + Chao1's estimate of unseen ones",
        are_places=False,
    )


def observe(
    name: str,
    counts: TableCounts,
    columns: tuple[ColumnFacts, ...],
    spectrum: Spectrum,
    *,
    kind: tuple[Kind, str],
    rows: TableRows,
    shuffled: bool = False,
) -> TableObservation:
    """Return statistics of a table from what was counted.

    Parameters
    ----------
    name
        The table's.
    counts, spectrum
        Its batches, and the hits of its ids over all of them.
    columns
        Its features.
    kind
        What it is, and why.
    rows
        Its rows.
    shuffled
        Whether a batch of training has any samples of the log, not consecutive ones: then the log
        is one large batch, of which one of training is a part.

    """
    lookups = counts.lookups / counts.num_batches
    bins = counts.rows_by_hits / counts.num_batches
    sums = counts.hits_by_hits / counts.num_batches
    drawn = spectrum.unique_rows(lookups)
    if shuffled:
        places = np.frexp(np.maximum(spectrum.hits, 1.0) - 1.0)[1]
        bins = _summed(places, spectrum.weights, len(bins))
        sums = _summed(places, spectrum.weights * spectrum.hits, len(bins))
    skew = _skew(spectrum, rows)
    inputs = _inputs(bins, sums, float(sums.sum()), _ranges(spectrum, rows, skew))
    unique = drawn if shuffled else counts.rows_by_hits.sum() / counts.num_batches
    reuse = reuse_rows(inputs, rows.number, lookups) if shuffled else _folded(bins)
    fit = fitted_zipf(
        reuse, num_lookups=lookups, num_embeddings=rows.number, num_batches=counts.num_batches
    )
    known = rows.source != "--hash" and not columns[0].is_text
    return TableObservation(
        name=name,
        feature_names=tuple(column.name for column in columns),
        kind=kind[0],
        reason=kind[1],
        num_embeddings=rows.number,
        rows_from=rows.source,
        num_distinct=round(spectrum.num_distinct),
        num_unseen=0 if rows.are_places else max(0, round(rows.number - spectrum.num_distinct)),
        coverage=spectrum.coverage,
        is_exact=spectrum.exact,
        largest_id=None if columns[0].is_text else max(column.largest for column in columns),
        num_samples=counts.lengths.number,
        num_batches=counts.num_batches,
        num_lookups=lookups,
        pooling_factor=counts.lengths.mean,
        pooling_std=counts.lengths.std(),
        longest_bag=counts.longest_bag,
        lengths=tuple(
            (int(length), int(counts.length_counts[length]))
            for length in np.flatnonzero(counts.length_counts)
        ),
        unique_rows=float(unique),
        unique_interval=_interval(counts, float(unique)),
        shuffled_rows=drawn,
        order_effect=_order_effect(counts, spectrum),
        reuse_rows=reuse,
        inputs=inputs,
        hot_rows=_hot_rows(spectrum, known=known),
        half_rows=spectrum.lasting(0.5),
        skew=skew,
        zipf=fit if fit.standard_error <= LARGEST_ERROR else None,
        rank_frequency=_rank_frequency(spectrum),
    )


def length_spread(batches: Moments) -> float | None:
    """Return the deviation of the ids in ranks' batches over their mean; None: too few batches."""
    if batches.number < LEAST_BATCHES or not batches.mean:
        return None
    return batches.std(ddof=1) / batches.mean


def _folded(bins: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the rows in the paper's 17 bins; the last has all above."""
    return (*bins[: NUM_BINS - 1].tolist(), float(bins[NUM_BINS - 1 :].sum()))


def _inputs(
    bins: NDArray[np.float64],
    sums: NDArray[np.float64],
    lookups: float,
    ranges: tuple[tuple[float, ...], tuple[float, ...]],
) -> ReuseHistogram:
    used = int(np.flatnonzero(bins).max()) + 1
    rows, hits = bins[:used], sums[:used]
    least = np.array([1.0, 2.0, *(2.0 ** (bin_ - 1) + 1 for bin_ in range(2, used))])[:used]
    most = 2.0 ** np.arange(used)
    means = np.clip(np.divide(hits, rows, out=least.copy(), where=rows > 0), least, most)
    on_ranges, rows_of_ranges = ranges
    return ReuseHistogram(
        row_shares=tuple((rows / rows.sum()).tolist()),
        num_lookups=lookups,
        mean_hits=tuple(means.tolist()),
        range_lookups=on_ranges,
        range_rows=rows_of_ranges,
    )


def _interval(counts: TableCounts, unique: float) -> tuple[float, float] | None:
    """Return a 90% interval of the mean distinct rows of a batch, by resampling those counted.

    For shuffled batches it is that of consecutive ones, which differ no less.
    """
    batches = np.array(counts.unique)
    if len(batches) < _LEAST_RESAMPLED:
        return None
    random = np.random.default_rng(0)
    chosen = min(len(batches), 2_000)
    draws = random.integers(0, len(batches), (_RESAMPLED, chosen))
    means = batches[draws].mean(axis=1)
    low, high = (
        np.quantile(means - batches.mean(), (_TAIL, 1 - _TAIL)) * (chosen / len(batches)) ** 0.5
    )
    return float(unique + low), float(unique + high)


def _order_effect(counts: TableCounts, spectrum: Spectrum) -> float:
    if counts.num_batches >= LEAST_BATCHES:
        seen = counts.rows_by_hits.sum()
        drawn = counts.num_batches * spectrum.unique_rows(counts.lookups / counts.num_batches)
    else:
        seen = sum(unique for _, unique in counts.halves)
        drawn = sum(spectrum.unique_rows(lookups) for lookups, _ in counts.halves)
    return float(drawn / seen - 1) if seen else 0.0


def _hot_rows(spectrum: Spectrum, *, known: bool) -> tuple[HotRow, ...]:
    hottest = np.lexsort((spectrum.keys, -spectrum.hits))[:NUM_HOT_ROWS]
    shares = spectrum.hits[hottest] / spectrum.lookups
    pairs = zip(spectrum.keys[hottest].tolist(), shares.tolist(), strict=True)
    return tuple(HotRow(id=row if known else None, lookup_share=share) for row, share in pairs)


def _rank_frequency(spectrum: Spectrum) -> tuple[tuple[float, float], ...]:
    order = np.argsort(-spectrum.hits, kind="stable")
    ranks = np.cumsum(spectrum.weights[order])
    points = np.unique(np.geomspace(1, len(order), _CURVE_POINTS).astype(np.int64)) - 1
    shares = spectrum.hits[order] / spectrum.lookups
    return tuple(zip(ranks[points].tolist(), shares[points].tolist(), strict=True))


def _skew(spectrum: Spectrum, rows: TableRows) -> float:
    lookups = _on_ranges(spectrum, spectrum.weights * spectrum.hits, rows, SKEW_RANKS)
    return float(lookups.max() * SKEW_RANKS / lookups.sum())


def _ranges(
    spectrum: Spectrum, rows: TableRows, skew: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the shares of lookups and of distinct rows by range; empty if they are even."""
    if not rows.are_places or skew <= EVEN_SKEW or rows.number < NUM_RANGES:
        return (), ()
    lookups = _on_ranges(spectrum, spectrum.weights * spectrum.hits, rows, NUM_RANGES)
    distinct = _on_ranges(spectrum, spectrum.weights, rows, NUM_RANGES)
    return tuple((lookups / lookups.sum()).tolist()), tuple((distinct / distinct.sum()).tolist())


def _on_ranges(
    spectrum: Spectrum, weights: NDArray[np.float64], rows: TableRows, num_ranges: int
) -> NDArray[np.float64]:
    """Return the sum of ids' weights in equally long ranges of rows, shape (num_ranges,).

    Ids that are no places are taken as hashed to rows.
    """
    share = spectrum.keys / rows.number if rows.are_places else mixed(spectrum.keys) / 2.0**64
    places = np.clip((share * num_ranges).astype(np.int64), 0, num_ranges - 1)
    return _summed(places, weights, num_ranges)


def _summed(
    places: NDArray[np.signedinteger[Any]], weights: NDArray[np.float64], number: int
) -> NDArray[np.float64]:
    """Return the sum of the weights at each of so many places."""
    return np.bincount(places, weights=weights, minlength=number).astype(np.float64)
