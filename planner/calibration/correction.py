"""Learning a rising line that turns a roofline's times into measured ones.

Of measurements in the order of the roofline's time t, every eighth part is a knot: its mean log t
and the median of log (measured / t). An isotonic fit then makes ``log measured - (1 - s) log t``
rise from knot to knot, so that corrected times rise at least like t^(1 - s).
"""

from collections.abc import Iterable

import numpy as np
from scipy.optimize import isotonic_regression

from costmodel.base.arrays import Array
from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from planner.calibration.curves import rounded

FEWEST_POINTS = 50
"""Smallest number of measurements that a correction is learned from."""
_NUM_KNOTS = 8
_PER_KNOT = 5
_SLACK = 0.7
"""s: how steeply a correction may fall with the roofline's time."""


def learned_correction(rough: Array, measured: Array) -> TimeCorrection:
    """Return the correction of a roofline's seconds to measured ones; none if there are too few."""
    known = (rough > 0) & (measured > 0)
    if known.sum() < FEWEST_POINTS or len(np.unique(rough[known])) < _NUM_KNOTS:
        return NO_CORRECTION
    logs, ratios = np.log(rough[known]), np.log(measured[known] / rough[known])
    order = np.argsort(logs, kind="stable")
    parts = np.array_split(order, min(_NUM_KNOTS, len(order) // _PER_KNOT))
    place = np.array([logs[part].mean() for part in parts])
    factor = np.array([np.median(ratios[part]) for part in parts])
    rising = isotonic_regression(
        factor + _SLACK * place, weights=[float(len(part)) for part in parts]
    ).x
    seconds, corrected = np.exp(place), np.exp(rising + (1 - _SLACK) * place)
    return TimeCorrection(tuple(_apart(zip(seconds.tolist(), corrected.tolist(), strict=True))))


def _apart(pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return rounded knots; of those that rounding makes equal, the first."""
    knots: list[tuple[float, float]] = []
    for before, after in pairs:
        knot = (rounded(before), rounded(after))
        if not knots or (knot[0] > knots[-1][0] and knot[1] > knots[-1][1]):
            knots.append(knot)
    return knots
