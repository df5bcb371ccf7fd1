from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("scipy", reason="fits need scipy, the `fit` extra")

from bench.fitting.curves import FORMS, Samples, holdout_errors, knots
from bench.fitting.gemm import carried_over, products
from bench.fitting.sources import DATA
from costmodel.hardware import GemmEfficiency
from costmodel.units import TFLOP

SIZES = 2.0 ** np.arange(9, 30)
LATENCY, BANDWIDTH = 10e-6, 200e9

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")


@pytest.mark.parametrize("name", ["alpha_beta", "log_pchip", "lines_and_residual", "paper_sigmoid"])
def test_forms_recover_latency_and_bandwidth(name: str) -> None:
    times = LATENCY + SIZES / BANDWIDTH
    form = FORMS[name](SIZES, times)
    assert form(SIZES) == pytest.approx(times, rel=0.06)


def test_alpha_beta_extrapolates_its_own_law() -> None:
    form = FORMS["alpha_beta"](SIZES, LATENCY + SIZES / BANDWIDTH)
    assert form(np.array([2.0**33])) == pytest.approx(LATENCY + 2.0**33 / BANDWIDTH, rel=1e-3)


def test_held_out_points_are_not_seen() -> None:
    # one point off by two: no form that never saw it can hit it, so its error is about one half
    times = LATENCY + SIZES / BANDWIDTH
    times[10] *= 2
    sizes, rows = np.tile(SIZES, 1), np.tile(times, 1)
    errors = holdout_errors(Samples(sizes=sizes, times=rows))
    assert set(errors) == set(FORMS)
    assert errors["log_pchip"] < 0.05  # the median does not mind one bad point


def test_samples_are_joined_by_their_median() -> None:
    samples = Samples(sizes=np.array([2.0, 1.0, 1.0, 1.0]), times=np.array([5.0, 1.0, 3.0, 2.0]))
    points = samples.medians()
    assert points.sizes.tolist() == [1.0, 2.0]
    assert points.times.tolist() == [2.0, 5.0]


def test_knots_grow_even_where_the_form_falls() -> None:
    made = knots(lambda m: 1e-6 * (2 + np.sin(np.log2(m))), 512, 2**29)
    assert len(made) == 41
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(made))


def test_carried_over_constants_are_not_called_measured() -> None:
    fitted = GemmEfficiency(
        peak=312 * TFLOP,
        max_efficiency=0.9,
        tile_efficiency=(1.0, 0.9, 0.5, 0.2),
        prologue_depth=100,
        split_time=1e-6,
        l2_efficiency=0.5,
        memory_efficiency=0.9,
        latency=2e-6,
        error=0.07,
    )
    carried = carried_over(fitted, fitted, 125.0)
    assert carried.error is None
    assert carried.peak == 125 * TFLOP
    assert carried.max_efficiency == fitted.max_efficiency


@needs_data
def test_backward_passes_of_two_products_are_left_out() -> None:
    # 86 V100 rows, of which those that time dX and dW together are of no use
    measured = products("V100", "fp32")
    assert 50 < len(measured.times) < 86
    assert measured.times.max() < 500e-6
