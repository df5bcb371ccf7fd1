"""The measured matrix products of every profile, and constants carried over between them."""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bench.fitting.lookup_rates import LIKE_THE_STUDY
from bench.fitting.sources import rows
from costmodel.base.arrays import Array
from costmodel.base.units import TFLOP, US
from costmodel.domain.hardware import GemmEfficiency, Gpu, Source, UnalignedRows
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_time
from planner.calibration.curves import accuracy, rounded
from planner.calibration.fit_gemm import Products

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
    "b200-sxm": {
        DataType.FP32: 75.0,
        DataType.TF32: 1100.0,
        DataType.FP16: 2250.0,
        DataType.BF16: 2250.0,
    },
    "gb200-nvl72": {
        DataType.FP32: 80.0,
        DataType.TF32: 1250.0,
        DataType.FP16: 2500.0,
        DataType.BF16: 2500.0,
    },
    "mi300x": {
        DataType.FP32: 163.4,
        DataType.TF32: 653.7,
        DataType.FP16: 1307.4,
        DataType.BF16: 1307.4,
    },
}
"""Dense rates in TFLOP/s: the datasheets'. V100 has no TF32 or BF16 units and does such products at
its FP32 rate."""
SAME_DIE = {
    "a100-sxm-40gb": "a100-sxm-80gb",
    "h200-sxm": "h100-sxm",
    "h100-hbm2e": "h100-sxm",
}
"""Profiles whose GPUs differ in their memory only."""
PEAKS = {**PEAKS, **{name: PEAKS[other] for name, other in SAME_DIE.items()}}
NEAREST = {
    **{name: other for name, other in SAME_DIE.items() if name != "h200-sxm"},
    "b200-sxm": "h100-sxm",
    "gb200-nvl72": "h100-sxm",
    "mi300x": "h100-sxm",
}
"""Where the constants of products come from that were not measured on a profile's own GPU."""

MEASURED = {
    "a100-sxm-80gb": ("A100-SXM4-80GB", "bf16", DataType.BF16),
    "h100-sxm": ("H100-SXM5-80GB", "bf16", DataType.BF16),
    "h200-sxm": ("H200-SXM5-141GB", "bf16", DataType.BF16),
    "l40s-pcie": ("L40S", "bf16", DataType.BF16),
    "v100-nvlink": ("V100", "fp32", DataType.FP32),
}
"""GPU and data type, as gemm.csv.gz has them, that a profile is fitted to."""
TF32_MEASURED = ("H100", "fp32(TF32 tensor cores)", DataType.TF32)

CHECKED = {
    "a100-sxm-80gb": ("A100", "fp16", DataType.FP16),
    "h100-sxm": ("H100", "fp16", DataType.FP16),
}
"""The same that a profile's carried-over constants are checked on: another lab's."""


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


def errors_on(measured: Products, data_type: DataType, gpu: Gpu) -> Array:
    """Return the relative error of finished constants on every product."""
    m, n, k = measured.shapes.T
    errors: Array = gemm_time(m, n, k, data_type, gpu) / measured.times - 1
    return errors


UNALIGNED = {
    DataType.FP16: (
        UnalignedRows(
            alignment_bytes=4, efficiency=0.258, bandwidth_efficiency=0.353, latency=0.75 * US
        ),
        UnalignedRows(
            alignment_bytes=2, efficiency=0.156, bandwidth_efficiency=0.329, latency=0.8 * US
        ),
    ),
    DataType.BF16: (
        UnalignedRows(
            alignment_bytes=4, efficiency=0.308, bandwidth_efficiency=0.381, latency=2.1 * US
        ),
        UnalignedRows(
            alignment_bytes=2, efficiency=0.18, bandwidth_efficiency=0.352, latency=3.2 * US
        ),
    ),
    DataType.TF32: (
        UnalignedRows(
            alignment_bytes=4, efficiency=0.611, bandwidth_efficiency=0.832, latency=0.03 * US
        ),
    ),
}
"""What products of unaligned rows lose on Hopper, and are taken to lose on Blackwell, by type:
fitted to those that ``bench.gpu_study`` measured on an H200 (gpu_study_h200_2026-11-26), all other
constants as in its profile. Public products are all aligned, but for a V100's."""


def as_unaligned(
    profile: str, data_type: DataType, entry: tuple[GemmEfficiency, str]
) -> tuple[GemmEfficiency, str]:
    """Return constants and their source with what products of unaligned rows lose, if known."""
    if profile not in LIKE_THE_STUDY or data_type not in UNALIGNED:
        return entry
    constants, source = entry
    more = "; unaligned rows fitted to products on an H200 (bench.gpu_study, 2026-11-26)"
    return replace(constants, unaligned=UNALIGNED[data_type]), source + more


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
        kind=Source.DATASHEET,
    )


def checked(constants: GemmEfficiency, measured: Products, errors: Array) -> GemmEfficiency:
    """Return constants that were carried over with their errors on measurements of their own."""
    found = accuracy(errors)
    lowest, highest = measured.shapes.min(axis=0), measured.shapes.max(axis=0)
    return replace(
        constants,
        error=rounded(found.median),
        error_p90=rounded(found.p90),
        num_points=len(errors),
        shapes=tuple((float(a), float(b)) for a, b in zip(lowest, highest, strict=True)),
    )


def _is_one_product(timing: str) -> bool:
    """Tell whether a V100 row times one kernel of a product, not the two of a backward pass."""
    return len(re.findall(r"gemm|gemv", timing)) <= 1
