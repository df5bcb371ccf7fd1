from dataclasses import replace

import numpy as np
import pytest
from machines import PLAIN_GEMM, gpu

from costmodel.base.units import US
from costmodel.domain.hardware import GemmEfficiency, Gpu, UnalignedRows
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_time
from planner.calibration import fit_gemm
from planner.calibration.fit_gemm import PEAK_OVER_BEST, Products, fit_measured, peak_of

TRUE = replace(
    PLAIN_GEMM,
    max_efficiency=0.8,
    tile_efficiency=(1.0, 0.9, 0.5, 0.2),
    prologue_depth=60.0,
    split_time=1 * US,
    l2_efficiency=0.5,
    memory_efficiency=0.8,
    unaligned=(
        UnalignedRows(
            alignment_bytes=4, efficiency=0.5, bandwidth_efficiency=0.6, latency=0.2 * US
        ),
        UnalignedRows(
            alignment_bytes=2, efficiency=0.2, bandwidth_efficiency=0.5, latency=0.5 * US
        ),
    ),
)


@pytest.fixture(autouse=True)
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descend in fewer steps, which are enough for products of a formula."""
    monkeypatch.setattr(fit_gemm, "MORE_ITERATIONS", 300)


def shapes(step: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return 40 shapes whose n and k the step divides, and no larger power of two."""
    rng = np.random.default_rng(step)
    m = np.round(2.0 ** rng.uniform(6, 16, 40))
    n, k = (step * (2 * np.round(2.0 ** rng.uniform(4, 11, 40) / step) + 1) for _ in range(2))
    return np.stack([m, n, k], axis=1)


def measured(constants: GemmEfficiency, *steps: int) -> tuple[Products, Gpu]:
    device = replace(gpu(), l2_bytes=40e6, gemm={"fp16": constants})
    some = np.concatenate([shapes(step) for step in steps])
    times = gemm_time(*some.T, DataType.FP16, device)  # type: ignore[misc] # three columns
    return Products(shapes=some, times=times, origin="test"), device


@pytest.mark.slow
def test_rows_of_fewer_bytes_get_constants_of_their_own() -> None:
    products, device = measured(TRUE, 8, 2, 1)
    fit = fit_measured(products, DataType.FP16, device)
    four, two = fit.constants.unaligned
    assert (four.alignment_bytes, two.alignment_bytes) == (4, 2)
    assert two.efficiency <= four.efficiency <= 1
    assert two.bandwidth_efficiency <= four.bandwidth_efficiency <= 1
    assert two.latency >= four.latency >= 0
    assert fit.errors.mape < 0.05


def test_without_aligned_products_none_can_be_told_from_others() -> None:
    products, device = measured(TRUE, 1)
    assert fit_measured(products, DataType.FP16, device).constants.unaligned == ()


def test_where_alignment_is_nothing_it_stays_so() -> None:
    products, device = measured(replace(TRUE, unaligned=()), 8, 1)
    fit = fit_measured(products, DataType.FP16, device)
    assert fit.errors.mape < 0.05
    assert all(rows.efficiency > 0.8 for rows in fit.constants.unaligned)


def test_a_gpus_peak_is_above_the_best_product_and_a_cores_is_it() -> None:
    # 2 x 1000 x 1000 x 1000 flops in 1 ms are 2 TFLOP/s
    products = Products(shapes=np.full((1, 3), 1000.0), times=np.array([1e-3]), origin="test")
    assert peak_of(products, gpu()) == pytest.approx(PEAK_OVER_BEST * 2e12)
    assert peak_of(products, replace(gpu(), num_sms=1)) == pytest.approx(2e12)
