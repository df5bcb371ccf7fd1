"""Constants of the matrix-product model, fitted to measured products."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.optimize import minimize

from bench.fitting.curves import Accuracy, Array, accuracy, rounded
from bench.fitting.sources import rows
from costmodel.hardware import GemmEfficiency, Gpu
from costmodel.kernels.gemm import gemm_time
from costmodel.units import TFLOP, US
from costmodel.workload import DataType

HOLDOUT_SHARE = 0.2
SEED = 0
NUM_STARTS = 4

PEAKS: Mapping[str, Mapping[DataType, float]] = {
    "v100-nvlink": {
        DataType.FP32: 15.7,
        DataType.TF32: 15.7,
        DataType.FP16: 125.0,
        DataType.BF16: 15.7,
    },
    "a100-sxm-80gb": {
        DataType.FP32: 19.5,
        DataType.TF32: 156.0,
        DataType.FP16: 312.0,
        DataType.BF16: 312.0,
    },
    "h100-sxm": {
        DataType.FP32: 66.9,
        DataType.TF32: 494.7,
        DataType.FP16: 989.4,
        DataType.BF16: 989.4,
    },
    "l40s-pcie": {
        DataType.FP32: 91.6,
        DataType.TF32: 183.0,
        DataType.FP16: 362.05,
        DataType.BF16: 362.05,
    },
}
"""Dense rates in TFLOP/s: V100, A100, H100 and L40S datasheets. V100 has no TF32 or BF16 units and
does such products at its FP32 rate."""
PEAKS = {**PEAKS, "a100-sxm-40gb": PEAKS["a100-sxm-80gb"], "h200-sxm": PEAKS["h100-sxm"]}

MEASURED = {
    "a100-sxm-80gb": ("A100-SXM4-80GB", "bf16", DataType.BF16),
    "h100-sxm": ("H100-SXM5-80GB", "bf16", DataType.BF16),
    "h200-sxm": ("H200-SXM5-141GB", "bf16", DataType.BF16),
    "l40s-pcie": ("L40S", "bf16", DataType.BF16),
    "v100-nvlink": ("V100", "fp32", DataType.FP32),
}
"""GPU and data type, as gemm.csv.gz has them, that a profile is fitted to."""
TF32_MEASURED = ("H100", "fp32(TF32 tensor cores)", DataType.TF32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Measured products: m, n, k, and seconds."""

    shapes: Array
    times: Array
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmFit:
    """Fitted constants, and what they miss on the shapes held out."""

    constants: GemmEfficiency
    source: str
    num_points: int
    errors: Accuracy


def products(gpu: str, data_type: str) -> Products:
    """Read the measurements of one GPU and type that time exactly one product."""
    chosen = [
        row
        for row in rows("gemm.csv.gz")
        if row["gpu"] == gpu and row["dtype"] == data_type and _is_one_product(row["timing"])
    ]
    origins = sorted({row["source"].split(":")[0] for row in chosen})
    return Products(
        shapes=np.array([[float(row[size]) for size in "mnk"] for row in chosen]),
        times=np.array([float(row["us"]) * US for row in chosen]),
        origin=", ".join(re.sub(r"@(\w{8})\w*", r"@\1", origin) for origin in origins),
    )


def fit_products(
    measured: Products, data_type: DataType, gpu: Gpu, peak: float, prior: GemmEfficiency | None
) -> GemmFit:
    """Fit on 80% of the shapes, and judge on the rest.

    Minimises the mean absolute log error. ``prior`` (for the 60 V100 points, fewer than seven
    for each constant) pulls towards another fit.
    """
    held_out = _held_out(measured.shapes)
    start = _encode(prior) if prior else np.array([1.5, 2.0, 0, 0, 0, 0, 0, 1.5, 0])
    pull = 2e-3 if prior else 0.0

    def time(parameters: Array, rows_: Array) -> Array:
        m, n, k = rows_.T
        constants = _decode(parameters, peak)
        return gemm_time(m, n, k, data_type, replace(gpu, gemm={data_type: constants}))

    def loss(parameters: Array) -> float:
        miss = np.abs(np.log(time(parameters, measured.shapes[~held_out]) / known))
        wild = np.maximum(np.abs(parameters) - 3, 0)
        near = pull * np.sum((parameters - start) ** 2)
        return float(np.mean(miss) + 1e-3 * np.sum(wild**2) + near)

    known = measured.times[~held_out]
    rng = np.random.default_rng(SEED)
    starts = [start] + [start + 0.8 * rng.normal(size=start.size) for _ in range(NUM_STARTS - 1)]
    best = min((_descend(loss, first) for first in starts), key=loss)
    errors = time(best, measured.shapes[held_out]) / measured.times[held_out] - 1
    found = accuracy(errors)
    lowest, highest = measured.shapes.min(axis=0), measured.shapes.max(axis=0)
    constants = replace(
        _decode(best, peak),
        error=found.median,
        error_p90=found.p90,
        num_points=len(measured.times),
        shapes=tuple((float(a), float(b)) for a, b in zip(lowest, highest, strict=True)),
    )
    return GemmFit(
        constants=constants,
        source=f"fitted: {measured.origin}, {len(measured.times)} points; peak of the datasheet",
        num_points=len(measured.times),
        errors=found,
    )


