from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import gpu

from costmodel.base.units import GB, MB, US
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import batched_gemm_time
from costmodel.kernels.pointwise import (
    CONCAT_EFFICIENCY,
    batched_product_time,
    concat_time,
    index_backward_time,
    index_time,
    pointwise_time,
    view_concat_time,
)

GPU = gpu()


def test_pointwise_by_hand() -> None:
    # 100 MB at 1000 GB/s, after 2 us
    assert pointwise_time(100 * MB, GPU) == pytest.approx(102 * US)


def test_concatenation_reaches_less_bandwidth() -> None:
    assert concat_time(100 * MB, GPU) == pytest.approx(2 * US + 100 * US / CONCAT_EFFICIENCY)


def test_products_on_a_core_are_made_vector_by_vector() -> None:
    # 100 rows of 7 vectors of 16: 5 ns and 2 * 16 * 128 FLOP at 10 TFLOP/s each; 1 TB/s of memory
    single = replace(GPU.gemm["fp32"], vector_time=5e-9)
    core = replace(GPU, num_sms=1, gemm={"fp32": single})
    made = batched_product_time(1000, 100, 100, 128, DataType.FP32, core)
    moved = 1000 * 4 * (100 * 128 + 128 * 100 + 100 * 100) / 1e12
    assert made == pytest.approx(2 * US + 1000 * 700 * (5e-9 + 2 * 16 * 128 / 10e12) + moved)


def test_many_short_rows_on_a_core_take_longer_than_few_long_ones() -> None:
    single = replace(GPU.gemm["fp32"], vector_time=5e-9)
    core = replace(GPU, num_sms=1, gemm={"fp32": single})
    short = batched_product_time(1000, 64, 4, 4, DataType.FP32, core)
    assert short > 2 * batched_product_time(1000, 4, 64, 4, DataType.FP32, core)


def test_products_of_a_gpu_are_those_of_its_tilings() -> None:
    made = batched_product_time(1000, 27, 27, 128, DataType.FP32, GPU)
    assert made == batched_gemm_time(1000, 27, 27, 128, DataType.FP32, GPU)


def test_gathering_by_hand() -> None:
    # 2 us, 4 x 2 loads of 600 ns; 1e6 x 2 x 4 B at 1 TB/s, 1e6 x 2 x 8 B at the L2's 4 TB/s
    fast_l2 = replace(GPU, l2_bandwidth=4e12)
    assert index_time(1e6, 4, fast_l2) == pytest.approx((2 + 4.8 + 8 + 4) * US)


def test_a_core_gathers_as_it_streams() -> None:
    core = replace(GPU, num_sms=1)
    assert index_time(1e6, 4, core) == pointwise_time(8e6, core)


def test_index_backward_by_hand() -> None:
    # 2.2 elements a ns on a V100 of 817 GB/s
    made = index_backward_time(2.2e6 * 1000 / 817, GPU)
    assert made == pytest.approx(1002 * US)


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e12))
def test_more_bytes_never_take_less_time(one: float, more: float) -> None:
    for time in (pointwise_time, concat_time, index_backward_time):
        assert time(one + more, GPU) >= time(one, GPU) >= GPU.kernel_latency
        assert time(one, gpu(bandwidth=500 * GB)) >= time(one, GPU)


def test_a_core_takes_views_at_a_share_of_its_own() -> None:
    # 100 MB at 1000 GB/s are 100 us; a core takes its shares of the bandwidth, a GPU the constant
    core = replace(GPU, num_sms=1, concat_efficiency=0.8, view_efficiency=0.4)
    assert concat_time(100 * MB, core) == pytest.approx(2 * US + 125 * US)
    assert view_concat_time(100 * MB, core) == pytest.approx(2 * US + 250 * US)
    assert view_concat_time(100 * MB, GPU) == concat_time(100 * MB, GPU)
