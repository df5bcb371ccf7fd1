"""Where a replayed run's time goes: per rank and stream, and on the critical path."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.execution.graph import NodeKind, Stage
from costmodel.execution.timeline import DEVICE_KINDS, Timeline
from costmodel.units import Seconds
from planner.replay.classify import category

CATEGORIES = (
    "embedding forward",
    "embedding backward",
    "gemm",
    "memory",
    "other",
    "all-to-all",
    "all-reduce",
    "reduce-scatter",
    "all-gather",
)
"""Rows of Fig. 2 of arXiv 2404.12674; collectives by kind."""
HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """What one stream of one rank does from the first event of the run to the last."""

    rank: int
    stream: str
    busy: Mapping[str, Seconds]
    """By category; of collectives only what they take once all ranks have joined."""
    waiting: Seconds
    """Collectives that wait for other ranks to join."""
    idle: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """How one rank's collectives meet its compute stream."""

    rank: int
    hidden: Seconds
    """Communicating while some other stream computes."""
    exposed: Seconds
    """Communicating while nothing computes."""
    waiting: Seconds
    """Waiting for other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """One category of the critical path."""

    category: str
    seconds: Seconds
    rank: int | None
    """The only rank it is on, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the time goes."""

    streams: Sequence[StreamUse]
    communication: Sequence[Communication]
    path: Sequence[PathPart]
    """Of the last step, longest first."""
    path_time: Seconds

    @property
    def host_bound(self) -> float:
        """The share of the critical path that is the host's."""
        host = sum(part.seconds for part in self.path if part.category == HOST)
        return host / self.path_time if self.path_time else 0.0


def breakdown(timeline: Timeline) -> Breakdown:
    """Read the breakdown off a timed graph."""
    ranks = range(timeline.graph.world_size)
    by_rank: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(timeline.graph.nodes):
        if node.kind in DEVICE_KINDS:
            by_rank[node.rank].append(index)
    path = _path(timeline)
    return Breakdown(
        streams=[use for rank in ranks for use in _streams(timeline, rank, by_rank[rank])],
        communication=[_communication(timeline, rank, by_rank[rank]) for rank in ranks],
        path=path,
        path_time=sum(part.seconds for part in path),
    )


def _streams(timeline: Timeline, rank: int, nodes: Sequence[int]) -> list[StreamUse]:
    busy: dict[str, dict[str, Seconds]] = defaultdict(lambda: defaultdict(float))
    waiting: dict[str, Seconds] = defaultdict(float)
    for index in nodes:
        node = timeline.graph.nodes[index]
        busy[node.resource][category(node.name, node.kind, node.stage)] += node.seconds
        if node.kind is NodeKind.COLLECTIVE:
            waiting[node.resource] += max(0.0, timeline.starts[index] - timeline.ready[index])
    whole = max(timeline.ends)
    order = sorted(busy, key=lambda stream: (stream != "compute", stream))
    return [
        StreamUse(
            rank=rank,
            stream=stream,
            busy=dict(busy[stream]),
            waiting=waiting[stream],
            idle=max(0.0, whole - sum(busy[stream].values()) - waiting[stream]),
        )
        for stream in order
    ]


def _communication(timeline: Timeline, rank: int, nodes: Sequence[int]) -> Communication:
    work: list[tuple[Seconds, Seconds]] = []
    collectives: list[tuple[Seconds, Seconds]] = []
    waiting = 0.0
    for index in nodes:
        span = (timeline.starts[index], timeline.ends[index])
        if timeline.graph.nodes[index].kind is NodeKind.COLLECTIVE:
            collectives.append(span)
            waiting += max(0.0, timeline.starts[index] - timeline.ready[index])
        else:
            work.append(span)
    total = sum(end - start for start, end in _union(collectives))
    hidden = _overlap(_union(collectives), _union(work))
    return Communication(rank=rank, hidden=hidden, exposed=total - hidden, waiting=waiting)


def _union(spans: Sequence[tuple[Seconds, Seconds]]) -> list[tuple[Seconds, Seconds]]:
    merged: list[tuple[Seconds, Seconds]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _overlap(
    first: Sequence[tuple[Seconds, Seconds]], second: Sequence[tuple[Seconds, Seconds]]
) -> Seconds:
    """Return how long both run; each is sorted and without overlaps of its own."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total


def _path(timeline: Timeline) -> list[PathPart]:
    seconds: dict[str, Seconds] = defaultdict(float)
    ranks: dict[str, set[int]] = defaultdict(set)
    for segment in timeline.critical_path():
        node = timeline.graph.nodes[segment.node]
        host = segment.stage is Stage.HOST
        name = HOST if host else category(node.name, node.kind, node.stage)
        seconds[name] += segment.seconds
        ranks[name].add(node.rank)
    return [
        PathPart(
            category=name,
            seconds=seconds[name],
            rank=min(ranks[name]) if len(ranks[name]) == 1 else None,
        )
        for name in sorted(seconds, key=lambda each: -seconds[each])
    ]
