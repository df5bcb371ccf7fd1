"""Statistics of a table's recorded ids: pooling, reuse in a batch, hot rows, evenness."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.base.limits import MOST_ROWS
from costmodel.inputs.distribution import (
    ReuseHistogram,
    UniqueFraction,
    Zipf,
    histogram_of,
    mean_hits_of,
    unique_curve,
)
from costmodel.inputs.reuse import NUM_BINS, ZipfFit, fitted_zipf
from planner.inspection.samples import FeatureSample

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
MANY_ROWS, SPARSE = 10**9, 1_000
"""Number of rows, and rows per distinct id, from which ids may be no rows: few tables have as many,
and a time in seconds is as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRow:
    """One of the rows that are looked up most."""

    id: int
    lookup_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObservation:
    """How recorded batches read one table."""

    name: str
    feature_names: tuple[str, ...]
    num_embeddings: int
    """Rows of the table, as given, or the largest id plus one; the number of distinct ids if ids
    cannot be rows."""
    num_distinct: int
    """Number of distinct ids of all batches."""
    largest_id: int
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
    unique_rows: float
    """Mean distinct rows of a batch."""
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
    half_batch_error: float
    """Distinct rows predicted for the first half of each batch over those counted, minus 1: large
    if ids close in time resemble each other."""

    @property
    def is_sparse(self) -> bool:
        """Whether ids are so few and so large that they may be no rows."""
        return (
            self.num_embeddings == 1 + self.largest_id >= max(MANY_ROWS, SPARSE * self.num_distinct)
        )

    @property
    def is_unhashed(self) -> bool:
        """Whether the ids cannot be rows of a table."""
        return self.largest_id >= MOST_ROWS

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


def observe(
    name: str,
    features: Sequence[FeatureSample],
    *,
    batch_samples: int | None = None,
    num_embeddings: int | None = None,
) -> TableObservation:
    """Return statistics of a table from samples of its features.

    Parameters
    ----------
    name
        The table's.
    features
        Samples of all its features.
    batch_samples
        Samples of one batch; by default all. A rest is left out of the reuse, unless all ids are
        in it.
    num_embeddings
        Rows of the table; by default the largest id and one.

    """
    batches = _batches(features, batch_samples) or _batches(features, None)
    ids, hits = np.unique(np.concatenate(batches), return_counts=True)
    largest = max(int(f.ids.max()) for f in features if len(f.ids))
    hashed = largest < MOST_ROWS
    rows = num_embeddings or (largest + 1 if hashed else len(ids))
    places = ids if hashed else np.arange(len(ids))
    counted = [np.unique(batch, return_counts=True)[1] for batch in batches]
    lookups = sum(map(len, batches)) / len(batches)
    bins = _bins(counted)
    pooling = sum(len(f.ids) / f.num_samples for f in features if f.num_samples)
    skew = float(_range_counts(places, hits, rows, SKEW_RANKS).max() * SKEW_RANKS / hits.sum())
    ranges = _ranges(ids, hits, rows, skew) if hashed else ((), ())
    inputs = _inputs(np.concatenate(counted), lookups, ranges=ranges)
    fit = fitted_zipf(bins, num_lookups=lookups, num_embeddings=rows, num_batches=len(batches))
    return TableObservation(
        name=name,
        feature_names=tuple(feature.name for feature in features),
        num_embeddings=rows,
        num_distinct=len(ids),
        largest_id=largest,
        num_samples=max(feature.num_samples for feature in features),
        num_batches=len(batches),
        num_lookups=lookups,
        pooling_factor=pooling,
        pooling_std=_std(features),
        longest_bag=max(int(feature.lengths.max(initial=0)) for feature in features),
        unique_rows=sum(map(len, counted)) / len(batches),
        reuse_rows=bins,
        inputs=inputs,
        hot_rows=_hot_rows(ids, hits),
        half_rows=int(np.searchsorted(np.cumsum(-np.sort(-hits)), hits.sum() / 2)) + 1,
        skew=skew,
        zipf=fit if hashed and fit.standard_error <= LARGEST_ERROR else None,
        half_batch_error=_half_batch_error(features, inputs, rows, batch_samples),
    )


