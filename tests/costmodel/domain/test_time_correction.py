from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import machine

from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_time
from costmodel.kernels.pointwise import concat_time, pointwise_time
from costmodel.kernels.times import stream_times

KNOTS = TimeCorrection(((1e-5, 2e-5), (1e-4, 1.5e-4), (1e-3, 4e-4)))
steps = st.lists(st.floats(1.001, 50.0), min_size=1, max_size=8)


def test_between_knots_it_is_straight_and_beyond_in_proportion() -> None:
    given_times = [5e-6, 1e-5, 5.5e-5, 1e-3, 1e-2]
    assert KNOTS.corrected(given_times) == pytest.approx([1e-5, 2e-5, 8.5e-5, 4e-4, 4e-3])
    assert KNOTS.least_factor == pytest.approx(0.4)
    assert NO_CORRECTION.corrected(given_times).tolist() == given_times
    assert NO_CORRECTION.least_factor == 1.0


@pytest.mark.parametrize(
    "knots", [((1.0, 2.0), (2.0, 2.0)), ((1.0, 2.0), (1.0, 3.0)), ((0.0, 1.0),), ((1.0, -1.0),)]
)
def test_knots_must_rise(knots: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="grow"):
        TimeCorrection(knots)


@given(steps, steps, st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=20))
def test_it_rises_and_stays_above_its_least_factor(
    before: list[float], after: list[float], times: list[float]
) -> None:
    places = zip(1e-6 * np.cumprod(before), 1e-6 * np.cumprod(after), strict=False)
    correction = TimeCorrection(tuple((float(a), float(b)) for a, b in places))
    ordered = np.sort(times)
    corrected = correction.corrected(ordered)
    assert (np.diff(corrected) >= 0).all()
    assert (corrected >= correction.least_factor * ordered * (1 - 1e-12)).all()
    assert correction.scaled(3.0).corrected(3.0 * ordered) == pytest.approx(3.0 * corrected)


def test_memory_bound_kernels_take_corrected_times_and_the_search_the_same() -> None:
    plain = machine()
    gpu = replace(plain.gpu, stream_correction=KNOTS)
    sizes = np.geomspace(1e3, 1e11, 40)
    for time in (pointwise_time, concat_time):
        rough = [time(size, plain.gpu) for size in sizes]
        assert [time(size, gpu) for size in sizes] == pytest.approx(KNOTS.corrected(rough))
    searched = stream_times(sizes, gpu.kernel_latency, gpu.memory_bandwidth, KNOTS.array)
    assert searched == pytest.approx([pointwise_time(size, gpu) for size in sizes], rel=1e-12)


def test_products_take_corrected_times() -> None:
    gpu = machine().gpu
    constants = replace(gpu.gemm["fp32"], correction=KNOTS)
    sizes = np.array([16.0, 512.0, 8192.0])
    plain = gemm_time(sizes, sizes, sizes, DataType.FP32, gpu)
    corrected = gemm_time(
        sizes, sizes, sizes, DataType.FP32, replace(gpu, gemm={"fp32": constants})
    )
    assert corrected == pytest.approx(KNOTS.corrected(plain))
