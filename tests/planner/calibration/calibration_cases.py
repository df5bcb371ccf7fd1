"""A machine with known constants, and what measuring it without noise would give."""

from collections.abc import Mapping
from typing import Any

from costmodel.base.units import GB, GIB, MIB, US
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer, Pooling
from costmodel.kernels.embedding import kernel_times
from costmodel.kernels.shard_traffic import Caches
from costmodel.step.issue import LOOKUP, LOOKUP_BACKWARD
from planner.calibration.fit_host import LAYERS_BACKWARD, LAYERS_FORWARD
from planner.calibration.fit_operators import MOVED
from planner.calibration.grids import Grid, Target, grid_points
from planner.calibration.lookup_data import Constants, point_traffic
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    HostPart,
    HostPoint,
    OperatorPoint,
    Point,
    StreamPoint,
    TableSet,
)
from planner.calibration.profile import MachineFacts
from planner.calibration.records import Measured, Record

L2_BYTES = 16 * MIB
OP_TIME, BACKWARD_OP_TIME = 10 * US, 20 * US
CALL = 0.1 * US
VECTOR_TIME = 20e-9
"""Long beside the arithmetic of an interaction, and the memory it moves."""
ELEMENT_TIMES = {"gelu": 2e-9, "bernoulli": 7e-9}
"""What an element of some operators takes beyond memory."""
CORE = Constants(
    lookup_bandwidth=8e9,
    update_bandwidth=12e9,
    gather_bandwidth=1e11,
    sort_rate=1.2e8,
    overlap=0.2,
    lookup_time=1.5e-9,
    row_read_time=9e-9,
    row_update_time=20e-9,
)
MACHINE = MachineFacts(
    name="test core",
    memory_bytes=8 * GIB,
    host_memory_bytes=16 * GIB,
    l2_bytes=L2_BYTES,
    num_sms=1,
    ranks_per_node=2,
)
FACTS: Mapping[str, Any] = {
    "device": "cpu",
    "name": "test core",
    "num_ranks": 2,
    "num_nodes": 1,
    "cores": 2,
    "date": "2026-01-02",
    "python": "3.11.7",
    "versions": {"torch": "2.13.0"},
}
TARGET = Target(
    on_cpu=True,
    memory_bytes=8 * GIB,
    num_ranks=2,
    num_nodes=1,
    optimizers=(Optimizer.ROWWISE_ADAGRAD,),
    data_types=(DataType.FP32,),
)


def measured(grid: Grid = Grid.QUICK) -> Measured:
    """Return every point of a grid as the machine would take it."""
    points = [point for some in grid_points(grid, TARGET).values() for point in some]
    return Measured(machine=FACTS, records=tuple(map(record, points)))


def record(point: Point) -> Record:
    """Return one noiseless measurement."""
    return Record(point=point, seconds=_seconds(point), spread={"any": 0.01}, repeats=5)


def lookups(record_count: int, constants: Constants = CORE) -> list[Record]:
    """Return some noiseless lookups of a kernel without host time."""
    points = grid_points(Grid.QUICK, TARGET)[Family.EMBEDDING][:record_count]
    return [
        Record(point=p, seconds=_lookup(p, constants))
        for p in points
        if isinstance(p, EmbeddingPoint)
    ]


def _seconds(point: Point) -> dict[str, float]:
    if isinstance(point, EmbeddingPoint):
        kernel = _lookup(point, CORE)
        return {
            "forward": kernel["forward"] + LOOKUP.num_ops * OP_TIME,
            "backward": kernel["backward"] + LOOKUP_BACKWARD.num_ops * BACKWARD_OP_TIME,
        }
    if isinstance(point, StreamPoint):
        return {"operator": 5 * US + point.num_bytes / (20 * GB)}
    if isinstance(point, OperatorPoint):
        each = ELEMENT_TIMES.get(point.operator, 0.0)
        streamed = MOVED[point.operator] * point.num_elements / (20 * GB)
        return {"operator": 5 * US + streamed + each * point.num_elements}
    if isinstance(point, GemmPoint):
        vectors = point.num_products * point.m * -(-point.n // 16)
        own = VECTOR_TIME * vectors if point.num_products > 1 else 0.0
        columns = 16 * -(-point.n // 16) if point.num_products > 1 else point.n
        flops = 2.0 * point.num_products * point.m * columns * point.k
        numbers = point.m * point.k + point.k * point.n + point.m * point.n
        if point.num_products > 1:
            own += point.num_products * numbers * 4 / (20 * GB)
        return {"product": 2 * US + own + flops / 80e9}
    if isinstance(point, CollectivePoint):
        factor = 2.0 if point.op is CollectiveOp.ALL_REDUCE else 1.0
        return {"collective": 50 * US + factor * point.num_bytes / (4 * GB)}
    return _host(point)


def _host(point: HostPoint) -> dict[str, float]:
    forward = {HostPart.LOOKUP: LOOKUP, HostPart.LAYER: LAYERS_FORWARD}
    backward = {HostPart.LOOKUP: LOOKUP_BACKWARD, HostPart.LAYER: LAYERS_BACKWARD}
    if point.part in forward:
        return {
            "forward": forward[point.part].num_ops * OP_TIME,
            "backward": backward[point.part].num_ops * BACKWARD_OP_TIME,
        }
    return {"many": 3 * US, "until_done": 4 * US, "issue": 60 * US}


def _lookup(point: EmbeddingPoint, constants: Constants) -> dict[str, float]:
    rates = constants.rates(CALL)
    traffic = point_traffic(point, Caches(l2_bytes=L2_BYTES))
    return {
        "forward": float(kernel_times(traffic, rates, backward=False)),
        "backward": float(kernel_times(traffic, rates, backward=True)),
    }


GPU_SETS = tuple(
    TableSet(
        num_embeddings=(100,), embedding_dims=(8,), data_type=DataType.FP16, optimizer=optimizer,
        compute_kernel=kernel, pooling=pooling,
        cache_load_factor=0.1 if kernel is ComputeKernel.FUSED_UVM_CACHING else 0.0,
    )
    for kernel, optimizer, pooling in (
        (ComputeKernel.FUSED, Optimizer.ADAM, Pooling.SUM),
        (ComputeKernel.FUSED, Optimizer.SGD, Pooling.NONE),
        (ComputeKernel.FUSED_UVM, Optimizer.ROWWISE_ADAGRAD, Pooling.SUM),
        (ComputeKernel.FUSED_UVM_CACHING, Optimizer.ROWWISE_ADAGRAD, Pooling.SUM),
    )
)  # fmt: skip
"""Sets of tables in the places that only a GPU has."""
