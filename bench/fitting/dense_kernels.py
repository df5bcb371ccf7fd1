"""Elementwise kernels, concatenation, interaction and optimizer beside profiled V100 steps.

The rows of ``../shared/data/v100_dlrm_kernels.csv``: two DLRMs at a batch of 2,048 in FP32, two
profiles each. Which layer a kernel belongs to follows from the order of the step.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from statistics import median

import numpy as np

from bench.fitting.sources import DATA
from costmodel.base.arrays import Array
from costmodel.base.units import US, Seconds
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import DataType, Optimizer, OptimizerImplementation
from costmodel.kernels.pointwise import (
    batched_product_time,
    concat_time,
    index_backward_time,
    index_time,
    pointwise_time,
)
from costmodel.step.optimizer import IMPLEMENTATIONS

BATCH = 2048
FLOAT = 4.0
"""Bytes of a number."""
FITTED = {
    ("concat", "DLRM_MLPerf", 0),
    ("index backward", "DLRM_MLPerf", 0),
    ("index backward", "DLRM_default", 0),
    ("interaction backward", "DLRM_MLPerf", 0),
}
"""Kernels that constants of ``costmodel.kernels.pointwise`` were fitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One of the two profiled DLRMs."""

    bottom: tuple[int, ...]
    """Widths, the input first."""
    top: tuple[int, ...]
    vectors: int
    """What the interaction multiplies: features, and the bottom MLP's output."""
    dim: int

    @property
    def pairs(self) -> int:
        """Products of the interaction."""
        return self.vectors * (self.vectors - 1) // 2

    @property
    def parameters(self) -> tuple[int, ...]:
        """Numbers in every weight and bias of both MLPs."""
        sides = (self.bottom, (self.dim + self.pairs, *self.top))
        layers = [pair for side in sides for pair in pairwise(side)]
        return tuple(size for layer in layers for size in (prod(layer), layer[1]))


MODELS: Mapping[str, Model] = {
    "DLRM_default": Model(bottom=(512, 512, 64), top=(1024, 1024, 1024, 1), vectors=9, dim=64),
    "DLRM_MLPerf": Model(
        bottom=(13, 512, 256, 128), top=(1024, 1024, 512, 256, 1), vectors=27, dim=128
    ),
}
"""facebookresearch/dlrm with its default and MLPerf arguments, as the kernels' sizes have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel, or what some kernels of an operator take together."""

    kind: str
    model: str
    index: int
    """Which of its kind, in the order of the step."""
    measured: Seconds
    """Mean over the two profiles."""
    predicted: Seconds

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1

    @property
    def held_out(self) -> bool:
        """Whether no constant was fitted to it."""
        return (self.kind, self.model, self.index) not in FITTED


def kernel_rows(gpu: Gpu) -> list[KernelRow]:
    """Return every profiled kernel that is modelled beside its prediction."""
    found = []
    for name, model in MODELS.items():
        for kind, predicted in _predictions(model, gpu).items():
            measured = _measured(name, kind, len(predicted))
            found += [
                KernelRow(kind=kind, model=name, index=index, measured=seconds, predicted=expected)
                for index, (seconds, expected) in enumerate(zip(measured, predicted, strict=True))
            ]
    return found


def held_out_errors(rows: Iterable[KernelRow]) -> Array:
    """Return the signed errors of what was not fitted."""
    return np.array([row.error for row in rows if row.held_out])


def _predictions(model: Model, gpu: Gpu) -> dict[str, list[Seconds]]:
    """Return predicted seconds by kind, in the order in which a step runs them."""
    activated = (*model.bottom[1:], *model.top[:-1])
    backwards = (*reversed(model.top[:-1]), *reversed(model.bottom[1:]))
    columns = model.vectors * model.dim
    top_inputs = model.dim + model.pairs

    def stream(passes: float, width: float) -> Seconds:
        return pointwise_time(passes * FLOAT * BATCH * width, gpu)

    def products(*shape: int) -> Seconds:
        m, n, k = shape
        return batched_product_time(BATCH, m, n, k, DataType.FP32, gpu)

    vectors, dim = model.vectors, model.dim
    passes = FLOAT * IMPLEMENTATIONS[OptimizerImplementation.FOREACH][Optimizer.SGD].passes
    return {
        "relu": [stream(2, width) for width in activated],
        "relu backward": [stream(3, width) for width in backwards],
        "concat": [concat_time(2 * FLOAT * BATCH * w, gpu) for w in (columns, top_inputs)],
        "interaction": [products(vectors, vectors, dim)],
        "interaction backward": [products(vectors, dim, vectors) + products(dim, vectors, vectors)],
        "lower triangle": [index_time(BATCH * model.pairs, FLOAT, gpu)],
        "index backward": [index_backward_time(BATCH * model.pairs, gpu)],
        "add gradients": [stream(3, columns)],
        "optimizer": [sum(pointwise_time(passes * size, gpu) for size in model.parameters)],
    }


KERNELS: Mapping[str, tuple[str, str]] = {
    "relu": ("aten::relu", "vectorized"),
    "relu backward": ("ReluBackward0", "vectorized"),
    "concat": ("aten::cat", "CatArray"),
    "interaction": ("aten::bmm", ""),
    "interaction backward": ("BmmBackward0", ""),
    "lower triangle": ("aten::index", "index_elementwise"),
    "index backward": ("IndexBackward", "indexing_backward"),
    "add gradients": ("aten::add", "unrolled"),
    "optimizer": ("Optimizer.step#SGD.step", "vectorized"),
}
"""Operator and beginning of the kernel's name, as the rows have them."""


def _measured(model: str, kind: str, count: int) -> list[Seconds]:
    """Return the measured seconds of a kind, mean over the profiles; summed up where asked."""
    op, kernel = KERNELS[kind]
    by_profile: dict[str, list[float]] = defaultdict(list)
    for row in _rows():
        same = row["model"] == model and row["op"] == op
        if same and kernel in row["kernel"]:
            by_profile[row["commit"]].append(float(row["mean_us"]) * US)
    summed = kind in {"interaction backward", "optimizer"}
    profiles = [[sum(times)] if summed else times[:count] for times in by_profile.values()]
    return [float(np.mean(each)) for each in zip(*profiles, strict=True)]


def _rows() -> list[dict[str, str]]:
    with (DATA / "v100_dlrm_kernels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_kind(rows: Sequence[KernelRow]) -> list[dict[str, object]]:
    """Sum up rows by kind: number, median error, and the signed one of the largest kernel."""
    groups: dict[str, list[KernelRow]] = defaultdict(list)
    for row in rows:
        groups[row.kind].append(row)
    return [
        {
            "kind": kind,
            "kernels": len(group),
            "fitted": sum(not row.held_out for row in group),
            "median_error": median(abs(row.error) for row in group),
            "mape": float(np.mean([abs(row.error) for row in group])),
            "largest_s": max(group, key=lambda row: row.measured).measured,
            "error_of_largest": max(group, key=lambda row: row.measured).error,
        }
        for kind, group in groups.items()
    ]
