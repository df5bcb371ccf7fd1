"""Records of machines whose constants are known, and predictions of steps."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bench.gpu_study.grid import WEIGHTS, ordered_units
from bench.gpu_study.points import (
    InteractionPoint,
    LayerPoint,
    OptimizerPoint,
    TypedOperatorPoint,
)
from bench.gpu_study.rooflines import layer_work, operator_bytes, optimizer_work
from costmodel.base.units import GIB, US
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.fit_operators import MOVED
from planner.calibration.grids import Target
from planner.calibration.points import (
    EmbeddingPoint,
    Family,
    GemmPoint,
    HostPart,
    HostPoint,
    OperatorPoint,
    Point,
    StreamPoint,
)
from planner.calibration.records import Record

LATENCY, BANDWIDTH = 3 * US, 2e12
GPU = Target(
    on_cpu=False,
    memory_bytes=80 * GIB,
    num_ranks=1,
    num_nodes=1,
    optimizers=(Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAM),
    data_types=(DataType.FP32, DataType.FP16),
)
CPU = Target(
    on_cpu=True,
    memory_bytes=8 * GIB,
    num_ranks=1,
    num_nodes=1,
    optimizers=(Optimizer.ROWWISE_ADAGRAD,),
    data_types=(DataType.FP32,),
)
FAMILIES = (
    *WEIGHTS, Family.HOST, Family.STREAM, Family.OPERATOR, Family.GEMM, Family.EMBEDDING,
)  # fmt: skip


def first_points(target: Target) -> list[Point]:
    return [point for unit in ordered_units(target)[0] for point in unit]


def records(points: Iterable[Point], *, noise: float = 0.0) -> list[Record]:
    """What a simple machine would take, times a factor that is drawn."""
    rng = np.random.default_rng(0)
    return [
        Record(
            point=point,
            seconds={
                phase: seconds * float(np.exp(noise * rng.standard_normal()))
                for phase, seconds in _seconds(point).items()
            },
            wall=_seconds(point),
            spread={"any": 0.01},
            repeats=5,
        )
        for point in points
    ]


def _streamed(num_bytes: float) -> float:
    return LATENCY + num_bytes / BANDWIDTH


def _seconds(point: Point) -> dict[str, float]:
    return _TIMES[type(point)](point)


def _lookup(point: EmbeddingPoint) -> dict[str, float]:
    dims = np.array(point.tables.embedding_dims)
    moved = 4.0 * point.num_samples * float(np.array(point.pooling_factors) @ dims)
    return {"forward": _streamed(moved), "backward": _streamed(3 * moved) + 30 * US}


def _both_ways(work: float) -> dict[str, float]:
    return {"forward": 20 * US + work * 1e-8, "backward": 40 * US + work * 2e-8}


def _host(point: HostPoint) -> dict[str, float]:
    return {
        HostPart.OPERATOR: {"many": 5 * US, "until_done": 15 * US},
        HostPart.LAYER: {"forward": 80 * US, "backward": 150 * US},
        HostPart.LOOKUP: {"forward": 200 * US, "backward": 180 * US},
        HostPart.LAUNCH: {"call": 3 * US},
        HostPart.BACKWARD: {"call": 60 * US},
        HostPart.SYNCHRONIZE: {"return": 4 * US},
        HostPart.UPLOAD: {"copy": 1.3e-3},
    }[point.part]


_TIMES: dict[type, Callable[[Any], dict[str, float]]] = {
    EmbeddingPoint: _lookup,
    GemmPoint: lambda p: {"product": 5 * US + 2.0 * p.m * p.n * p.k / 40e12},
    StreamPoint: lambda p: {"operator": _streamed(p.num_bytes)},
    OperatorPoint: lambda p: {"operator": _streamed(MOVED[p.operator] * p.num_elements)},
    TypedOperatorPoint: lambda p: {"operator": _streamed(operator_bytes(p, "operator"))},
    LayerPoint: lambda p: _both_ways(1e-4 * layer_work(p, "forward")),
    OptimizerPoint: lambda p: {"step": _streamed(optimizer_work(p, "step"))},
    HostPoint: _host,
    InteractionPoint: lambda p: _both_ways(p.num_samples),
}
