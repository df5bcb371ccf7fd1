"""The machine's speed during a validation run, compared with when it was calibrated.

A few of the calibration's kernels are measured again at the beginning of every round, all ranks at
once. If most of them take longer than then, the machine is slower: its clock, or time that
neighbours on the same host take. Predictions slowed by one factor, the median of the probes, are
compared with the measured steps, too; the rest is the model's error, and noise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from statistics import fmean, median
from typing import Any

from costmodel.base.units import MIB, Seconds
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.step.graph import ExecutionGraph
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
"""Seconds that a probe should take: long enough to be timed well, short enough for every round."""
_MOST_TABLE_BYTES = 256 * MIB
"""Most bytes of a probe's tables, which are made anew in every round beside the trained ones."""

Slowdowns = Mapping[Family, float]
"""Mean ratio of kernel times now to when they were calibrated, by family."""


def probes(records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the kernels to measure again: a few of every family, those nearest to ``_USUAL``."""
    chosen: list[Record] = []
    for family in _PROBED:
        fit = [each for each in records if each.point.family == family and _is_probe(each.point)]
        fit.sort(key=lambda each: abs(log(sum(each.seconds.values()) / _USUAL)))
        chosen += fit[:PROBES_PER_FAMILY]
    return tuple(chosen)


def _is_probe(point: Point) -> bool:
    """Return whether a point is of the plain kinds that are measured again."""
    if isinstance(point, StreamPoint):
        return point.op in {StreamOp.COPY, StreamOp.ADD}
    if isinstance(point, EmbeddingPoint):
        fused = point.tables.compute_kernel is ComputeKernel.FUSED
        return fused and point.tables.num_bytes <= _MOST_TABLE_BYTES
    if isinstance(point, CollectivePoint):
        return point.op is CollectiveOp.ALL_TO_ALL and not point.focus
    return isinstance(point, GemmPoint) and point.num_products == 1


def probe_data(chosen: Sequence[Record]) -> tuple[Mapping[str, Any], ...]:
    """Return the probes as data for a job's ranks (``Job.probes``)."""
    return tuple({"family": p.point.family, "point": point_data(p.point)} for p in chosen)


def slowdowns(chosen: Sequence[Record], ranks: Sequence[Sequence[RankResult]]) -> Slowdowns:
    """Return the slowdown of every family's probes since the calibration."""
    ratios = _ratios(chosen, ranks)
    by_family: dict[Family, list[float]] = {}
    for probe, ratio in zip(chosen, ratios, strict=False):
        by_family.setdefault(Family(probe.point.family), []).append(ratio)
    return {family: fmean(found) for family, found in by_family.items()}


def common_slowdown(
    chosen: Sequence[Record], ranks: Sequence[Sequence[RankResult]]
) -> float | None:
    """Return the median slowdown of all probes; None: none were measured.

    ``ranks`` are the results of every rank, by plan.
    """
    ratios = _ratios(chosen, ranks)
    return median(ratios) if ratios else None


def _ratios(chosen: Sequence[Record], ranks: Sequence[Sequence[RankResult]]) -> list[float]:
    """Return the time of every probe, the median of rounds and ranks, over the calibrated one.

    All plans' blocks of a round have the same probes.
    """
    rounds = [block.probes for rank in ranks for block in rank[0].blocks if block.probes]
    return [
        median(times) / sum(probe.seconds.values())
        for probe, times in zip(chosen, zip(*rounds, strict=True), strict=False)
    ]


def slowed(graph: ExecutionGraph, factor: float) -> ExecutionGraph:
    """Return a graph of which every operation takes ``factor`` times as long."""
    return ExecutionGraph(
        nodes=tuple(replace(node, seconds=node.seconds * factor) for node in graph.nodes),
        world_size=graph.world_size,
        num_steps=graph.num_steps,
    )


def slowdown_texts(factors: Slowdowns) -> Iterator[str]:
    """Yield every family's name and its slowdown in percent, with a sign."""
    names = {
        Family.GEMM: "products", Family.EMBEDDING: "lookups",
        Family.STREAM: "copies", Family.COLLECTIVE: "collectives",
    }  # fmt: skip
    for family, name in names.items():
        if family in factors:
            yield f"{name} {100 * (factors[family] - 1):+.0f}%"
