"""Held-out log errors of kernel models, log(measured / predicted), by family and platform.

No point here was given to the fit that predicts it. ``other_labs`` are measurements of the same
GPUs that somebody else made, and nothing was fitted to.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from bench.fitting.collectives import Measurements
from bench.fitting.forms import CANDIDATES
from bench.fitting.gemm import MEASURED, PEAKS, TF32_MEASURED, products
from bench.fitting.launches import BACKWARD, FORWARD
from bench.fitting.lookup_rates import fitted
from bench.fitting.sources import rows
from costmodel.base.units import TFLOP
from costmodel.domain.hardware import CollectiveOp, Gpu
from costmodel.domain.workload import DataType
from costmodel.kernels.collectives import curve_time
from costmodel.kernels.gemm import gemm_time
from planner.calibration.curves import Array, Samples, accuracy, holdout_errors
from planner.calibration.fit_collectives import chosen, fit_samples
from planner.calibration.fit_gemm import Products, held_out_shapes
from planner.files.profiles import load_profile

FEWEST = 12
"""Points from which on a curve's held-out errors are split in two halves."""
OTHER_H100 = "NVIDIA H100 80GB HBM3"
"""H100 of another lab's cluster, as the data names them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errors:
    """Log errors of one platform (a GPU type, or a curve of one)."""

    family: str
    platform: str
    part: str = ""
    """Which curve of the platform."""
    values: Array


def collectives() -> Iterator[Errors]:
    """Yield held-out errors of every curve in the data, alternate sizes held out."""
    measured = Measurements()
    for gpu, op, num_ranks in _curves():
        samples, _ = measured.samples((gpu,), op, num_ranks)
        errors = holdout_errors(_positive(samples), CANDIDATES)
        form = chosen({name: accuracy(each) for name, each in errors.items()}, CANDIDATES)
        yield Errors(
            family="collectives",
            platform=gpu,
            part=f"{op} on {num_ranks}",
            values=-np.log1p(errors[form]),
        )


def gemm() -> Iterator[Errors]:
    """Yield errors of the shapes that the shipped constants were not fitted to."""
    measured = {name: (gpu, column, kind) for name, (gpu, column, kind) in MEASURED.items()}
    for name, (gpu, column, data_type) in (*measured.items(), ("h100-sxm", TF32_MEASURED)):
        found = products(gpu, column)
        errors = _product_errors(found, data_type, load_profile(name).gpu)
        yield Errors(
            family="gemm",
            platform=f"{name} {data_type}",
            values=errors[held_out_shapes(found.shapes)],
        )


def lookups() -> Iterator[Errors]:
    """Yield errors of lookups whose shapes nothing was fitted to (``bench.lookup_fit``)."""
    rows = fitted()["launches"]
    for gpu in sorted({row["gpu"] for row in rows}):
        for phase in (FORWARD, BACKWARD):
            errors = [
                row[phase]["left_out"]
                for row in rows
                if row["gpu"] == gpu and phase in row and row[phase]["in_fit"]
            ]
            if errors:
                yield Errors(family="embedding", platform=gpu, part=phase, values=-np.log1p(errors))


def carried_products() -> Iterator[Errors]:
    """Yield errors of products of one GPU with another's constants, at its own peak and memory."""
    for name, (gpu, column, data_type) in MEASURED.items():
        found = products(gpu, column)
        own = load_profile(name).gpu
        for other, (_, _, kind) in MEASURED.items():
            if other == name:
                continue
            fitted = load_profile(other).gpu.gemm[kind]
            constants = replace(fitted, peak=PEAKS[name][data_type] * TFLOP)
            swapped = replace(own, gemm={data_type: constants})
            yield Errors(
                family="gemm",
                platform=name,
                part=other,
                values=_product_errors(found, data_type, swapped),
            )


def other_labs() -> Iterator[Errors]:
    """Yield errors on another lab's machines with the same GPU."""
    for column, name in (("A100", "a100-sxm-80gb"), ("H100", "h100-sxm")):
        values = _product_errors(products(column, "fp16"), DataType.FP16, load_profile(name).gpu)
        yield Errors(family="gemm", platform=f"{name} fp16", values=values)
    measured = Measurements()
    for op in CollectiveOp:
        for num_ranks in (4, 8):
            own, _ = measured.samples(("H100-SXM5-80GB",), op, num_ranks)
            theirs, _ = measured.samples((OTHER_H100,), op, num_ranks)
            curve = fit_samples(own, "one lab", op, num_ranks, forms=CANDIDATES).curve
            yield Errors(
                family="collectives",
                platform="H100, 32 MiB and more",
                part=f"{op} on {num_ranks}",
                values=np.log(theirs.times / curve_time(curve, theirs.sizes)),
            )


@cache
def _curves() -> tuple[tuple[str, CollectiveOp, int], ...]:
    """GPU type, operation and ranks of everything measured inside a node."""
    ops = {op.value: op for op in CollectiveOp}
    found: dict[tuple[str, CollectiveOp, int], set[str]] = {}
    for row in rows("collectives.csv.gz"):
        if row["op"] not in ops or row["num_nodes"] != "1" or row["quality"].startswith("suspect"):
            continue
        key = row["gpu_type"], ops[row["op"]], int(row["num_gpus"])
        found.setdefault(key, set()).add(row["nccl_size_bytes"])
    return tuple(sorted(key for key, sizes in found.items() if len(sizes) >= FEWEST))


def _positive(samples: Samples) -> Samples:
    kept = samples.sizes > 0
    return Samples(sizes=samples.sizes[kept], times=samples.times[kept])


def _product_errors(measured: Products, data_type: DataType, gpu: Gpu) -> Array:
    m, n, k = measured.shapes.T
    errors: Array = np.log(measured.times / gemm_time(m, n, k, data_type, gpu))
    return errors
