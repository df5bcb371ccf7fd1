"""What is measured, most valuable first: ``planner.calibration.order`` says how.

The study's own families take turns with those of `planner calibrate`. The first round is measured
whatever the time.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import product

from bench.gpu_study.models import EXAMPLE_SAMPLES, MODELS
from bench.gpu_study.points import (
    InteractionPoint,
    LayerKind,
    LayerPoint,
    OptimizerPoint,
    StepPoint,
    StudyFamily,
    TypedOperatorPoint,
)
from costmodel.base.units import GB, Bytes
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.grids import CPU_OPTIMIZERS, Grid, Target, grid_points
from planner.calibration.order import Ordered, Unit, in_rounds, ordered_families, spread
from planner.calibration.points import EmbeddingPoint, Family, Point, TableSet


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTarget:
    """What training steps depend on."""

    on_cpu: bool
    memory_bytes: Bytes
    """Memory of one rank."""


WEIGHTS: Mapping[str, int] = {
    StudyFamily.TYPED_OPERATOR: 24,
    StudyFamily.LAYER: 4,
    StudyFamily.OPTIMIZER: 8,
    StudyFamily.INTERACTION: 2,
}
"""Units of a round, by family."""
_ALL_AT_ONCE = 1000
"""Units of a round of what is measured as a whole before anything else comes again."""
_TYPED = (
    "relu", "sigmoid", "gelu", "add", "mul", "_softmax", "native_layer_norm", "sum", "clone",
    "embedding",
)  # fmt: skip
"""Operators that are measured in other types than FP32, in which `planner calibrate` has all."""
_UPDATED = ((1, 100_000, 64, 20.0), (1, 1_000_000, 128, 1.0), (4, 20_000, 32, 5.0))
"""Tables, their rows, columns, and ids of a sample, of which every optimizer's backward is
measured."""
FEWEST_COLLECTIVES = 6
"""Collectives that are measured whatever the time: four, uneven ones, and the host's part."""


def ordered_units(target: Target) -> tuple[list[Unit], list[Unit]]:
    """Return the units of the first round, and all others, in the order of their value.

    The others begin with one point of every kind that the first round lacks: what fails on a
    machine is known early.
    """
    known = grid_points(Grid.FULL, target)
    del known[Family.COLLECTIVE]  # all ranks measure them, in processes of their own
    theirs = (
        each._replace(weight=_ALL_AT_ONCE) if each.family is Family.OPERATOR else each
        for each in ordered_families(known, on_cpu=target.on_cpu)
    )
    first, others = in_rounds((*_own(target), *theirs))
    kinds = {kind_of(point) for unit in first for point in unit}
    new: dict[Hashable, Point] = {}
    for point in (point for unit in others for point in unit):
        if kind_of(point) not in kinds:
            new.setdefault(kind_of(point), point)
    taken = set(new.values())
    rest = (tuple(point for point in unit if point not in taken) for unit in others)
    return first, [*((point,) for point in new.values()), *filter(None, rest)]


def kind_of(point: Point) -> Hashable:
    """Return what decides which kernels a point runs: all that is no size.

    Of tables in host memory, which take seconds to fill, it is where they are.
    """
    if isinstance(point, EmbeddingPoint):
        tables = point.tables
        if tables.compute_kernel not in (ComputeKernel.FUSED, ComputeKernel.DENSE):
            return point.family, tables.compute_kernel
        kernel = tables.compute_kernel, tables.data_type, tables.optimizer, tables.pooling
        return point.family, *kernel, point.weighted
    values = (getattr(point, field.name) for field in fields(point))
    return point.family, *(each for each in values if isinstance(each, StrEnum | bool))


def step_points(target: StepTarget) -> tuple[StepPoint, ...]:
    """Return training steps: DLRM at four batch sizes, other models, DLRM on two ranks.

    First of the others are a transformer and a mixture of experts.
    """
    batches = (64, 128, 256, 512) if target.on_cpu else (1024, 4096, 16384, 65536)
    table_bytes = int(0.1 * GB) if target.on_cpu else int(0.4 * target.memory_bytes)

    def point(model: str, local_batch_size: int, world_size: int = 1) -> StepPoint:
        return StepPoint(
            model=model,
            local_batch_size=local_batch_size,
            world_size=world_size,
            table_bytes=table_bytes // world_size,
        )

    dlrm, *others = MODELS
    one, *more = (point(dlrm, batch) for batch in batches)
    return (
        one,
        *(point(model, samples) for model, samples in EXAMPLE_SAMPLES.items()),
        *(point(model, batches[1]) for model in others),
        *more,
        point(dlrm, batches[1], world_size=2),
    )


