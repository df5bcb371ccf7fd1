"""The points to measure: ``quick`` for a first profile, ``full`` to fit models on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

import numpy as np

from costmodel.base.units import GB, GIB, KIB, MIB, Bytes
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.embedding_grid import EmbeddingLimits, embedding_grid, sobol
from planner.calibration.fit_operators import MOVED
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    HostPart,
    HostPoint,
    OperatorPoint,
    Point,
    StreamOp,
    StreamPoint,
)

_SEED = 0
_UPDATE_SETS = 6
"""Sets of tables of each backward that has a few points only."""
_POOLED_IDS, _UNPOOLED_IDS = 4e5, 5e4
"""Most ids of one batch there."""
_REPLICATED_BYTES: Bytes = 400e6
_REPLICATED_ROWS = 2e5
"""Size and rows of replicated tables whose gradient no core's cache holds."""
CPU_OPTIMIZERS = (Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAGRAD)
"""Optimizers that FBGEMM's lookups have on a CPU (fbgemm-gpu-cpu 1.8)."""
_FEW_ELEMENTS = 512
"""Elements of an operator of which only the call is measured."""
_UPLOAD_BYTES = 64 * 2**20
_FOCUS = (0.25, 0.5, 1.0)
_BATCHES_PER_SET = 4
_CPU_SETS, _GPU_SETS = 500, 600
"""Number of sets of tables of the full grid. On a GPU a sixth of them is not in HBM."""
_GPU_TABLE_COUNTS = (1, 1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256)
_FP8_MULTIPLE = 16
"""Divisor of every size of an FP8 product (cuBLAS)."""


class Grid(StrEnum):
    """How many points are measured."""

    QUICK = "quick"
    """120 embedding points, 150 products: three to six minutes on CPU cores."""
    FULL = "full"
    """2,000 embedding points in HBM, 400 products per type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The properties of a machine that its points depend on."""

    on_cpu: bool
    memory_bytes: Bytes
    """All memory of a rank, not only free memory: a resumed run must have the same points."""
    num_ranks: int
    num_nodes: int
    optimizers: tuple[Optimizer, ...]
    data_types: tuple[DataType, ...]
    """Types of embedding weights."""
    has_fp8: bool = False
    """Whether the GPU multiplies FP8."""


def grid_points(grid: Grid, target: Target) -> dict[Family, tuple[Point, ...]]:
    """Return all points by family, the same for the same grid and machine."""
    full = grid is Grid.FULL
    sets = (_CPU_SETS if target.on_cpu else _GPU_SETS) if full else 30
    return {
        Family.STREAM: tuple(_streams(target, full=full)),
        Family.OPERATOR: tuple(_operators(target)),
        Family.GEMM: (
            *_products(target, 400 if full else 150),
            *(_interactions(32 if full else 10) if target.on_cpu else ()),
        ),
        Family.HOST: tuple(_host(target)),
        Family.COLLECTIVE: tuple(_collectives(target, full=full)),
        Family.EMBEDDING: (
            *embedding_grid(sets, _BATCHES_PER_SET, embedding_limits(target)),
            *((*_updates(target), *_replicated(target)) if target.on_cpu else ()),
        ),
    }


def _updates(target: Target) -> Iterator[EmbeddingPoint]:
    """Yield a few lookups for each backward of a core that has a kernel of its own.

    The full grid is of the optimizer that is asked for, and pooled. All have the same tables and
    batches but for the number of ids: without pooling an id takes microseconds.
    """
    limits = embedding_limits(target)
    kinds = ((DataType.FP32, False), (DataType.FP32, True), (DataType.FP16, False))
    for optimizer, (data_type, unpooled) in product(CPU_OPTIMIZERS, kinds):
        plain = data_type is DataType.FP32 and not unpooled
        if plain and optimizer in target.optimizers:
            continue
        few = replace(
            limits,
            optimizers=(optimizer,),
            data_types=(data_type,),
            num_ids=_UNPOOLED_IDS if unpooled else _POOLED_IDS,
            unpooled_share=float(unpooled),
            table_counts=(1, 2),
        )
        every = embedding_grid(_UPDATE_SETS, _BATCHES_PER_SET, few)
        yield from (p for p in every if p.tables.compute_kernel is ComputeKernel.FUSED)


def _replicated(target: Target) -> Iterator[EmbeddingPoint]:
    """Yield lookups of replicated tables beyond a core's cache, which the full grid has none of."""
    limits = embedding_limits(target)
    large = replace(
        limits,
        table_bytes=min(_REPLICATED_BYTES, limits.table_bytes),
        rows=(_REPLICATED_ROWS, limits.rows[1]),
        num_ids=_POOLED_IDS,
        table_counts=(1, 2),
    )
    for point in embedding_grid(_UPDATE_SETS, _BATCHES_PER_SET, large):
        if point.tables.compute_kernel is ComputeKernel.FUSED:
            tables = replace(
                point.tables, compute_kernel=ComputeKernel.DENSE, optimizer=Optimizer.SGD
            )
            yield replace(point, tables=tables)


