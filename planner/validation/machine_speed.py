"""How fast the machine is now, beside when its profile was calibrated.

A few of the calibration's own kernels are measured again at the beginning of every round of a
validation run, all ranks at once. What most of them take longer than then is the machine's: its
clock, and time that its neighbours on the same host steal. Predictions with everything so much
slower are held against the measured steps, too; what is left is the model's error, and noise.

One factor for all, the median of the probes. A factor for every family was tried before, the mean
of its two probes: on the three blind workloads of ``bench.cpu_study`` one product of inner size 16
took 20 to 30% longer than when it was calibrated and the other one 5 to 6%, in all rounds, so that
all products of a step were taken to be 13 to 17% slower, which those of ``wide`` were not.
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
"""What a probe should take: long enough to be timed well, short enough for every round."""
_MOST_TABLE_BYTES = 256 * MIB
"""Tables of a probe are made anew in every round, beside those that are trained."""

Slowdowns = Mapping[Family, float]
"""Time of kernels now over that when they were calibrated, mean over a family's probes."""


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
    """Return how much longer every family's probes took than when calibrated."""
    ratios = _ratios(chosen, ranks)
    by_family: dict[Family, list[float]] = {}
    for probe, ratio in zip(chosen, ratios, strict=False):
        by_family.setdefault(Family(probe.point.family), []).append(ratio)
    return {family: fmean(found) for family, found in by_family.items()}


def common_slowdown(
    chosen: Sequence[Record], ranks: Sequence[Sequence[RankResult]]
) -> float | None:
    """Return how much slower the machine was than when calibrated: the median of all probes.

    ``ranks`` is what every rank measured, by plan. None where no probes were measured.
    """
    ratios = _ratios(chosen, ranks)
    return median(ratios) if ratios else None


def _ratios(chosen: Sequence[Record], ranks: Sequence[Sequence[RankResult]]) -> list[float]:
    """Return the time of every probe, the median of rounds and ranks, over the calibrated one.

    All plans' blocks of a round have its probes.
    """
    rounds = [block.probes for rank in ranks for block in rank[0].blocks if block.probes]
    return [
        median(times) / sum(probe.seconds.values())
        for probe, times in zip(chosen, zip(*rounds, strict=True), strict=False)
    ]


def slowed(graph: ExecutionGraph, factor: float) -> ExecutionGraph:
    """Return a graph of which every operation takes so much longer."""
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
