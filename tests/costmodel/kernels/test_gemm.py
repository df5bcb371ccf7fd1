from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.base.units import US
from costmodel.domain.hardware import GemmEfficiency, Gpu, UnalignedRows
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import (
    BATCHED_DEPTH,
    at_alignment,
    batched_gemm_time,
    gemm_constants,
    gemm_estimate,
    gemm_time,
    row_alignment,
)

BF16 = GemmEfficiency(
    peak=100e12,
    max_efficiency=0.8,
    tile_efficiency=(1.0, 0.9, 0.5, 0.2),
    prologue_depth=64,
    split_time=1 * US,
    l2_efficiency=0.5,
    memory_efficiency=0.8,
    latency=2 * US,
    error=0.07,
)
GPU = Gpu(
    name="gpu",
    memory_bytes=80e9,
    memory_bandwidth=1e12,
    l2_bytes=40e6,
    l2_bandwidth=4e12,
    num_sms=100,
    kernel_latency=2 * US,
    lookup_efficiency=0.9,
    update_efficiency=0.7,
    sort_rate=1e10,
    gemm={"bf16": BF16},
)
UNALIGNED = replace(
    GPU,
    gemm={
        "bf16": replace(
            BF16,
            unaligned=(
                UnalignedRows(alignment_bytes=4, efficiency=0.5, bandwidth_efficiency=0.5),
                UnalignedRows(
                    alignment_bytes=2, efficiency=0.25, bandwidth_efficiency=0.4, latency=3 * US
                ),
            ),
        )
    },
)
sizes = st.integers(1, 70_000)


def test_one_full_wave_by_hand() -> None:
    # 100 tiles of 128 x 256, one per SM: 2 x 128 x 256 x (4096 + 64) flops at 0.8 x 1 TFLOP/s
    tile = 2 * 128 * 256 * 4160 / 0.8e12
    seconds = gemm_time(1280, 2560, 4096, DataType.BF16, GPU)
    assert seconds == pytest.approx(2 * US + tile)


def test_one_row_more_starts_another_wave() -> None:
    full = float(gemm_time(1280, 2560, 4096, DataType.BF16, GPU))
    more = float(gemm_time(1281, 2560, 4096, DataType.BF16, GPU))
    assert more > 1.05 * full


def test_batched_products_share_the_multiprocessors() -> None:
    # 1,000 tiles of 32 x 128 on 100 SMs are 10 waves of 2 x 32 x 128 x 128 flops at 0.4 TFLOP/s;
    # 16 x 64 pads less, and would take 2 x 10 x 2 x 16 x 64 x 128 at 0.16
    wave = 2 * 32 * 128 * 128 / 0.4e12
    smaller = 2 * 2 * 16 * 64 * 128 / 0.16e12
    made = batched_gemm_time(1000, 27, 27, 128, DataType.BF16, GPU)
    assert made == pytest.approx(2 * US + 10 * min(wave, smaller))


def test_shallow_batched_products_take_a_blocks_loads_and_stores() -> None:
    # 10 waves of 16 x 64 tiles, as if k were 61
    tile = 2 * 16 * 64 * BATCHED_DEPTH / 0.16e12
    shallow = [batched_gemm_time(1000, 9, 9, k, DataType.BF16, GPU) for k in (9, 32)]
    assert shallow == pytest.approx([2 * US + 10 * tile] * 2)


def test_many_small_products_are_bound_by_memory() -> None:
    # a million products move 132 GB: 40 MB from L2 at 2 TB/s, the rest at 0.8
    size = 1e6 * 2 * (256 + 256 + 256 * 256)
    made = batched_gemm_time(1_000_000, 256, 256, 1, DataType.BF16, GPU)
    assert made == pytest.approx(2 * US + 40e6 / 2e12 + (size - 40e6) / 0.8e12)


def test_deep_and_narrow_products_split_k() -> None:
    # without a split one tile would work alone for 2 x 16 x 64 x 65600 / 0.16e12 = 0.84 ms
    assert gemm_time(16, 64, 65536, DataType.BF16, GPU) < 0.1e-3