def collective_points(target: Target) -> tuple[Point, ...]:
    """Return collectives of all ranks, and the host's time to issue one; none of one rank.

    The first `FEWEST_COLLECTIVES` are one of every kind.
    """
    every = {Family.COLLECTIVE: grid_points(Grid.FULL, target)[Family.COLLECTIVE]}
    (ordered,) = ordered_families(every, on_cpu=target.on_cpu)
    return tuple(point for unit in ordered.units for point in unit)


def _own(target: Target) -> Iterator[Ordered]:
    """Yield the study's own families."""
    points: dict[StudyFamily, Iterable[Point]] = {
        StudyFamily.TYPED_OPERATOR: spread(list(_typed_operators(target))),
        StudyFamily.LAYER: spread(list(_layers(target))),
        StudyFamily.OPTIMIZER: spread(list(_optimizers())),
        StudyFamily.INTERACTION: spread(list(_interactions(target))),
    }
    for family, some in points.items():
        yield Ordered(family, WEIGHTS[family], [(point,) for point in some])
    yield Ordered(Family.EMBEDDING, _ALL_AT_ONCE, [(point,) for point in _updates(target)])


def _sizes(first: float, last: float) -> list[int]:
    """Return sizes a factor of two apart."""
    sizes = [int(first)]
    while sizes[-1] * 2 <= last:
        sizes.append(sizes[-1] * 2)
    return sizes


def _typed_operators(target: Target) -> Iterator[TypedOperatorPoint]:
    sizes = (2**12, 2**16) if target.on_cpu else (2**16, 2**20, 2**25)
    types = (DataType.BF16,) if target.on_cpu else (DataType.FP16, DataType.BF16)
    for data_type, size, operator in product(types, sizes, _TYPED):
        yield TypedOperatorPoint(operator=operator, num_elements=size, data_type=data_type)


def _layers(target: Target) -> Iterator[LayerPoint]:
    samples = (4, 16) if target.on_cpu else (64, 512)
    types = (DataType.FP32,) if target.on_cpu else (DataType.FP32, DataType.BF16)
    for layer, data_type, count, width, length in product(
        LayerKind, types, samples, (64, 128), (16, 64)
    ):
        yield LayerPoint(
            layer=layer, num_samples=count, width=width, length=length, data_type=data_type
        )


def _optimizers() -> Iterator[OptimizerPoint]:
    for number, size, optimizer in product(
        (4, 40), (2**10, 2**16, 2**20), (Optimizer.SGD, Optimizer.ADAGRAD, Optimizer.ADAM)
    ):
        yield OptimizerPoint(optimizer=optimizer, num_tensors=number, num_elements=size)


def _updates(target: Target) -> Iterator[EmbeddingPoint]:
    """Yield the backward of each optimizer of tables at three shapes."""
    gpu = (Optimizer.SGD, Optimizer.ADAM, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAGRAD)
    samples = 1024 if target.on_cpu else 16384
    for (count, rows, columns, ids), optimizer in product(
        _UPDATED, CPU_OPTIMIZERS if target.on_cpu else gpu
    ):
        tables = TableSet(
            num_embeddings=(rows,) * count,
            embedding_dims=(columns,) * count,
            data_type=DataType.FP32,
            optimizer=optimizer,
            compute_kernel=ComputeKernel.FUSED,
        )
        yield EmbeddingPoint(
            tables=tables, num_samples=samples, pooling_factors=(ids,) * count, zipf=(0.8,) * count
        )


def _interactions(target: Target) -> Iterator[InteractionPoint]:
    samples = _sizes(256, 1024 if target.on_cpu else 65536)
    for count, features, dim in product(samples, (8, 26, 52), (16, 64, 128)):
        yield InteractionPoint(num_samples=count, num_features=features, embedding_dim=dim)
