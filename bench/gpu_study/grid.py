"""What is measured, most valuable first.

Every family brings its points in *units*, lookups by the set of tables that is in memory. Units
come in rounds: a round has some of every family, by its weight. The first round is the least that
profiles and tables need; it is measured whatever the time. So whenever the time is up, what is
missing are finer steps between points, not ranges or families.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product, zip_longest
from typing import TypeAlias, TypeVar

from bench.gpu_study.models import MODELS
from bench.gpu_study.points import (
    AttentionPoint,
    Direction,
    InteractionPoint,
    IssueMode,
    IssuePoint,
    OverlapPoint,
    PointwiseOp,
    PointwisePoint,
    ReductionOp,
    ReductionPoint,
    StepPoint,
    StreamWork,
    StudyFamily,
    TransferPoint,
)
from costmodel.base.units import GB, KIB, MIB, Bytes
from costmodel.domain.workload import DataType
from planner.calibration.grids import Grid, Target, grid_points
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    Point,
    StreamOp,
    StreamPoint,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTarget:
    """What training steps depend on."""

    on_cpu: bool
    memory_bytes: Bytes
    """Memory of one rank."""


Unit: TypeAlias = tuple[Point, ...]
"""Points that are measured one after another, because they share what is in memory."""
WEIGHTS: Mapping[str, int] = {
    Family.HOST: 8,
    Family.STREAM: 20,
    Family.GEMM: 4,
    Family.EMBEDDING: 6,
    StudyFamily.ISSUE: 3,
    StudyFamily.OVERLAP: 2,
    StudyFamily.POINTWISE: 4,
    StudyFamily.REDUCTION: 4,
    StudyFamily.INTERACTION: 2,
    StudyFamily.ATTENTION: 2,
    StudyFamily.TRANSFER: 2,
}
"""Units of a round, by family; products: of every type."""
FEWEST_COLLECTIVES = 6
"""Collectives that are measured whatever the time: four, uneven ones, and the host's part."""
_CPU_SETS = 4
"""Sets of tables in a round on a CPU, which takes long for each."""
_ITEMS = TypeVar("_ITEMS")


def ordered_units(target: Target) -> tuple[list[Unit], list[Unit]]:
    """Return the units of the first round, and all others, in the order of their value."""
    keyed = sorted(
        (((index + 1) / weight, family, unit) for family, weight, units in _families(target)
         for index, unit in enumerate(units)),
        key=lambda entry: entry[0],
    )  # fmt: skip
    first = [unit for key, _, unit in keyed if key <= 1]
    return first, [unit for key, _, unit in keyed if key > 1]


def step_points(target: StepTarget) -> tuple[StepPoint, ...]:
    """Return training steps: DLRM at four batch sizes, four other models, DLRM on two ranks."""
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
        *(point(model, batches[1]) for model in others),
        *more,
        point(dlrm, batches[1], world_size=2),
    )


def collective_points(target: Target) -> tuple[Point, ...]:
    """Return collectives of all ranks, and the host's time to issue one; none of one rank.

    The first `FEWEST_COLLECTIVES` are one of every kind.
    """
    every = grid_points(Grid.FULL, target)[Family.COLLECTIVE]
    return tuple(in_turn(spread(some) for some in _by(every, _collective)))


def spread(items: Sequence[_ITEMS]) -> Iterator[_ITEMS]:
    """Yield items so that the first few are spread evenly: van der Corput's order of places."""
    bits = max(len(items) - 1, 1).bit_length()
    for number in range(2**bits):
        place = int(f"{number:0{bits}b}"[::-1], 2)
        if place < len(items):
            yield items[place]


def in_turn(groups: Iterable[Iterable[_ITEMS]]) -> Iterator[_ITEMS]:
    """Yield the first of every group, then the second of every group, and so on."""
    missing = object()
    for row in zip_longest(*groups, fillvalue=missing):
        yield from (item for item in row if item is not missing)  # type: ignore[misc]


