from itertools import pairwise

import numpy as np
import pytest
from needed import needs_data

from bench.fit_profiles import bare_gpu, operators_of
from bench.fitting.forms import CANDIDATES
from bench.fitting.gemm import carried_over, products
from costmodel.base.units import TFLOP
from costmodel.domain.hardware import GemmEfficiency
from planner.calibration.curves import (
    Samples,
    accuracy,
    alpha_beta,
    fitted_form,
    holdout_errors,
    knots,
    knots_beyond,
)

FORMS = {"alpha_beta": alpha_beta, **CANDIDATES}
SIZES = 2.0 ** np.arange(9, 30)
LATENCY, BANDWIDTH = 10e-6, 200e9
ALIKE = np.ones_like(SIZES)
"""Equal weights."""


@pytest.mark.parametrize("name", ["alpha_beta", "log_pchip", "lines_and_residual", "paper_sigmoid"])
def test_forms_recover_latency_and_bandwidth(name: str) -> None:
    times = LATENCY + SIZES / BANDWIDTH
    form = FORMS[name](SIZES, times, ALIKE)
    assert form(SIZES) == pytest.approx(times, rel=0.06)


def test_alpha_beta_extrapolates_its_own_law() -> None:
    form = alpha_beta(SIZES, LATENCY + SIZES / BANDWIDTH, ALIKE)
    assert form(np.array([2.0**33])) == pytest.approx(LATENCY + 2.0**33 / BANDWIDTH, rel=1e-3)


def test_held_out_points_are_not_seen() -> None:
    # one point off by two: no form that never saw it can hit it, so its error is about one half
    times = LATENCY + SIZES / BANDWIDTH
    times[10] *= 2
    sizes, rows = np.tile(SIZES, 1), np.tile(times, 1)
    errors = holdout_errors(Samples(sizes=sizes, times=rows), FORMS)
    assert set(errors) == set(FORMS)
    assert abs(errors["log_pchip"]).max() == pytest.approx(0.5, abs=0.05)
    assert accuracy(errors["log_pchip"]).median < 0.05  # the median does not mind one bad point


def test_errors_are_summed_up_four_ways() -> None:
    # 1%, 1%, 1% and 16%: mean 4.75%, geometric mean 2% (2 = sqrt(sqrt(16)))
    found = accuracy(np.array([0.01, -0.01, 0.01, -0.16]))
    assert found.median == pytest.approx(0.01)
    assert found.mape == pytest.approx(0.0475)
    assert found.gmae == pytest.approx(0.02, rel=0.02)
    assert found.p90 == pytest.approx(0.115)


def test_points_that_do_not_repeat_weigh_less() -> None:
    # 1 s and 1.2 s: half the range of the logarithms is 9.1%, 2% is what a good point has
    samples = Samples(sizes=np.array([1.0, 1.0, 2.0]), times=np.array([1.0, 1.2, 3.0]))
    assert samples.weights() == pytest.approx([0.02 / 0.0912, 1.0], rel=1e-3)


def test_one_wild_point_does_not_move_the_robust_fit() -> None:
    times = LATENCY + SIZES / BANDWIDTH
    times[12] *= 3
    form = alpha_beta(SIZES, times, ALIKE)
    assert form(SIZES[20:]) == pytest.approx(times[20:], rel=0.1)


@pytest.mark.parametrize("name", ["log_pchip", "paper_sigmoid"])
def test_curves_go_on_as_straight_lines(name: str) -> None:
    points = Samples(sizes=SIZES, times=LATENCY + SIZES / BANDWIDTH)
    inside, outside = knots_beyond(fitted_form(FORMS[name], points), points)
    assert inside[-1][0] == 2.0**29
    assert [size for size, _ in outside] == [2.0**31, 2.0**33]
    assert outside[1][1] == pytest.approx(LATENCY + 2.0**33 / BANDWIDTH, rel=0.03)


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
        num_points=100,
        shapes=((1, 2), (1, 2), (1, 2)),
    )
    carried = carried_over(fitted, fitted, 125.0)
    assert (carried.error, carried.num_points, carried.shapes) == (None, 0, ())
    assert carried.peak == 125 * TFLOP
    assert carried.max_efficiency == fitted.max_efficiency


@needs_data
def test_backward_passes_of_two_products_are_left_out() -> None:
    # 86 V100 rows, of which those that time dX and dW together are of no use
    measured = products("V100", "fp32")
    assert 50 < len(measured.times) < 86
    assert measured.times.max() < 500e-6


def test_profiles_are_fitted_from_themselves_and_keep_their_operators() -> None:
    assert dict(bare_gpu("h100-sxm").gemm) == {}
    kept = operators_of("h100-sxm")
    assert kept.startswith("operators:\n  source: ")
    assert "max_pool2d_with_indices_backward" in kept.splitlines()[-1]
    assert operators_of("mi300x") == ""
