"""Times of lookup kernels beside the equations of ``kernels.embedding``, all terms at once."""

from collections.abc import Sequence

import numpy as np
import pytest

from costmodel.base.arrays import Array
from costmodel.domain.time_correction import TimeCorrection
from costmodel.kernels.times import (
    LookupRates,
    exchange_times,
    lookup_times,
    stream_times,
    weight_gradient_times,
)
from costmodel.kernels.traffic import NUM_TRAFFIC, SORT_BLOCK_KEYS, Traffic

RATES = {
    "latency": 2.0, "forward_latency": 3.0, "backward_latency": 5.0, "sort_latency": 70.0,
    "lookup_bandwidth": 0.7, "update_bandwidth": 1.1, "gather_bandwidth": 1.3,
    "uvm_bandwidth": 1.7, "sort_rate": 190.0, "gradient_time": 2.3, "overlap": 0.6,
    "lookup_time": 0.0029, "row_read_time": 0.31, "row_update_time": 0.37, "bag_time": 0.41,
    "forward_turn_time": 0.43, "backward_turn_time": 0.47,
}  # fmt: skip
"""None is another one, or 0 or 1, so that each is seen."""
KNOTS = {
    "forward": TimeCorrection(((10.0, 15.0), (50.0, 60.0))),
    "backward": TimeCorrection(((20.0, 25.0), (90.0, 95.0))),
}


def kernels() -> Array:
    """Return kernels of which each term is the largest of some; the first look nothing up."""
    drawn = np.random.default_rng(0).uniform(0.0, 20.0, (400, NUM_TRAFFIC))
    drawn[:, Traffic.KEYS] *= 230
    drawn[:, Traffic.WIDEST] /= 10
    drawn[:9, Traffic.LOOKUPS] = np.linspace(-1.0, 0.0, 9)
    drawn[9, Traffic.KEYS] = SORT_BLOCK_KEYS
    return drawn


def moved(traffic: Array, hbm: float, on_chip: float, columns: tuple[Traffic, Traffic]) -> Array:
    """Return the larger of two times, and the part of the smaller that it does not hide."""
    both = traffic[:, columns] / (hbm, on_chip)
    return both.max(axis=1) + (1 - RATES["overlap"]) * both.min(axis=1)


def expected(traffic: Array, which: str) -> Array:
    r, t = RATES, dict(zip(Traffic, traffic.T, strict=True))
    idle = np.maximum(t[Traffic.WIDEST] * t[Traffic.LOOKUPS] - t[Traffic.TURNS], 0.0)
    if which == "backward":
        columns = Traffic.BACKWARD_HBM, Traffic.BACKWARD_L2
        busy = moved(traffic, r["update_bandwidth"], r["gather_bandwidth"], columns)
        rough = (
            r["backward_latency"]
            + 0.32 * t[Traffic.BAGS] * r["bag_time"]
            + np.where(t[Traffic.KEYS] > 2304, r["sort_latency"], 0.0)
            + t[Traffic.KEYS] / r["sort_rate"]
            + np.maximum(busy, t[Traffic.LOOKUPS] * r["gradient_time"])
            + t[Traffic.UPDATES] * r["row_update_time"]
            + idle * r["backward_turn_time"]
        )
        host = t[Traffic.BACKWARD_UVM] / r["uvm_bandwidth"]
        return KNOTS[which].corrected(rough) + host
    columns = Traffic.FORWARD_HBM, Traffic.FORWARD_L2
    busy = moved(traffic, r["lookup_bandwidth"], r["gather_bandwidth"], columns)
    gathered = np.maximum(busy + idle * r["forward_turn_time"], t[Traffic.CHAIN])
    gathered += t[Traffic.ROWS] * r["row_read_time"] + t[Traffic.KEYS] * r["lookup_time"]
    host = t[Traffic.FORWARD_UVM] / r["uvm_bandwidth"]
    if which == "weights":
        return r["latency"] + 1.85 * (gathered + host)
    checked = t[Traffic.BAGS] * r["bag_time"]
    return KNOTS[which].corrected(r["forward_latency"] + checked + gathered) + host


def test_lookups_take_what_their_equations_say() -> None:
    knots = {f"{name}_knots": each.array for name, each in KNOTS.items()}
    rates, traffic = LookupRates(**RATES, **knots), kernels()  # type: ignore[arg-type]
    some = traffic[:, Traffic.LOOKUPS] > 0
    for which, made in (
        ("forward", lookup_times(traffic, rates, backward=False)),
        ("backward", lookup_times(traffic, rates, backward=True)),
        ("weights", weight_gradient_times(traffic, rates)),
    ):
        assert made == pytest.approx(np.where(some, expected(traffic, which), 0.0)), which


def test_streams_take_a_latency_and_their_bytes() -> None:
    sizes, knots = np.array([-1.0, 0.0, 1e-9, 6.0, 20.0]), KNOTS["forward"]
    made = stream_times(sizes, 2.0, 0.5, knots.array)
    assert made[:2].tolist() == [0.0, 0.0]
    assert made[2:] == pytest.approx(knots.corrected(2.0 + sizes[2:] / 0.5))


@pytest.mark.parametrize("across", [0.125, 100.0])
@pytest.mark.parametrize(
    ("knots", "curve"),
    [
        # straight in log space between knots, the first one's time below, in proportion above
        ({1: 3, 4: 6, 64: 18}, (3, 3, 18**0.5, 6, 6 * 3**0.5, 18, 36)),
        ({8: 5}, (5, 5, 5, 5, 10, 40, 80)),
    ],
)
def test_a_collective_takes_what_its_form_says(
    knots: dict[float, float], curve: Sequence[float], across: float
) -> None:
    """Sizes are such that half of them, as the form has it, is 0.5 to 128 bytes on the curve."""
    sizes = 2 * np.array([0.5, 1.0, 2.0, 4.0, 16.0, 64.0, 128.0])
    form = np.array([[1.5, 2.5, 0.75, 0.5, 0.125, across, 1.0]])
    logs = np.log(list(knots)), np.log(list(knots.values()))
    inside = 2.5 + 0.75 * np.array(curve) + 0.125 * sizes
    expected_times = 1.5 + np.maximum(inside, across * sizes)
    assert exchange_times(sizes, form, *logs) == pytest.approx(expected_times)
    # it is optional: without bytes there is none; else it has its latency
    form[0, -1] = 0.0
    least = 1.5 + 2.5 + 0.75 * next(iter(knots.values()))
    assert exchange_times(np.zeros(1), form, *logs) == pytest.approx(least)
    form[0, -1] = 1.0
    assert exchange_times(np.zeros(1), form, *logs) == 0.0
