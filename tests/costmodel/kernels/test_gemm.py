from dataclasses import replace
from itertools import product
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.base.units import US
from costmodel.domain.hardware import GemmEfficiency, Gpu, UnalignedRows
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import (
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


TILES = {
    (128, 256): 1.0, (256, 128): 1.0, (128, 128): 0.9, (64, 64): 0.5, (16, 64): 0.2, (64, 16): 0.2,
}  # fmt: skip
"""Rows and columns of tiles, with the efficiency of their area."""


def math_time(tiles: float, area: int, depth: float, efficiency: float, sms: int) -> float:
    """Return the time of so many tiles on so many SMs, at 0.8 of 100 TFLOP/s."""
    return ceil(tiles / sms) * 2 * area * depth / (0.8 * 100e12 * efficiency / sms)


def memory_time(size: float) -> float:
    """Return the time of so many bytes: 40 MB from the L2 at 2 TB/s, the rest at 0.8."""
    return min(size, 40e6) / 2e12 + max(size - 40e6, 0.0) / 0.8e12


def product_time(m: int, n: int, k: int, sms: int) -> float:
    """Return the docstring's equation; k is in steps of 32, on a core of 8."""
    unit = 8 if sms == 1 else 32
    math = min(
        math_time(ceil(m / a) * ceil(n / b) * s, a * b, ceil(k / s / unit) * unit + 64, e, sms)
        + log2(s) * US
        for (a, b), e in TILES.items()
        for s in (1, 2, 4, 8, 16, 32)
    )
    memory = memory_time(2 * (m * k + k * n + m * n))
    return 2 * US + (math + memory if sms == 1 else max(math, memory))


@pytest.mark.parametrize("sms", [100, 108, 1])
def test_products_take_the_best_tiling_or_memory(sms: int) -> None:
    lengths = (1, 15, 64, 65, 129, 250, 3000, 70_000)
    shapes = list(product(lengths, repeat=3))
    made = gemm_time(*np.array(shapes).T, DataType.BF16, replace(GPU, num_sms=sms))
    expected = [product_time(*shape, sms) for shape in shapes]
    assert made.tolist() == pytest.approx(expected)


def test_batched_products_share_the_multiprocessors_and_are_not_split() -> None:
    batched = {**TILES, (32, 128): 0.5, (128, 32): 0.5}
    for count, m, n, k in product((7, 1000, 100_000), (9, 27, 33, 129), (9, 27, 129), (1, 62, 250)):
        depth = max(ceil(k / 32) * 32, 61)  # a block's loads and stores take as long as k = 61
        math = min(
            math_time(count * ceil(m / a) * ceil(n / b), a * b, depth, e, 100)
            for (a, b), e in batched.items()
        )
        memory = memory_time(count * 2 * (m * k + k * n + m * n))
        made = batched_gemm_time(count, m, n, k, DataType.BF16, GPU)
        assert made == pytest.approx(2 * US + max(math, memory))


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


def test_types_without_constants_borrow_those_of_bf16() -> None:
    assert gemm_constants(DataType.FP8, GPU) is BF16
    with pytest.raises(ValueError, match="no matrix-product constants"):
        gemm_constants(DataType.FP8, replace(GPU, gemm={}))


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


@given(m=sizes, n=sizes, k=sizes)
def test_fewer_bytes_of_alignment_never_help(m: int, n: int, k: int) -> None:
    plain = gemm_time(m, n, k, DataType.BF16, GPU)
    assert gemm_time(m, n, k, DataType.BF16, UNALIGNED) >= plain
