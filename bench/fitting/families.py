"""What stands behind the kernel families that are not fitted curves: lookups, networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bench.fitting.checks import node_errors
from bench.fitting.dense_kernels import KernelRow, held_out_errors, kernel_rows
from bench.fitting.embedding_anchors import PROFILES as ANCHORED
from bench.fitting.embedding_anchors import Row, compute_kernel, measured_rows, predict
from costmodel.domain.hardware import HardwareProfile, KernelFamily, Source
from costmodel.domain.plan import ComputeKernel
from planner.calibration.curves import Array, accuracy

PHASES = {"embedding_forward": "forward", "embedding_backward": "backward"}
ADDS_EVERY_ID = "500000"
"""Rows per table of the V100 rows whose backward adds every id's gradient by itself, unsorted."""
FITTED_V100 = "1000000"
"""Rows per table of the V100 rows that the efficiencies were fitted to."""


def families(profiles: Mapping[str, HardwareProfile]) -> dict[str, dict[str, KernelFamily]]:
    """Return, by profile, the families that say themselves what they rest on.

    Forward and backward share an error: two rows of a backward are held out, too few for their own.
    """
    found: dict[str, dict[str, KernelFamily]] = {name: {} for name in profiles}
    lookups = [row for row in measured_rows() if _is_lookup(row)]
    other_shapes = [row for row in lookups if "V100" in row["gpu"] and row["E"] != FITTED_V100]
    shapes = accuracy(_errors(other_shapes, profiles))
    swapped = accuracy(_swapped_errors(lookups, profiles))
    for family, phase in PHASES.items():
        rows = [row for row in lookups if row["phase"].startswith(phase)]
        for name in profiles:
            own = [row for row in rows if ANCHORED[row["gpu"]] == name]
            errors = shapes if own else swapped
            found[name][family] = KernelFamily(
                source=Source.ROOFLINE,
                origin=_origin(own),
                num_points=len(own),
                error=errors.median,
                error_p90=errors.p90,
                ranges=_ranges(own) if own else {},
            )
    dense = kernel_rows(profiles["v100-nvlink"].gpu)
    found["v100-nvlink"]["memory_bound"] = _memory_bound(dense)
    nodes = accuracy(node_errors(profiles["h100-sxm"]))
    for name in profiles:
        found[name]["inter_node"] = _inter_node(profiles[name], nodes.median, nodes.p90)
    return found


def _is_lookup(row: Row) -> bool:
    """Tell whether a row times weights in HBM, in training, by the kernel that is modelled."""
    if compute_kernel(row) is not ComputeKernel.FUSED:
        return False
    if row["phase"].startswith("backward"):
        return row["E"] != ADDS_EVERY_ID
    return row["phase"] == "forward"


def _errors(rows: Sequence[Row], profiles: Mapping[str, HardwareProfile]) -> Array:
    return np.array([predict(row, profiles[ANCHORED[row["gpu"]]])["error"] for row in rows])


def _swapped_errors(rows: Sequence[Row], profiles: Mapping[str, HardwareProfile]) -> Array:
    """Errors of every GPU's rows with the efficiencies that were fitted to the other GPU's."""
    swapped = {}
    for name, other in (("v100-nvlink", "h100-sxm"), ("h100-sxm", "v100-nvlink")):
        gpu = profiles[other].gpu
        fitted = {"lookup_efficiency": gpu.lookup_efficiency}
        fitted["update_efficiency"] = gpu.update_efficiency
        own = profiles[name]
        swapped[name] = replace(own, gpu=replace(own.gpu, **fitted))  # type: ignore[arg-type]
    return _errors(rows, swapped)


def _origin(own: Sequence[Row]) -> str:
    if not own:
        return (
            "no lookups measured on this GPU; the error is that of V100 rows with the H100's "
            "efficiency, and of H100 rows with the V100's"
        )
    repositories = sorted({f"{row['source_repo']}@{row['commit'][:8]}" for row in own})
    fitted = "one shape; the error is that of the other shapes on V100"
    return f"{', '.join(repositories)}; efficiency fitted to {fitted}"


def _ranges(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    lookups = [float(row["T"]) * float(row["B"]) * float(row["L"]) for row in rows]
    columns = [float(row["D"]) for row in rows]
    return {
        "lookups": (min(lookups), max(lookups)),
        "embedding_dim": (min(columns), max(columns)),
    }


def _memory_bound(rows: Sequence[KernelRow]) -> KernelFamily:
    """Return elementwise kernels, concatenation, interaction and optimizer as one family."""
    errors = accuracy(held_out_errors(rows))
    return KernelFamily(
        source=Source.ROOFLINE,
        origin="v100_dlrm_kernels.csv: elementwise, concatenation, interaction, optimizer",
        num_points=len(rows),
        error=errors.median,
        error_p90=errors.p90,
    )


def _inter_node(profile: HardwareProfile, median: float, p90: float) -> KernelFamily:
    source = profile.sources["inter_node.bandwidth"]
    if profile.kind("inter_node.bandwidth") is not Source.MEASURED:
        return KernelFamily(source=Source.DATASHEET, origin=source)
    return KernelFamily(
        source=Source.MEASURED,
        origin=f"{source}; the error is that of 2 and 10 nodes, from 32 MiB up",
        num_points=1,
        error=median,
        error_p90=p90,
    )