def embedding_limits(target: Target) -> EmbeddingLimits:
    """Return the ranges of lookups: wide on a GPU; on a CPU, those that end in time."""
    if target.on_cpu:
        return EmbeddingLimits(
            table_bytes=min(1.5 * GB, 0.15 * target.memory_bytes),
            gathered_bytes=512e6,
            num_ids=4e6,
            rows=(1e2, 1e7),
            samples=(256, 32768),
            data_types=target.data_types,
            optimizers=target.optimizers,
        )
    return EmbeddingLimits(
        table_bytes=0.4 * target.memory_bytes,
        gathered_bytes=min(4 * GB, 0.1 * target.memory_bytes),  # outputs below 2**31 elements
        num_ids=64e6,
        rows=(1e3, 1e8),
        samples=(512, 65536),
        data_types=target.data_types,
        optimizers=target.optimizers,
        table_counts=_GPU_TABLE_COUNTS,
        weighted_share=0.15,
        unpooled_share=0.1,
        uvm_share=1 / 6,
        uvm_bytes=8 * GB,
    )


def _streams(target: Target, *, full: bool) -> Iterator[StreamPoint]:
    largest: Bytes = 256 * MIB if target.on_cpu else 4 * GIB
    for op, size in product(StreamOp, _sizes(16 * KIB, largest, 2 if full else 1)):
        yield StreamPoint(op=op, num_bytes=size)


def _operators(target: Target) -> Iterator[OperatorPoint]:
    """Yield operators of dense parts on next to nothing, and at two sizes."""
    sizes = (2**15, 2**20) if target.on_cpu else (2**20, 2**25)
    left_out = "native_dropout" if target.on_cpu else "bernoulli"
    for size, name in product((_FEW_ELEMENTS, *sizes), MOVED):
        if name != left_out:
            yield OperatorPoint(operator=name, num_elements=size)


def _products(target: Target, count: int) -> tuple[Point, ...]:
    """Return products as DLRMs have them: a batch of rows, layers of 1 to 4,096, and gradients."""
    rng = np.random.default_rng(_SEED)
    types = [DataType.FP32]
    if not target.on_cpu:
        types += [DataType.TF32, DataType.FP16, DataType.BF16]
    types += [DataType.FP8] if target.has_fp8 else []
    largest_product = 4e9 if target.on_cpu else 4e12
    points: list[Point] = []
    for data_type in types:
        while len(points) < count * (types.index(data_type) + 1):
            batch = 2.0 ** rng.uniform(6, 14 if target.on_cpu else 16)
            layers = 2.0 ** rng.uniform(3, 12, 2)
            m, n, k = (max(1, round(size)) for size in (batch, *layers))
            if rng.random() < 0.5:  # most layers are multiples of eight wide
                n, k = (-(-size // 8) * 8 for size in (n, k))
            stored = ("b", "")[len(points) % 2]  # forward, or the gradient of the inputs
            if rng.random() < 1 / 3:  # the gradient of the weights: the batch is summed over
                m, n, k, stored = n, k, m, "a"
            if data_type is DataType.FP8:
                m, n, k = (-(-size // _FP8_MULTIPLE) * _FP8_MULTIPLE for size in (m, n, k))
            if 2.0 * m * n * k <= largest_product:
                stored = stored if target.on_cpu else ""
                points.append(GemmPoint(m=m, n=n, k=k, data_type=data_type, transposed=stored))
    return tuple(dict.fromkeys(points))


def _interactions(count: int) -> Iterator[GemmPoint]:
    """Yield the batched products of dot interactions, forward and both of backward.

    A sample's V vectors of D numbers X: X X' forward; its gradient G gives G X and, by the other
    operand, X' G. Sobol points over samples, V and D.
    """
    for place in sobol(3, count, _SEED):
        samples = round(2.0 ** (8 + 5 * place[0]))
        vectors, width = round(3 * 16.0 ** place[1]), 4 * round(2 * 16.0 ** place[2])
        for m, n, k, stored in (
            (vectors, vectors, width, "b"),
            (vectors, width, vectors, ""),
            (width, vectors, vectors, "a"),
        ):
            yield GemmPoint(
                m=m, n=n, k=k, data_type=DataType.FP32, num_products=samples, transposed=stored
            )


def _host(target: Target) -> Iterator[HostPoint]:
    for part in (HostPart.OPERATOR, HostPart.LAYER, HostPart.LOOKUP):
        yield HostPoint(part=part)
    if not target.on_cpu:
        yield HostPoint(part=HostPart.LAUNCH)
        yield HostPoint(part=HostPart.BACKWARD)
        yield HostPoint(part=HostPart.SYNCHRONIZE)
        yield HostPoint(part=HostPart.UPLOAD, size=_UPLOAD_BYTES)


def _collectives(target: Target, *, full: bool) -> Iterator[Point]:
    """Yield even messages of all sizes, uneven ones of three sizes, and issuing one on the host."""
    ranks = target.num_ranks
    if ranks == 1:
        return
    biggest: Bytes = min(256 * MIB, target.memory_bytes / 32) if target.on_cpu else GIB
    whole = 4 * ranks
    for op, size in product(CollectiveOp, _sizes(KIB, biggest, 2 if full else 1)):
        yield _collective(op, -(-size // whole) * whole, target)
    for focus, uneven in product(_FOCUS, (64 * KIB, MIB, 16 * MIB)):
        yield _collective(CollectiveOp.ALL_TO_ALL, int(uneven), target, focus=focus)
    yield HostPoint(part=HostPart.COLLECTIVE)


def _collective(
    op: CollectiveOp, num_bytes: int, target: Target, *, focus: float = 0.0
) -> CollectivePoint:
    return CollectivePoint(
        op=op,
        num_bytes=num_bytes,
        num_ranks=target.num_ranks,
        num_nodes=target.num_nodes,
        focus=focus,
    )


def _sizes(first: float, last: float, per_octave: int) -> list[int]:
    count = round(np.log2(last / first) * per_octave) + 1
    return [round(float(size)) for size in np.geomspace(first, last, count)]