def _families(target: Target) -> Iterator[tuple[str, int, list[Unit]]]:
    """Yield every family with its weight and its units, the most telling first."""
    known = grid_points(Grid.FULL, target)
    points: dict[str, Iterable[Point]] = {
        Family.HOST: known[Family.HOST],
        Family.STREAM: in_turn(spread(some) for some in _by(known[Family.STREAM], _operator)),
        Family.GEMM: in_turn(_by(known[Family.GEMM], _data_type)),
        StudyFamily.ISSUE: _issues(),
        StudyFamily.OVERLAP: spread(list(_overlaps(target))),
        StudyFamily.POINTWISE: spread(list(_pointwise(target))),
        StudyFamily.REDUCTION: spread(list(_reductions(target))),
        StudyFamily.INTERACTION: spread(list(_interactions(target))),
        StudyFamily.ATTENTION: spread(list(_attentions(target))),
        StudyFamily.TRANSFER: spread(list(_transfers(target))),
    }
    for family, some in points.items():
        weight = WEIGHTS[family]
        if family == Family.GEMM:
            weight *= len(list(_by(known[Family.GEMM], _data_type)))
        yield family, weight, [(point,) for point in some]
    sets = groupby(known[Family.EMBEDDING], key=_tables)
    weight = _CPU_SETS if target.on_cpu else WEIGHTS[Family.EMBEDDING]
    yield Family.EMBEDDING, weight, [tuple(some) for _, some in sets]


def _by(points: Sequence[Point], key: object) -> list[list[Point]]:
    groups: dict[Hashable, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)  # type: ignore[operator]
    return list(groups.values())


def _operator(point: Point) -> StreamOp | None:
    return point.op if isinstance(point, StreamPoint) else None


def _collective(point: Point) -> Hashable:
    """Return the operation, and whether its messages are even; None: the host's part."""
    return (point.op, point.focus > 0) if isinstance(point, CollectivePoint) else None


def _data_type(point: Point) -> DataType | None:
    return point.data_type if isinstance(point, GemmPoint) else None


def _tables(point: Point) -> object:
    return point.tables if isinstance(point, EmbeddingPoint) else None


def _sizes(first: float, last: float) -> list[int]:
    """Return sizes a factor of two apart."""
    sizes = [int(first)]
    while sizes[-1] * 2 <= last:
        sizes.append(sizes[-1] * 2)
    return sizes


def _types(target: Target) -> tuple[DataType, ...]:
    return (DataType.FP32,) if target.on_cpu else (DataType.FP32, DataType.FP16, DataType.BF16)


def _issues() -> Iterator[IssuePoint]:
    for count, mode in product((8, 32), IssueMode):
        yield IssuePoint(mode=mode, num_layers=count)


def _overlaps(target: Target) -> Iterator[OverlapPoint]:
    sizes = (1 * MIB, 4 * MIB) if target.on_cpu else (16 * MIB, 64 * MIB, 256 * MIB)
    works = list(StreamWork)
    for size, (index, first) in product(sizes, enumerate(works)):
        for second in works[index:]:
            yield OverlapPoint(first=first, second=second, num_bytes=int(size))


def _pointwise(target: Target) -> Iterator[PointwisePoint]:
    sizes = _sizes(4 * KIB, (4 if target.on_cpu else 256) * MIB)
    for data_type, op, size in product(_types(target), PointwiseOp, sizes):
        yield PointwisePoint(op=op, num_elements=size, data_type=data_type)


def _reductions(target: Target) -> Iterator[ReductionPoint]:
    rows = _sizes(256, 4096 if target.on_cpu else 65536)
    for data_type, op, count, columns in product(
        _types(target), ReductionOp, rows, (16, 128, 1024)
    ):
        yield ReductionPoint(op=op, rows=count, columns=columns, data_type=data_type)


def _interactions(target: Target) -> Iterator[InteractionPoint]:
    samples = _sizes(256, 1024 if target.on_cpu else 65536)
    for count, features, dim in product(samples, (8, 26, 52), (16, 64, 128)):
        yield InteractionPoint(num_samples=count, num_features=features, embedding_dim=dim)


def _attentions(target: Target) -> Iterator[AttentionPoint]:
    lengths = _sizes(32, 256 if target.on_cpu else 4096)
    types = (DataType.FP32,) if target.on_cpu else (DataType.BF16, DataType.FP16)
    sequences = (2, 8) if target.on_cpu else (4, 32, 128)
    for data_type, length, count, dim in product(types, lengths, sequences, (64, 128)):
        if count * length <= (2**12 if target.on_cpu else 2**18):
            yield AttentionPoint(
                num_sequences=count, num_heads=4, length=length, head_dim=dim, data_type=data_type
            )


def _transfers(target: Target) -> Iterator[TransferPoint]:
    sizes = _sizes(4 * KIB, (16 if target.on_cpu else 512) * MIB)
    for pinned, direction, size in product((True, False), Direction, sizes):
        yield TransferPoint(direction=direction, num_bytes=size, pinned=pinned)
