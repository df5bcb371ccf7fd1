"""Reuse in a batch: how many rows are hit once, twice, 3-4 times and so on.

The reuse factors of the paper: the histogram, over power-of-two bins, of how often every distinct
row is hit in ONE batch. It follows from any input distribution for any batch size and range of
rows. A row that n lookups hit with probability p each has Binomial(n, p) hits; a row that a counted
batch (or a whole log: a global histogram) hit c times has Binomial(c, f) hits in a share f of it.

References
----------
Lin et al., arXiv 2404.12674, section III-C: reuse factors, 17 bins.

"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from costmodel.inputs.distribution import (
    InputDistribution,
    ReuseHistogram,
    UniqueFraction,
    Zipf,
    counted_rows,
    resolved,
    unique_curve,
)
from costmodel.inputs.zipf_law import ZipfRange, zipf_classes

NUM_BINS = 17
"""The paper's bins: 1, 2, 3-4, 5-8, ..., 16,385-32,768, and more."""
_BIN_ENDS = (0, *(1 << bin_ for bin_ in range(NUM_BINS - 1)))
_MAX_EXPONENT = 4.0
"""Largest exponent that is fitted; at 4 the hottest row takes 92% of a large table's lookups."""


@lru_cache(maxsize=65536)
def reuse_rows(
    inputs: InputDistribution,
    num_embeddings: int,
    num_lookups: float,
    first_row: int = 0,
    num_rows: int | None = None,
) -> tuple[float, ...]:
    """Return the expected distinct rows in each of the 17 reuse bins of one batch.

    Parameters
    ----------
    inputs
        How the batch reads the table.
    num_embeddings
        Rows of the table.
    num_lookups
        Lookups of the whole table in the batch.
    first_row, num_rows
        The range of rows that counts, by default all of them.

    Notes
    -----
    They add up to U(n) of ``unique_curve``. Beyond a counted batch nothing says how often new rows
    recur: every bin changes as it would under the Zipf law with as many distinct rows, and what
    the batch had more or less than that law is kept as a factor.

    """
    rows = num_embeddings if num_rows is None else num_rows
    law = resolved(inputs, num_embeddings)
    if isinstance(law, ReuseHistogram):
        counted = counted_rows(law, num_embeddings, first_row, rows)
        share = num_lookups / law.num_lookups
        if share > 1.0:
            part = (first_row, rows)
            return tuple(_longer_batch(law, num_embeddings, num_lookups, part).tolist())
        bins = _binned(counted.rows, counted.hits, share)
        if counted.rows.sum() > rows:  # counted on a larger table
            unique = unique_curve(inputs, num_embeddings, first_row, rows).unique_rows(num_lookups)
            bins = bins * (unique / max(bins.sum(), 1e-9))
        return tuple(bins.tolist())
    counts = (first_row, rows) if law.hot_rows_first else (0, num_embeddings)
    classes, mass = zipf_classes(ZipfRange(law.exponent, num_embeddings, *counts))
    trials = np.full(len(classes), max(num_lookups, 1e-9))
    fraction = 1.0 if law.hot_rows_first else rows / num_embeddings
    return tuple((fraction * _binned(classes, trials, mass / classes)).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfFit:
    """The Zipf law nearest to counted batches, and its errors."""

    exponent: float
    standard_error: float
    """Standard error of the exponent, if the law were the true one."""
    histogram_error: float
    """Share of the distinct rows that the law puts into another reuse bin."""


def fitted_zipf(
    rows: tuple[float, ...], *, num_lookups: float, num_embeddings: int, num_batches: int = 1
) -> ZipfFit:
    """Fit a Zipf exponent to the distinct rows in each reuse bin of batches.

    Maximum likelihood with the rows of every bin as independent Poisson numbers, so
    log L(s) = sum_b N_b log mu_b(s) - mu_b(s); the error of s is the curvature's. Poisson numbers
    vary more than counts of rows do, so that the error is on the safe side.

    Parameters
    ----------
    rows
        Mean distinct rows of a batch in the 17 bins.
    num_lookups
        Mean lookups of a batch.
    num_embeddings
        Rows of the table; unknown ones cannot be told from rows that are never hit.
    num_batches
        How many batches were counted.

    """
    counted = np.array(rows)

    def expected(exponent: float) -> NDArray[np.float64]:
        law = reuse_rows(Zipf(exponent=exponent), num_embeddings, num_lookups)
        return np.array([max(rows, 1e-9) for rows in law])

    def likelihood(exponent: float) -> float:
        law = expected(exponent)
        return num_batches * float((counted * np.log(law) - law).sum())

    best, error = _maximum(likelihood)
    law = expected(best)
    return ZipfFit(
        exponent=best,
        standard_error=error,
        histogram_error=float(np.abs(law / law.sum() - counted / counted.sum()).sum() / 2),
    )


def _maximum(likelihood: Callable[[float], float]) -> tuple[float, float]:
    """Return the likeliest exponent, near the best of a grid, and its standard error."""
    from scipy.optimize import minimize_scalar

    grid = [0.1 * step for step in range(round(10 * _MAX_EXPONENT) + 1)]
    near = max(grid, key=likelihood)
    bounds = max(0.0, near - 0.1), min(_MAX_EXPONENT, near + 0.1)
    found = minimize_scalar(
        lambda exponent: -likelihood(exponent), bounds=bounds, options={"xatol": 1e-7}
    )
    best, step = float(found.x), 1e-3
    around = [likelihood(abs(best + offset)) for offset in (-step, 0.0, step)]
    curvature = (2 * around[1] - around[0] - around[2]) / step**2
    return best, 1 / sqrt(curvature) if curvature > 0 else float("inf")


def _longer_batch(
    law: ReuseHistogram, num_embeddings: int, num_lookups: float, part: tuple[int, int]
) -> NDArray[np.float64]:
    """Return rows per bin of a batch longer than the counted one."""
    first_row, rows = part
    counted = np.array(reuse_rows(law, num_embeddings, law.num_lookups, first_row, rows))
    zipf = resolved(
        UniqueFraction(fraction=1.0 / law.mean_reuse, num_lookups=law.num_lookups), num_embeddings
    )
    before = np.array(reuse_rows(zipf, num_embeddings, law.num_lookups, first_row, rows))
    after = np.array(reuse_rows(zipf, num_embeddings, num_lookups, first_row, rows))
    shape = after * (counted + 0.5) / (before + 0.5)
    unique = unique_curve(law, num_embeddings, first_row, rows).unique_rows(num_lookups)
    longer: NDArray[np.float64] = shape * (unique / max(shape.sum(), 1e-9))
    return longer


def _binned(
    rows: NDArray[np.float64],
    trials: NDArray[np.float64],
    probability: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Return the expected rows in each of the 17 bins, summed over classes of rows.

    A row of a class has Binomial(n, p) hits; rows without a hit are in no bin.
    P(X <= k) = I_(1 - p)(n - k, k + 1), the regularised incomplete beta function, which needs no
    whole number of lookups.
    """
    from scipy.special import betainc

    hits = np.array(_BIN_ENDS)[:, None]
    left = np.maximum(trials - hits, 1e-9)
    until = np.where(trials > hits, betainc(left, hits + 1.0, 1.0 - probability), 1.0)
    binned: NDArray[np.float64] = np.diff(until, axis=0, append=1.0) @ rows
    return binned
