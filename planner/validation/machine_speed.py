"""How fast the machine is now, beside when its profile was calibrated.

A few of the calibration's own kernels are measured again at the beginning of every round of a
validation run, all ranks at once. What they take longer than then is the machine's: its clock, its
neighbours on the same host, memory that others use. Predictions with kernels so much slower are
held against the measured steps, too; what is left is the model's error, and noise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from statistics import fmean, median
from typing import Any

from costmodel.base.units import MIB, Seconds
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Role
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    Point,
    StreamOp,
    StreamPoint,
    point_data,
)
from planner.calibration.records import Record
from planner.validation.job import RankResult

PROBES_PER_FAMILY = 2
_PROBED = (Family.STREAM, Family.GEMM, Family.EMBEDDING, Family.COLLECTIVE)
_USUAL: Seconds = 4e-3
"""What a probe should take: long enough to be timed well, short enough for every round."""
_MOST_TABLE_BYTES = 256 * MIB
"""Tables of a probe are made anew in every round, beside those that are trained."""

Slowdowns = Mapping[Family, float]
"""Time of kernels now over that when they were calibrated, by family."""


def probes(records: Sequence[Record]) -> tuple[Record, ...]:
    """Choose what is measured again: of every family the kernels nearest to some milliseconds."""
    chosen: list[Record] = []
    for family in _PROBED:
        fit = [each for each in records if each.point.family == family and _is_probe(each.point)]
        fit.sort(key=lambda each: abs(log(sum(each.seconds.values()) / _USUAL)))
        chosen += fit[:PROBES_PER_FAMILY]
    return tuple(chosen)


def _is_probe(point: Point) -> bool:
    if isinstance(point, StreamPoint):
        return point.op in {StreamOp.COPY, StreamOp.ADD}
    if isinstance(point, EmbeddingPoint):
        fused = point.tables.compute_kernel is ComputeKernel.FUSED
        return fused and point.tables.num_bytes <= _MOST_TABLE_BYTES
    if isinstance(point, CollectivePoint):
        return point.op is CollectiveOp.ALL_TO_ALL and not point.focus
    return isinstance(point, GemmPoint) and point.num_products == 1


def probe_data(chosen: Sequence[Record]) -> tuple[Mapping[str, Any], ...]:
    """Return what a job's ranks need to know of the probes: ``Job.probes``."""
    return tuple({"family": p.point.family, "point": point_data(p.point)} for p in chosen)


def slowdowns(chosen: Sequence[Record], ranks: Sequence[Sequence[RankResult]]) -> Slowdowns:
    """Return how much longer probes took than when calibrated: medians over rounds and ranks.

    ``ranks`` is what every rank measured, by plan; all plans' blocks of a round have its probes.
    """
    taken: dict[Family, list[float]] = {}
    for number, probe in enumerate(chosen):
        then = sum(probe.seconds.values())
        times = [block.probes[number] for rank in ranks for block in rank[0].blocks if block.probes]
        if times:
            taken.setdefault(Family(probe.point.family), []).append(median(times) / then)
    return {family: fmean(ratios) for family, ratios in taken.items()}


def slowed(graph: ExecutionGraph, factors: Slowdowns) -> ExecutionGraph:
    """Return a graph whose kernels and collectives take so much longer; host work stays."""

    def changed(node: Node) -> Node:
        return replace(node, seconds=node.seconds * factors.get(_family(node), 1.0))

    return ExecutionGraph(
        nodes=tuple(map(changed, graph.nodes)),
        world_size=graph.world_size,
        num_steps=graph.num_steps,
    )


def _family(node: Node) -> Family:
    if node.kind is NodeKind.COLLECTIVE or node.role is Role.EXCHANGE:
        return Family.COLLECTIVE
    if node.role is Role.PRODUCT:
        return Family.GEMM
    if node.role in {Role.LOOKUP, Role.UPDATE}:
        return Family.EMBEDDING
    return Family.STREAM if node.kind in {NodeKind.KERNEL, NodeKind.COPY} else Family.HOST


def slowdown_texts(factors: Slowdowns) -> Iterator[str]:
    """Yield every family's name and its slowdown in percent, with a sign."""
    names = {
        Family.GEMM: "products", Family.EMBEDDING: "lookups",
        Family.STREAM: "copies", Family.COLLECTIVE: "collectives",
    }  # fmt: skip
    for family, name in names.items():
        if family in factors:
            yield f"{name} {100 * (factors[family] - 1):+.0f}%"
