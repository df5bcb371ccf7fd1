"""Forms of time against message size, fitted in relative error, and judged on held-out points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import curve_fit, isotonic_regression, least_squares

Array: TypeAlias = NDArray[np.float64]
Form: TypeAlias = Callable[[Array], Array]
"""Seconds of sizes in bytes."""

KNOTS_PER_OCTAVE = 2
SIGNIFICANT_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sizes and times of one collective, several rows per size."""

    sizes: Array
    times: Array

    def medians(self) -> "Samples":
        """Median time per distinct size, in order of size."""
        sizes = np.unique(self.sizes)
        return Samples(
            sizes=sizes, times=np.array([np.median(self.times[self.sizes == s]) for s in sizes])
        )


def alpha_beta(sizes: Array, times: Array) -> Form:
    """Fit a latency and a bandwidth, t = a + m / b, in log error."""
    goal = np.log(times)
    start = np.log([times[0], (times / sizes)[-1]])

    def miss(parameters: Array) -> Array:
        latency, slope = np.exp(parameters)
        error: Array = np.log(latency + slope * sizes) - goal
        return error

    latency, slope = np.exp(least_squares(miss, start).x)
    return lambda m: latency + slope * m


def two_lines(sizes: Array, times: Array) -> Form:
    """Fit the slower of two straight lines in log-log space."""
    return _lines(sizes, times, 2)


def three_lines(sizes: Array, times: Array) -> Form:
    """Fit the slowest of three straight lines in log-log space."""
    return _lines(sizes, times, 3)


def paper_sigmoid(sizes: Array, times: Array) -> Form:
    """Fit the paper's form, its two breakpoints searched among the points (see cost-models.md)."""
    best: tuple[float, Form] = (np.inf, alpha_beta(sizes, times))
    small = [i for i in range(1, len(sizes)) if times[i] < 2 * times[0]][-5:]
    for low in small or [1]:
        for high in range(max(low + 5, len(sizes) - 4), len(sizes)):
            form = _sigmoid_between(sizes, times, low, high)
            if form is not None:
                best = min(best, (_mean_error(form(sizes), times), form), key=lambda pair: pair[0])
    return best[1]


def log_pchip(sizes: Array, times: Array) -> Form:
    """Monotone cubic through the points in log-log space, made increasing first."""
    growing = isotonic_regression(np.log(times)).x
    cubic = PchipInterpolator(np.log(sizes), growing)
    low, high = sizes[0], sizes[-1]
    return lambda m: np.exp(cubic(np.log(np.clip(m, low, high)))) * np.maximum(m / high, 1.0)


def lines_and_residual(sizes: Array, times: Array) -> Form:
    """Three lines, times a PCHIP through what they miss."""
    lines = three_lines(sizes, times)
    rest = PchipInterpolator(np.log(sizes), np.log(times / lines(sizes)))
    low, high = sizes[0], sizes[-1]
    return lambda m: lines(m) * np.exp(rest(np.log(np.clip(m, low, high))))


FORMS: Mapping[str, Callable[[Array, Array], Form]] = {
    "alpha_beta": alpha_beta,
    "paper_sigmoid": paper_sigmoid,
    "two_lines": two_lines,
    "three_lines": three_lines,
    "log_pchip": log_pchip,
    "lines_and_residual": lines_and_residual,
}


def holdout_errors(samples: Samples) -> dict[str, float]:
    """Median relative error of every form on every row of the sizes it was not given.

    Alternate sizes are held out, the odd and then the even ones; the two ends are always given.
    """
    points = samples.medians()
    inner = np.arange(1, len(points.sizes) - 1)
    errors: dict[str, list[Array]] = {name: [] for name in FORMS}
    for fold in (0, 1):
        given = np.setdiff1d(np.arange(len(points.sizes)), inner[fold::2])
        rows = np.isin(samples.sizes, points.sizes[inner[fold::2]])
        for name, fit in FORMS.items():
            form = fit(points.sizes[given], points.times[given])
            errors[name].append(np.abs(form(samples.sizes[rows]) / samples.times[rows] - 1))
    return {name: float(np.median(np.concatenate(parts))) for name, parts in errors.items()}


def knots(form: Form, first: float, last: float) -> tuple[tuple[float, float], ...]:
    """Two points per octave of a form, times rounded and made to grow."""
    num_knots = round(np.log2(last / first) * KNOTS_PER_OCTAVE) + 1
    sizes = np.round(np.geomspace(first, last, num_knots))
    times = np.maximum.accumulate(form(sizes))
    return tuple((float(s), rounded(float(t))) for s, t in zip(sizes, times, strict=True))


def rounded(value: float) -> float:
    """Keep the digits that mean something."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _lines(sizes: Array, times: Array, num_lines: int) -> Form:
    """Fit log t = max over i of a_i + g_i log m, with 0 <= g_i <= 1, from a few starts.

    One line with g = 0 is latency, one with g = 1 bandwidth; t never falls as m grows.
    """
    x, goal = np.log(sizes), np.log(times)

    def log_time(parameters: Array, log_size: Array) -> Array:
        offset, slope = parameters.reshape(2, num_lines)
        each: Array = offset[:, None] + slope[:, None] * log_size[None, :]
        result: Array = each.max(axis=0)
        return result

    def miss(parameters: Array) -> Array:
        return log_time(parameters, x) - goal

    slopes = np.linspace(0.0, 1.0, num_lines)
    bounds = ([-np.inf] * num_lines + [0.0] * num_lines, [np.inf] * num_lines + [1.0] * num_lines)
    fits = []
    for middle in (0.3, 0.5, 0.7):
        where = np.quantile(np.arange(len(x)), np.linspace(0, 1, num_lines) ** (1 / (2 * middle)))
        near = np.round(where).astype(int)
        start = np.concatenate([goal[near] - slopes * x[near], np.clip(slopes, 1e-6, 1 - 1e-6)])
        fits.append(least_squares(miss, start, bounds=bounds))
    best = min(fits, key=lambda fit: fit.cost).x
    return lambda m: np.exp(log_time(best, np.log(m)))


def _sigmoid_between(sizes: Array, times: Array, low: int, high: int) -> Form | None:
    """Fit one pair of breakpoints; None if the sigmoid does not converge."""
    latency, bandwidth = float(np.mean(times[: low + 1])), float(np.median((sizes / times)[high:]))
    x, y = np.log2(sizes[low : high + 1]), np.log10((sizes / times)[low : high + 1])

    def sigmoid(x: Array, height: float, middle: float, steepness: float, offset: float) -> Array:
        return height / (1 + np.exp(-steepness * (x - middle))) + offset

    start = (np.ptp(y) * 1.5, float(np.median(x)), 0.3, float(y.min()) - 0.3)
    try:
        fitted, _ = curve_fit(sigmoid, x, y, p0=start, maxfev=400)
    except RuntimeError:
        return None

    def form(m: Array) -> Array:
        middle = m / 10 ** sigmoid(np.log2(m), *fitted)
        time = np.where(m >= sizes[high], m / bandwidth, middle)
        return np.where(m <= sizes[low], latency, time)

    return form


def _mean_error(predicted: Array, times: Array) -> float:
    return float(np.mean(np.abs(np.log(predicted / times))))