def error_on(measured: Products, data_type: DataType, gpu: Gpu) -> dict[str, float]:
    """Errors of finished constants on measurements they were not fitted to."""
    m, n, k = measured.shapes.T
    errors = gemm_time(m, n, k, data_type, gpu) / measured.times - 1
    return {"points": len(errors), **asdict(accuracy(errors))}


def carried_over(
    arithmetic: GemmEfficiency, memory: GemmEfficiency, peak_tflops: float
) -> GemmEfficiency:
    """Join how well one fit computes with how well another one moves data."""
    return replace(
        arithmetic,
        peak=peak_tflops * TFLOP,
        l2_efficiency=memory.l2_efficiency,
        memory_efficiency=memory.memory_efficiency,
        latency=memory.latency,
        error=None,
        error_p90=None,
        num_points=0,
        shapes=(),
    )


def _held_out(shapes: Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Choose a fifth of the distinct shapes."""
    _, shape_of = np.unique(shapes, axis=0, return_inverse=True)
    chosen = np.random.default_rng(SEED).random(shape_of.max() + 1) < HOLDOUT_SHARE
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = chosen[shape_of]
    return result


def _is_one_product(timing: str) -> bool:
    """Tell whether a V100 row times one kernel of a product, not the two of a backward pass."""
    return len(re.findall(r"gemm|gemv", timing)) <= 1


def _descend(loss: Callable[[Array], float], first: Array) -> Array:
    """Run Nelder-Mead, and once more from where it stopped."""
    point = first
    for _ in range(2):
        found = minimize(
            loss,
            point,
            method="Nelder-Mead",
            options={"maxiter": 500, "xatol": 1e-3, "fatol": 1e-5, "adaptive": True},
        )
        point = np.asarray(found.x, dtype=np.float64)
    return point


def _decode(parameters: Array, peak: float) -> GemmEfficiency:
    """Map unbounded parameters to constants.

    Shares through a logistic, smaller tiles less efficient; latency at least 1 us, the shortest
    kernel there is (an empty one takes as long: v100_dlrm_kernels.csv, memsets).
    """
    share = 1 / (1 + np.exp(-parameters))
    scale = np.exp(parameters)
    tiles = np.cumprod([1.0, *share[1:4]])
    return GemmEfficiency(
        peak=peak,
        max_efficiency=rounded(float(share[0])),
        tile_efficiency=(1.0, *(rounded(float(tile)) for tile in tiles[1:])),  # type: ignore[arg-type]
        prologue_depth=rounded(float(100 * scale[4])),
        split_time=rounded(float(US * scale[5])),
        l2_efficiency=rounded(float(share[6])),
        memory_efficiency=rounded(float(share[7])),
        latency=rounded(float(US * (1 + scale[8]))),
    )


def _encode(constants: GemmEfficiency) -> Array:
    """Undo `_decode`."""
    tiles = np.array(constants.tile_efficiency)
    shares = np.array([
        constants.max_efficiency,
        *(tiles[1:] / tiles[:-1]),
        constants.l2_efficiency,
        constants.memory_efficiency,
    ])
    logits = np.log(shares / (1 - shares))
    scales = np.log([
        constants.prologue_depth / 100,
        constants.split_time / US,
        constants.latency / US - 1,
    ])
    return np.array([*logits[:4], scales[0], scales[1], logits[4], logits[5], scales[2]])