def length_spread(features: Sequence[FeatureSample], local_batch_size: int) -> float | None:
    """Return the standard deviation of the ids in ranks' batches over their mean; None: too few.

    A rank's batch is taken to be samples that were recorded one after the other. All features count
    together, so that correlated lengths, in a sample or over time, show.
    """
    num_batches = min(feature.num_samples for feature in features) // local_batch_size
    if num_batches < LEAST_BATCHES:
        return None
    whole = num_batches * local_batch_size
    ids = sum(
        feature.lengths[:whole].reshape(num_batches, -1).sum(axis=1, dtype=np.float64)
        for feature in features
    )
    return float(np.std(ids, ddof=1) / np.mean(ids))


def _std(features: Sequence[FeatureSample]) -> float:
    """Return the deviation of samples' ids; features with other samples count as independent."""
    if len({feature.num_samples for feature in features}) == 1:
        return float(np.std(np.sum([feature.lengths for feature in features], axis=0)))
    return float(np.sqrt(sum(np.var(f.lengths) for f in features if f.num_samples)))


def _batches(
    features: Sequence[FeatureSample], batch_samples: int | None, *, divided_by: int = 1
) -> list[NDArray[np.int64]]:
    """Return the ids of all features of every batch that has any, or of its first part."""
    ends = [
        np.concatenate(([0], np.cumsum(feature.lengths, dtype=np.int64))) for feature in features
    ]
    sizes = [batch_samples or feature.num_samples for feature in features]
    whole = min(f.num_samples // size for f, size in zip(features, sizes, strict=True) if size)
    batches = []
    for batch in range(whole):
        parts = [
            feature.ids[end[batch * size] : end[batch * size + size // divided_by]]
            for feature, end, size in zip(features, ends, sizes, strict=True)
        ]
        batches.append(np.concatenate(parts).astype(np.int64))
    return [ids for ids in batches if len(ids)]


def _hot_rows(ids: NDArray[np.int64], hits: NDArray[np.int64]) -> tuple[HotRow, ...]:
    hottest = np.argsort(-hits, kind="stable")[:NUM_HOT_ROWS]
    shares = hits[hottest] / hits.sum()
    pairs = zip(ids[hottest].tolist(), shares.tolist(), strict=True)
    return tuple(HotRow(id=row, lookup_share=share) for row, share in pairs)


def _bins(counted: Sequence[NDArray[np.int64]]) -> tuple[float, ...]:
    """Return the mean distinct rows of a batch in every reuse bin; the last has all above."""
    hits = np.concatenate(counted)
    bins = np.minimum(np.frexp(hits - 1.0)[1], NUM_BINS - 1)
    return tuple((np.bincount(bins, minlength=NUM_BINS) / len(counted)).tolist())


def _inputs(
    hits: NDArray[np.int64],
    lookups: float,
    *,
    ranges: tuple[tuple[float, ...], tuple[float, ...]],
) -> ReuseHistogram:
    on_ranges, rows_of_ranges = ranges
    return ReuseHistogram(
        row_shares=histogram_of(hits),
        num_lookups=lookups,
        mean_hits=mean_hits_of(hits),
        range_lookups=on_ranges,
        range_rows=rows_of_ranges,
    )


def _ranges(
    ids: NDArray[np.int64], hits: NDArray[np.int64], rows: int, skew: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the shares of lookups and of distinct rows by range; empty if they are even."""
    if skew <= EVEN_SKEW or rows < NUM_RANGES:
        return (), ()
    lookups = _range_counts(ids, hits, rows, NUM_RANGES)
    distinct = _range_counts(ids, np.ones_like(hits), rows, NUM_RANGES)
    return tuple((lookups / lookups.sum()).tolist()), tuple((distinct / distinct.sum()).tolist())


def _range_counts(
    ids: NDArray[np.int64], weights: NDArray[np.int64], rows: int, num_ranges: int
) -> NDArray[np.float64]:
    """Return the sum of ids' weights in equally long ranges of rows, shape (num_ranges,)."""
    places = np.minimum((ids * (num_ranges / rows)).astype(np.int64), num_ranges - 1)
    return np.bincount(places, weights=weights, minlength=num_ranges).astype(np.float64)


def _half_batch_error(
    features: Sequence[FeatureSample],
    inputs: ReuseHistogram,
    rows: int,
    batch_samples: int | None,
) -> float:
    """Return by how much the curve overstates the unique rows of half batches, as a share."""
    halves = _batches(features, batch_samples, divided_by=2)
    counted = sum(len(np.unique(half)) for half in halves)
    curve = unique_curve(inputs, rows)
    expected = sum(curve.unique_rows(len(half)) for half in halves)
    return expected / counted - 1 if counted else 0.0
