from dataclasses import replace

import pytest

from costmodel.base.units import MIB, MS
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    Point,
    StreamOp,
    StreamPoint,
    TableSet,
)
from planner.calibration.records import Record
from planner.validation.job import Block, RankResult
from planner.validation.machine_speed import (
    PROBES_PER_FAMILY,
    common_slowdown,
    probes,
    slowdown_texts,
    slowdowns,
    slowed,
)


def lookup(rows: int, kernel: ComputeKernel = ComputeKernel.FUSED) -> EmbeddingPoint:
    tables = TableSet(
        num_embeddings=(rows,), embedding_dims=(64,), data_type=DataType.FP32,
        optimizer=Optimizer.SGD, compute_kernel=kernel,
    )  # fmt: skip
    return EmbeddingPoint(tables=tables, num_samples=8, pooling_factors=(1.0,), zipf=(0.0,))


def record(point: Point, *seconds: float) -> Record:
    names = ("forward", "backward") if len(seconds) > 1 else ("any",)
    return Record(point=point, seconds=dict(zip(names, seconds, strict=True)))


def product(size: int, **more: int) -> GemmPoint:
    return GemmPoint(m=size, n=size, k=size, data_type=DataType.FP32, **more)  # type: ignore[arg-type]


def exchange(op: CollectiveOp, num_bytes: int) -> CollectivePoint:
    return CollectivePoint(op=op, num_bytes=num_bytes, num_ranks=2, num_nodes=1)


def test_probes_are_kernels_of_some_milliseconds_of_every_family() -> None:
    wanted = [
        record(StreamPoint(op=StreamOp.COPY, num_bytes=16 * MIB), 3 * MS),
        record(StreamPoint(op=StreamOp.ADD, num_bytes=16 * MIB), 5 * MS),
        record(product(512), 4 * MS),
        record(product(600), 6 * MS),
        record(lookup(1000), 2 * MS, 2 * MS),
        record(exchange(CollectiveOp.ALL_TO_ALL, MIB), 1 * MS),
    ]
    others = [
        record(StreamPoint(op=StreamOp.VIEWS, num_bytes=16 * MIB), 4 * MS),
        record(product(16), 0.001 * MS),
        record(product(64, num_products=9), 4 * MS),
        record(lookup(10_000_000), 2 * MS, 2 * MS),  # larger than a probe's tables may be
        record(lookup(1000, ComputeKernel.DENSE), 2 * MS, 2 * MS),
        record(exchange(CollectiveOp.ALL_REDUCE, MIB), 4 * MS),
    ]
    chosen = probes([*others, *wanted])
    assert {each.point.family for each in chosen} == {each.point.family for each in wanted}
    assert len(chosen) == len(wanted) <= 4 * PROBES_PER_FAMILY
    assert all(each in chosen for each in wanted)
    assert probes(()) == ()


def test_slowdowns_are_medians_over_rounds_and_ranks() -> None:
    chosen = [record(product(512), 4 * MS), record(lookup(1000), 1 * MS, 3 * MS)]

    def rank(*rounds: tuple[float, float]) -> list[RankResult]:
        blocks = (
            Block(wall=(1.0,), cpu=(1.0,), foreign=0.0, probes=(a * MS, b * MS)) for a, b in rounds
        )
        return [RankResult(blocks=tuple(blocks))]

    ranks = [rank((4, 5), (5, 5), (90, 5)), rank((4, 5), (5, 5), (5, 5))]
    factors = slowdowns(chosen, ranks)
    assert factors == {Family.GEMM: pytest.approx(1.25), Family.EMBEDDING: pytest.approx(1.25)}
    assert list(slowdown_texts(factors)) == ["products +25%", "lookups +25%"]
    assert slowdowns(chosen, [[RankResult(blocks=(Block(wall=(), cpu=(), foreign=0.0),))]]) == {}


def test_one_kernel_that_changed_by_itself_is_not_the_machine() -> None:
    # products take 1.3 and 1.0 times as long, lookups 1.04 times: the machine is 4% slower
    chosen = [record(product(512), 4 * MS), record(product(600), 4 * MS), record(lookup(9), 5 * MS)]
    block = Block(wall=(1.0,), cpu=(1.0,), foreign=0.0, probes=(5.2 * MS, 4 * MS, 5.2 * MS))
    ranks = [[RankResult(blocks=(block, block))]]
    assert common_slowdown(chosen, ranks) == pytest.approx(1.04)
    assert slowdowns(chosen, ranks)[Family.GEMM] == pytest.approx(1.15)
    assert common_slowdown(chosen, [[RankResult(blocks=())]]) is None


def test_everything_is_slowed_host_work_included() -> None:
    node = Node("any", NodeKind.KERNEL, Stage.DENSE_FORWARD, 0, "compute", 1.0)
    nodes = (node, replace(node, kind=NodeKind.COLLECTIVE), replace(node, kind=NodeKind.HOST))
    made = slowed(ExecutionGraph(nodes=nodes, world_size=1), 1.5)
    assert [each.seconds for each in made.nodes] == [1.5, 1.5, 1.5]