def test_matrix_times_vector_is_bound_by_memory() -> None:
    # 2 bytes x (10^6 x 512 + 512 + 10^6) = 1.03 GB: 40 MB from L2 at 2 TB/s, the rest at 0.8
    size = 2 * (1e6 * 512 + 512 + 1e6)
    expected = 2 * US + 40e6 / 2e12 + (size - 40e6) / 0.8e12
    wide = replace(BF16, tile_efficiency=(1.0, 1.0, 1.0, 1.0))
    estimate = gemm_estimate(1e6, 1, 512, DataType.BF16, replace(GPU, gemm={"bf16": wide}))
    assert estimate.bound_by == "HBM bandwidth"
    assert estimate.seconds == pytest.approx(expected)


def test_tiny_products_take_the_latency() -> None:
    # one tile of 16 x 64 and depth 32 + 64: 1.2 us on one SM at 0.16 TFLOP/s
    assert gemm_time(1, 1, 1, DataType.BF16, GPU) == pytest.approx(3.23 * US, rel=1e-3)
    assert gemm_estimate(1, 1, 1, DataType.BF16, GPU).bound_by == "kernel latency"


def test_large_products_are_bound_by_arithmetic() -> None:
    assert gemm_estimate(8192, 8192, 8192, DataType.BF16, GPU).bound_by == "arithmetic"


def test_products_outside_the_measured_shapes_are_extrapolated() -> None:
    measured = replace(BF16, num_points=9, shapes=((1, 1000), (1, 100), (1, 50)))
    gpu = replace(GPU, gemm={"bf16": measured})
    assert not gemm_estimate(1000, 100, 50, DataType.BF16, gpu).extrapolated
    assert not gemm_estimate(100, 1000, 50, DataType.BF16, gpu).extrapolated  # its transpose
    assert gemm_estimate(1001, 100, 50, DataType.BF16, gpu).extrapolated
    assert gemm_estimate(10, 10, 51, DataType.BF16, gpu).extrapolated
    assert gemm_estimate(10, 10, 10, DataType.BF16, GPU).extrapolated  # nothing measured


def test_a_core_multiplies_or_moves_data() -> None:
    # 1280 x 2560 x 1280 in bf16 on one SM: arithmetic as below, 16.4 MB from the L2 at 2 TB/s
    core = replace(GPU, num_sms=1)
    moved = 2 * (1280 * 1280 + 1280 * 2560 + 1280 * 2560) / 2e12
    tiles = 100 * 2 * 128 * 256 * (1280 + 64) / (0.8 * 100e12)
    seconds = gemm_time(1280, 2560, 1280, DataType.BF16, core)
    assert seconds == pytest.approx(2 * US + tiles + moved)


def test_broadcasts() -> None:
    many = gemm_time([64, 128, 4096], 512, 256, DataType.BF16, GPU)
    one = gemm_time(4096, 512, 256, DataType.BF16, GPU)
    assert many.shape == (3,)
    assert many[-1] == one


def test_types_without_constants_borrow_those_of_bf16() -> None:
    assert gemm_constants(DataType.FP8, GPU) is BF16
    with pytest.raises(ValueError, match="no matrix-product constants"):
        gemm_constants(DataType.FP8, replace(GPU, gemm={}))


@given(m=sizes, n=sizes, k=sizes, more=st.integers(0, 5_000))
def test_larger_is_never_faster(m: int, n: int, k: int, more: int) -> None:
    base = float(gemm_time(m, n, k, DataType.BF16, GPU))
    grown = [
        gemm_time(m + more, n, k, DataType.BF16, GPU),
        gemm_time(m, n + more, k, DataType.BF16, GPU),
        gemm_time(m, n, k + more, DataType.BF16, GPU),
    ]
    assert np.min(grown) >= base * (1 - 1e-12)


@given(m=sizes, n=sizes, k=sizes)
def test_never_faster_than_the_peak(m: int, n: int, k: int) -> None:
    assert gemm_time(m, n, k, DataType.BF16, GPU) >= 2.0 * m * n * k / BF16.peak


