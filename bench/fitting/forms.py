"""Forms that a collective's curve is compared with: alpha-beta, and the sigmoid of Lin et al.

``planner calibrate`` chooses among forms that never fall; shipped curves (``bench.fit_profiles``)
may be the paper's, too.
"""

from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.optimize import OptimizeWarning, curve_fit

from planner.calibration.curves import FORMS, Array, Form, Forms, alpha_beta


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


def paper_rules(sizes: Array, times: Array, weights: Array) -> Form:
    """Fit the paper's form with the breakpoints that its authors' code chooses.

    m1 is the point before the first one, from the sixth on, where the time's second difference in
    log space exceeds 10% (else the fifth); t_s is the time of the point before m1. m2 is the last
    point below 95% of the highest bandwidth. The sigmoid is fitted to all points.

    References
    ----------
    owensgroup/ml_perf_model@0e95a229, analysis/memory_bw_utils.py, ``get_turning_points``; without
    the latency that it adds above m2 (see cost-models.md).

    """
    rate = sizes / times
    bend = np.abs(times[:-2] * times[2:] / times[1:-1] ** 2 - 1)
    jumps = [i for i in range(5, len(sizes) - 1) if bend[i - 1] > 0.1]
    unsaturated = [i for i in range(1, len(sizes) - 1) if rate[i] < 0.95 * rate.max()]
    low = min(jumps[0] - 1 if jumps else 4, len(sizes) - 1)
    high = unsaturated[-1] if unsaturated else len(sizes) - 1
    x, y = np.log2(sizes), np.log10(rate)
    start = (float(np.ptp(y)), float(np.median(x)), 1.0, float(y.min()))
    fitted = _fitted_sigmoid(x, y, start, weights)
    if fitted is None:
        return alpha_beta(sizes, times, weights)
    return _sigmoid_form(
        fitted, (sizes[low], sizes[high]), float(times[max(low - 1, 0)]), float(rate.max())
    )


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


COMPARED: Forms = {"alpha_beta": alpha_beta, "paper_rules": paper_rules}
"""Forms that are there to be compared with."""
CANDIDATES: Forms = {"paper_sigmoid": paper_sigmoid, **FORMS}
"""Forms that a shipped curve may have."""
ALL_FORMS: Forms = {**COMPARED, **CANDIDATES}
