"""Forms that a collective's curve may have in shipped profiles: the sigmoid of Lin et al., too.

``planner calibrate`` chooses among forms that never fall (``planner.calibration.curves``).
"""

from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit

from costmodel.base.arrays import Array
from planner.calibration.curves import FORMS, Form, Forms, alpha_beta


def paper_sigmoid(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit the paper's form, its two breakpoints searched among the points (see cost-models.md)."""
    best: tuple[float, Form] = (np.inf, alpha_beta(sizes, times, weights))
    small = [i for i in range(1, len(sizes)) if times[i] < 2 * times[0]][-5:]
    for low in small or [1]:
        for high in range(max(low + 5, len(sizes) - 4), len(sizes)):
            form = _sigmoid_between(sizes, times, weights, (low, high))
            if form is not None:
                best = min(best, (_mean_error(form(sizes), times), form), key=lambda pair: pair[0])
    return best[1]


def _sigmoid(x: Array, height: float, middle: float, steepness: float, offset: float) -> Array:
    steep = np.clip(-steepness * (x - middle), -500.0, 500.0)  # further out it is flat anyway
    return height / (1 + np.exp(steep)) + offset


def _sigmoid_slopes(
    x: Array, height: float, middle: float, steepness: float, offset: float
) -> Array:
    """Return the derivatives of `_sigmoid` by its four parameters, one column each."""
    del offset
    rise = _sigmoid(x, 1.0, middle, steepness, 0.0)
    bend = height * rise * (1 - rise)
    return np.stack([rise, -steepness * bend, (x - middle) * bend, np.ones_like(x)], axis=1)


def _sigmoid_between(
    sizes: Array, times: Array, weights: Array, between: tuple[int, int]
) -> Form | None:
    """Fit one pair of breakpoints; None if the sigmoid does not converge."""
    low, high = between
    latency, bandwidth = float(np.mean(times[: low + 1])), float(np.median((sizes / times)[high:]))
    x, y = np.log2(sizes[low : high + 1]), np.log10((sizes / times)[low : high + 1])
    start = (np.ptp(y) * 1.5, float(np.median(x)), 0.3, float(y.min()) - 0.3)
    fitted = _fitted_sigmoid(x, y, start, weights[low : high + 1])
    if fitted is None:
        return None
    return _sigmoid_form(fitted, (sizes[low], sizes[high]), latency, bandwidth)


def _fitted_sigmoid(
    x: Array, y: Array, start: tuple[float, ...], weights: Array
) -> tuple[float, ...] | None:
    with catch_warnings():
        simplefilter("ignore", OptimizeWarning)  # of the covariance, which nobody asked for
        try:
            fitted, _ = curve_fit(
                _sigmoid, x, y, p0=start, sigma=1 / weights, jac=_sigmoid_slopes, maxfev=400
            )
        except RuntimeError:
            return None
    return tuple(fitted)


def _sigmoid_form(
    sigmoid: tuple[float, ...], between: tuple[float, float], latency: float, bandwidth: float
) -> Form:
    def form(m: Array) -> Array:
        middle = m / 10 ** _sigmoid(np.log2(m), *sigmoid)
        time = np.where(m >= between[1], m / bandwidth, middle)
        return np.where(m <= between[0], latency, time)

    return form


def _mean_error(predicted: Array, times: Array) -> float:
    return float(np.mean(np.abs(np.log(predicted / times))))


CANDIDATES: Forms = {"paper_sigmoid": paper_sigmoid, **FORMS}
"""Forms that a shipped curve may have."""
