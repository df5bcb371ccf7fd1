"""Matrix products, lookups and the kernels between them, on what they were not fitted to."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from bench.fitting.dense_kernels import by_kind, held_out_errors, kernel_rows
from bench.fitting.embedding_anchors import predict
from bench.fitting.embedding_rows import compute_kernel, measured_rows
from bench.fitting.gemm import CHECKED, MEASURED, TF32_MEASURED, errors_on, products
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType
from planner.calibration.curves import Array, accuracy
from planner.calibration.fit_gemm import Products, held_out_shapes
from planner.files.profiles import load_profile

KINDS = {
    ComputeKernel.FUSED: "modelled kernel",
    ComputeKernel.FUSED_UVM: "UVM",
    ComputeKernel.FUSED_UVM_CACHING: "UVM caching",
}
SMALL, LARGE = 1e9, 1e11
"""FLOP between which a product is called of medium size."""


def gemm_rows() -> list[dict[str, Any]]:
    """Return the errors of every fit on the shapes it was not given, and on other labs' products.

    The shapes held out are those that `bench.fit_profiles` held out: a fifth, drawn with seed 0.
    """
    fits = {**MEASURED, "h100-sxm tf32": TF32_MEASURED}
    found = []
    for name, (gpu, column, data_type) in fits.items():
        measured = products(gpu, column)
        out = held_out_shapes(measured.shapes)
        profile = name.split(" ", maxsplit=1)[0]
        errors = errors_on(measured, data_type, load_profile(profile).gpu)
        found.append(_gemm_row(profile, data_type, "a fifth of the shapes", measured, errors, out))
    for profile, (gpu, column, data_type) in CHECKED.items():
        measured = products(gpu, column)
        errors = errors_on(measured, data_type, load_profile(profile).gpu)
        everything = np.ones(len(errors), dtype=np.bool_)
        where = f"another lab, {measured.origin}"
        found.append(_gemm_row(profile, data_type, where, measured, errors, everything))
    return found


def _gemm_row(
    profile: str,
    data_type: DataType,
    held_out: str,
    measured: Products,
    errors: Array,
    out: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> dict[str, Any]:
    flop = 2 * measured.shapes.prod(axis=1)
    sizes = {
        "small": flop < SMALL,
        "medium": (flop >= SMALL) & (flop < LARGE),
        "large": flop >= LARGE,
    }
    return {
        "profile": profile,
        "data_type": data_type.value,
        "held_out": held_out,
        "points": len(errors),
        "num_held_out": int(out.sum()),
        **asdict(accuracy(errors[out])),
        "mape_by_size": {
            name: float(np.mean(np.abs(errors[out & some]))) if (out & some).any() else None
            for name, some in sizes.items()
        },
    }


def embedding_rows() -> list[dict[str, Any]]:
    """Return the errors of the roofline on the anchors, by GPU, phase and what the rows are."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in measured_rows():
        made = predict(row)
        kind = made["remark"] or KINDS[compute_kernel(row)]
        groups.setdefault((row["gpu"], kind, _phase(row)), []).append(made["error"])
    return [
        {"gpu": gpu, "kind": kind, "phase": phase, "rows": len(errors), **_summed(errors)}
        for (gpu, kind, phase), errors in groups.items()
    ]


def counter_rows() -> list[dict[str, Any]]:
    """Return predicted over counted bytes of DRAM and L2, where counters were read (V100).

    L2 bytes are those of the forward, with the blocks of the kernel that was measured.
    """
    counted: dict[tuple[str, str], list[float]] = {}
    for row in measured_rows():
        made, phase = predict(row), _phase(row)
        if made["measured_dram_bytes"]:
            ratio = made["predicted_hbm_bytes"] / made["measured_dram_bytes"]
            counted.setdefault(("DRAM", phase), []).append(ratio)
        if made["measured_l2_bytes"] and phase == "forward":
            ratio = made["predicted_l2_bytes_behind_l1"] / made["measured_l2_bytes"]
            counted.setdefault(("L2", phase), []).append(ratio)
    return [
        {
            "memory": memory,
            "phase": phase,
            "rows": len(ratios),
            "least": min(ratios),
            "median": float(np.median(ratios)),
            "most": max(ratios),
        }
        for (memory, phase), ratios in sorted(counted.items())
    ]


def _phase(row: Mapping[str, str]) -> str:
    return "backward" if row["phase"].startswith("backward") else "forward"


def _summed(errors: list[float]) -> Mapping[str, float]:
    return asdict(accuracy(np.array(errors)))


def results() -> dict[str, Any]:
    """Return everything about kernels as plain data."""
    rows = kernel_rows(load_profile("v100-nvlink").gpu)
    return {
        "gemm": gemm_rows(),
        "embedding": embedding_rows(),
        "counters": counter_rows(),
        "dense": {
            "by_kind": by_kind(rows),
            "held_out": asdict(accuracy(held_out_errors(rows))),
        },
    }
