"""Fitting forms of time over message size in relative error, judged on held-out points."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression, least_squares

from costmodel.base.arrays import Array
from costmodel.base.limits import MOST_ERROR
from costmodel.domain.hardware import KernelFamily, Source

Form: TypeAlias = Callable[[Array], Array]
"""Returns seconds for sizes in bytes."""
Fitter: TypeAlias = Callable[[Array, Array, Array], Form]
"""Returns a form fitted to sizes, times and weights."""
Forms: TypeAlias = Mapping[str, Fitter]

KNOTS_PER_OCTAVE = 2
BEYOND = (4.0, 16.0)
"""Sizes of knots above the measured ones, as multiples of the largest: a straight line."""
SIGNIFICANT_DIGITS = 4
POLISH = 60
"""Steps of least squares from a start that is near already."""
SPREAD_FLOOR = 0.02
"""Smallest relative spread of a point, and that of a point measured once: nccl-tests on the same
NVSwitch hardware repeat within 1-3% (README of the data)."""
OUTLIER = 0.1
"""Residual from which on the robust loss grows linearly, in log time over a point's spread relative
to ``SPREAD_FLOOR``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sizes and times of one collective, several rows per size."""

    sizes: Array
    times: Array

    def medians(self) -> "Samples":
        """Return the median time of every distinct size, in order of size."""
        sizes = np.unique(self.sizes)
        return Samples(
            sizes=sizes, times=np.array([np.median(self.times[self.sizes == s]) for s in sizes])
        )

    def spreads(self) -> Array:
        """Return half the relative range of the times of every distinct size, in order of size."""
        times = [np.log(self.times[self.sizes == size]) for size in np.unique(self.sizes)]
        return np.array([np.ptp(each) / 2 for each in times])

    def weights(self) -> Array:
        """Return the weight of every size's median: 1 where repeats agree, less otherwise."""
        return SPREAD_FLOOR / np.maximum(self.spreads(), SPREAD_FLOOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Relative errors on held-out points, summed up four ways."""

    median: float
    """Median of the absolute errors."""
    mape: float
    """Mean absolute percentage error, as a share."""
    gmae: float
    """Geometric mean of the absolute errors, the paper's measure."""
    p90: float
    """90th percentile of the absolute errors."""


def accuracy(errors: Array) -> Accuracy:
    """Return a summary of signed relative errors.

    The geometric mean takes logarithms of errors of at least 1e-4, below which no measurement
    repeats. Median and percentile are at most what a profile may say (``MOST_ERROR``).
    """
    size = np.abs(errors)
    return Accuracy(
        median=rounded(min(MOST_ERROR, float(np.median(size)))),
        mape=rounded(float(np.mean(size))),
        gmae=rounded(float(np.exp(np.mean(np.log(size + 1e-4))))),
        p90=rounded(min(MOST_ERROR, float(np.quantile(size, 0.9)))),
    )


def fitted_family(
    errors: Accuracy, num_points: int, origin: str, ranges: Mapping[str, tuple[float, float]]
) -> KernelFamily:
    """Return what fitted kernels rest on, as a profile says it."""
    return KernelFamily(
        source=Source.FITTED,
        origin=origin,
        num_points=num_points,
        error=errors.median,
        error_p90=errors.p90,
        ranges=ranges,
    )


def alpha_beta(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit a latency and a bandwidth, t = a + m / b, in log error."""
    goal = np.log(times)

    def miss(parameters: Array) -> Array:
        latency, slope = np.exp(parameters)
        error: Array = weights * (np.log(latency + slope * sizes) - goal)
        return error

    latency, slope = np.exp(_least(miss, np.log([times[0], (times / sizes)[-1]])))
    return lambda m: latency + slope * m


def two_lines(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit the slower of two straight lines in log-log space."""
    return _lines(sizes, times, weights, 2)


def three_lines(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit the slowest of three straight lines in log-log space."""
    return _lines(sizes, times, weights, 3)


def log_pchip(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit a monotone cubic through the points in log-log space, made increasing first."""
    growing = isotonic_regression(np.log(times), weights=weights).x
    cubic = PchipInterpolator(np.log(sizes), growing)
    return _beyond(lambda m: np.exp(cubic(np.log(m))), sizes, times)


def lines_and_residual(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit three lines, times a PCHIP through their residuals."""
    lines = three_lines(sizes, times, weights)
    rest = PchipInterpolator(np.log(sizes), np.log(times / lines(sizes)))
    low, high = sizes[0], sizes[-1]
    return lambda m: lines(m) * np.exp(rest(np.log(np.clip(m, low, high))))


FORMS: Forms = {
    "two_lines": two_lines,
    "three_lines": three_lines,
    "log_pchip": log_pchip,
    "lines_and_residual": lines_and_residual,
}


def fitted_form(fit: Fitter, samples: Samples) -> Form:
    """Fit a form to the medians of some samples."""
    points = samples.medians()
    return fit(points.sizes, points.times, samples.weights())


def holdout_errors(samples: Samples, forms: Forms = FORMS) -> dict[str, Array]:
    """Return every form's relative error on every row, predicted without the row's size.

    Alternate sizes are held out, the odd and then the even ones; the two ends are always given.
    """
    points, weights = samples.medians(), samples.weights()
    inner = np.arange(1, len(points.sizes) - 1)
    errors: dict[str, list[Array]] = {name: [] for name in forms}
    for fold in (0, 1):
        given = np.setdiff1d(np.arange(len(points.sizes)), inner[fold::2])
        rows = np.isin(samples.sizes, points.sizes[inner[fold::2]])
        for name, fit in forms.items():
            form = fit(points.sizes[given], points.times[given], weights[given])
            errors[name].append(form(samples.sizes[rows]) / samples.times[rows] - 1)
    return {name: np.concatenate(parts) for name, parts in errors.items()}


def knots(form: Form, first: float, last: float) -> tuple[tuple[float, float], ...]:
    """Return two points (bytes, seconds) per octave of a form; times are rounded and increase."""
    num_knots = round(np.log2(last / first) * KNOTS_PER_OCTAVE) + 1
    return _knots(form, np.round(np.geomspace(first, last, num_knots)))


def knots_beyond(
    form: Form, points: Samples
) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]:
    """Return knots of a form over the sizes it was fitted to, and those of a line beyond."""
    first, last = max(float(points.sizes[0]), 512.0), float(points.sizes[-1])
    inside = knots(form, first, last)
    straight = _beyond(form, points.sizes, points.times)
    outside = _knots(straight, last * np.array(BEYOND))
    return inside, tuple((size, max(time, inside[-1][1])) for size, time in outside)


def rounded(value: float) -> float:
    """Return a number rounded to its significant digits."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _knots(form: Form, sizes: Array) -> tuple[tuple[float, float], ...]:
    """Return (bytes, seconds) of a form at some sizes, rounded and increasing."""
    times = np.maximum.accumulate(form(sizes))
    return tuple((float(s), rounded(float(t))) for s, t in zip(sizes, times, strict=True))


def _beyond(inside: Form, sizes: Array, times: Array) -> Form:
    """Return a form extended by its first time below the points, and a straight line above.

    The line t = a + m / b is that of the last points (``_last_line``), moved to meet the form.
    """
    low, high = sizes[0], sizes[-1]
    slope = _last_line(sizes, times)
    return lambda m: inside(np.clip(m, low, high)) + slope * np.maximum(m - high, 0.0)


def _last_line(sizes: Array, times: Array) -> float:
    """Return seconds per byte at the last points: between half and all of the last point's own."""
    near = max(2, int(np.sum(sizes >= sizes[-1] / 8)))
    x, y = sizes[-near:], times[-near:]
    slope = float(np.polyfit(x, y, 1, w=1 / y)[0])
    whole = float(times[-1] / sizes[-1])
    return min(max(slope, whole / 2), whole)


def _least(miss: Callable[[Array], Array], start: Array, **more: Any) -> Array:  # noqa: ANN401
    """Return parameters of least residuals; those beyond ``OUTLIER`` count linearly."""
    fit = least_squares(miss, start, loss="soft_l1", f_scale=OUTLIER, **more)
    found: Array = fit.x
    return found


def _lines(sizes: Array, times: Array, weights: Array, num_lines: int) -> Form:
    """Fit log t = max over i of a_i + g_i log m, with 0 <= g_i <= 1.

    One line with g = 0 is latency, one with g = 1 bandwidth; t never falls as m grows. Starts from
    the best way to cut the points into runs with a line each.
    """
    x, goal = np.log(sizes), np.log(times)

    def log_time(parameters: Array, log_size: Array) -> Array:
        offset, slope = parameters.reshape(2, num_lines)
        each: Array = offset[:, None] + slope[:, None] * log_size[None, :]
        result: Array = each.max(axis=0)
        return result

    def miss(parameters: Array) -> Array:
        return weights * (log_time(parameters, x) - goal)

    starts = _cut_into_lines(x, goal, weights, num_lines)
    start = min(starts, key=lambda parameters: float(np.sum(np.abs(miss(parameters)))))
    bounds = ([-np.inf] * num_lines + [0.0] * num_lines, [np.inf] * num_lines + [1.0] * num_lines)
    found = _least(miss, start, bounds=bounds, max_nfev=POLISH)
    best = min((start, found), key=lambda parameters: float(np.sum(np.abs(miss(parameters)))))
    return lambda m: np.exp(log_time(best, np.log(m)))


def _cut_into_lines(x: Array, y: Array, weights: Array, num_lines: int) -> Iterator[Array]:
    """Yield offsets and slopes of lines through every way to cut the points into runs."""
    lines = {
        (i, j): _line(x[i:j], y[i:j], weights[i:j])
        for i in range(len(x))
        for j in range(i + 2, len(x) + 1)
    }
    for cuts in combinations(range(2, len(x) - 1), num_lines - 1):
        runs = list(pairwise((0, *cuts, len(x))))
        if all(run in lines for run in runs):
            yield np.array([lines[run] for run in runs]).T.ravel()


def _line(x: Array, y: Array, weights: Array) -> tuple[float, float]:
    """Return offset and slope of a weighted least-squares line, the slope kept off 0 and 1."""
    share = weights / weights.sum()
    middle, height = float(share @ x), float(share @ y)
    slope = float(share @ ((x - middle) * (y - height)) / (share @ (x - middle) ** 2))
    slope = min(max(slope, 1e-6), 1 - 1e-6)
    return height - slope * middle, slope