def test_rows_are_aligned_to_the_least_of_both_operands() -> None:
    # rows of A are k numbers, of B n; 16 bytes are eight numbers of bf16, four of fp32
    n, k = [64, 64, 64, 62, 63, 13], [64, 60, 62, 64, 64, 13]
    assert row_alignment(100, n, k, DataType.BF16).tolist() == [16, 8, 4, 4, 2, 2]
    assert row_alignment(100, n, k, DataType.FP32).tolist() == [16, 16, 8, 8, 4, 4]
    assert row_alignment(101, 64, 64, DataType.BF16) == 16  # any number of rows
    assert row_alignment(100, 16, 24, DataType.FP8) == 8


def test_a_single_column_is_read_as_a_row() -> None:
    assert row_alignment(4096, 1, 256, DataType.FP16) == 16
    assert row_alignment(4096, 256, 1, DataType.FP16) == 2


def test_an_alignment_has_the_constants_of_the_next_lower_one() -> None:
    constants = UNALIGNED.gemm["bf16"]
    assert at_alignment(constants, 16) is constants
    shares = [at_alignment(constants, bytes_).max_efficiency / 0.8 for bytes_ in (8, 4, 2, 1)]
    assert shares == pytest.approx([0.5, 0.5, 0.25, 0.25])
    assert at_alignment(BF16, 2) is BF16  # nothing is known


def test_unaligned_rows_by_hand() -> None:
    # the full wave above, k one less: a quarter of the rate, and 3 us more
    tile = 2 * 128 * 256 * 4160 / (0.25 * 0.8e12)
    seconds = gemm_time(1280, 2560, 4095, DataType.BF16, UNALIGNED)
    assert seconds == pytest.approx(5 * US + tile)
    # rows that begin at 4 bytes: 40 MB from L2 at half of 2 TB/s, the rest at half of 8 GB/s
    size = 2 * (1_000_000 * 98 + 98 * 2 + 1_000_000 * 2)
    moved = 40e6 / 1e12 + (size - 40e6) / 4e9
    slow = replace(UNALIGNED, memory_bandwidth=10e9)
    seconds = gemm_time(1_000_000, 2, 98, DataType.BF16, slow)
    assert seconds == pytest.approx(2 * US + moved)


def test_products_of_all_alignments_at_once_take_what_each_takes() -> None:
    n = [1024, 1022, 1021]
    many = gemm_time(500, n, 512, DataType.BF16, UNALIGNED)
    assert many.tolist() == [float(gemm_time(500, w, 512, DataType.BF16, UNALIGNED)) for w in n]
    assert many[0] < many[1] < many[2]
    estimates = [gemm_estimate(500, w, 512, DataType.BF16, UNALIGNED).seconds for w in n]
    assert estimates == many.tolist()


def test_batched_products_of_odd_rows_take_longer() -> None:
    plain = batched_gemm_time(1000, 27, 27, 128, DataType.BF16, GPU)
    odd = batched_gemm_time(1000, 27, 27, 128, DataType.BF16, UNALIGNED)
    assert odd - 5 * US == pytest.approx(4 * (plain - 2 * US))
    even = [batched_gemm_time(1000, 32, 32, 128, DataType.BF16, gpu) for gpu in (GPU, UNALIGNED)]
    assert even[0] == even[1]


@given(m=sizes, n=sizes, k=sizes, more=st.integers(0, 5_000))
def test_larger_is_never_faster_among_products_of_one_alignment(
    m: int, n: int, k: int, more: int
) -> None:
    step = 8 * more
    base = float(gemm_time(m, n + 1, k, DataType.BF16, UNALIGNED))
    grown = [
        gemm_time(m + more, n + 1, k, DataType.BF16, UNALIGNED),
        gemm_time(m, n + 1 + step, k, DataType.BF16, UNALIGNED),
        gemm_time(m, n + 1, k + step, DataType.BF16, UNALIGNED),
    ]
    assert np.min(grown) >= base * (1 - 1e-12)


@given(m=sizes, n=sizes, k=sizes)
def test_fewer_bytes_of_alignment_never_help(m: int, n: int, k: int) -> None:
    plain = gemm_time(m, n, k, DataType.BF16, GPU)
    assert gemm_time(m, n, k, DataType.BF16, UNALIGNED) >= plain
