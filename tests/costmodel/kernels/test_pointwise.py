from dataclasses import replace

import pytest
from machines import gpu

from costmodel.base.units import GB, MB, US
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import batched_gemm_time
from costmodel.kernels.pointwise import (
    CONCAT_EFFICIENCY,
    batched_product_time,
    concat_time,
    in_place_time,
    index_backward_time,
    index_time,
    pointwise_time,
    row_sum_time,
    scalar_time,
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
    single = replace(GPU.gemm["fp32"], peak=20e12, max_efficiency=0.5, vector_time=5e-9)
    core = replace(GPU, num_sms=1, gemm={"fp32": single})
    made = batched_product_time(1000, 100, 100, 128, DataType.FP32, core)
    moved = 1000 * 4 * (100 * 128 + 128 * 100 + 100 * 100) / 1e12
    assert made == pytest.approx(2 * US + 1000 * 700 * (5e-9 + 2 * 16 * 128 / 10e12) + moved)


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
    # 2.2 elements a ns on the 80 SMs of a V100; 4.9 on the 132 of an H200
    volta, hopper = replace(GPU, num_sms=80), replace(GPU, num_sms=132)
    assert index_backward_time(2.2e6, volta) == pytest.approx(1002 * US)
    assert index_backward_time(65536 * 351, hopper) == pytest.approx(4682 * US, rel=0.02)


def test_a_kernel_that_is_not_vectorized_is_bound_by_the_sms_of_a_fast_memory() -> None:
    # 226 M numbers from FP16 to FP32 in 635 us, and added to a transpose in 1,281, on an H200
    hopper = replace(GPU, num_sms=132, memory_bandwidth=4446 * GB)
    numbers = 65536 * 27 * 128
    assert scalar_time(numbers, 6 * numbers, hopper) == pytest.approx(635 * US, rel=0.02)
    made = scalar_time(numbers, 12 * numbers, hopper, transposed=True)
    assert made == pytest.approx(1281 * US, rel=0.02)
    slow = replace(hopper, memory_bandwidth=800 * GB)
    assert scalar_time(numbers, 6 * numbers, slow) == pointwise_time(6 * numbers, slow)


def test_a_fast_memory_is_too_fast_for_concatenation() -> None:
    # 1,745 MB in 592 us on an H200
    hopper = replace(GPU, num_sms=132, memory_bandwidth=4446 * GB)
    assert concat_time(1745 * MB, hopper) == pytest.approx(592 * US, rel=0.03)


def test_adding_rows_up_takes_a_time_of_its_own_for_each() -> None:
    # 2 us of the kernel, 2 of semaphores; 1 ns for each row, or the bytes at 1 TB/s
    assert row_sum_time(4096, 128, 2, GPU) == pytest.approx(8.096 * US)
    assert row_sum_time(4096, 4096, 4, GPU) == pytest.approx((4 + 67.1) * US, rel=1e-3)
    assert row_sum_time(4096, 1, 2, GPU) == pointwise_time(8192, GPU)
    assert row_sum_time(4096, 128, 2, replace(GPU, num_sms=1)) == pointwise_time(2**20, GPU)


def test_a_core_takes_views_at_a_share_of_its_own() -> None:
    # 100 MB at 1000 GB/s are 100 us; a core takes its shares of the bandwidth, a GPU the constant
    core = replace(GPU, num_sms=1, concat_efficiency=0.8, view_efficiency=0.4)
    assert concat_time(100 * MB, core) == pytest.approx(2 * US + 125 * US)
    assert view_concat_time(100 * MB, core) == pytest.approx(2 * US + 250 * US)
    assert view_concat_time(100 * MB, GPU) == concat_time(100 * MB, GPU)


def test_a_core_changes_a_tensor_in_place_faster_than_it_makes_one() -> None:
    core = replace(GPU, num_sms=1, in_place_efficiency=2.0)
    assert in_place_time(100 * MB, core) == pytest.approx(2 * US + 50 * US)
    assert in_place_time(100 * MB, GPU) == pointwise_time(100 * MB, GPU)
