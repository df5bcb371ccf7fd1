"""Where a replayed run's time goes, by rank and stream, and on the critical path."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from costmodel.base.units import Seconds
from costmodel.step.graph import NodeKind, Role, Stage
from costmodel.step.timeline import DEVICE_KINDS, PathSegment, Timeline
from planner.traces.replay.classify import Category, category

CATEGORIES: Sequence[Category] = tuple(
    each for each in Category if each not in (Category.HOST, Category.OTHER_RANKS)
)
"""Categories of work on the device."""
_COLLECTIVES = (
    Category.ALL_TO_ALL,
    Category.ALL_REDUCE,
    Category.REDUCE_SCATTER,
    Category.ALL_GATHER,
)


class Limit(StrEnum):
    """What limits a part of the critical path."""

    CPU = "CPU"
    GPU = "GPU"
    NETWORK = "network"
    OTHER_RANKS = "other ranks"


def limit_of(category: Category) -> Limit:
    """Return what limits the work of a category."""
    if category is Category.HOST:
        return Limit.CPU
    if category is Category.OTHER_RANKS:
        return Limit.OTHER_RANKS
    return Limit.NETWORK if category in _COLLECTIVES else Limit.GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """Seconds of one stream of one rank by kind of work, over the whole run."""

    rank: int
    stream: str
    busy: Mapping[Category, Seconds]
    """By category; of collectives only the time after all ranks have joined."""
    waiting: Seconds
    """Seconds in which collectives wait for other ranks to join."""
    idle: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationTimes:
    """Overlap of one rank's collectives with its other work."""

    rank: int
    hidden: Seconds
    """Seconds in which it communicates while another stream computes."""
    exposed: Seconds
    """Seconds in which it communicates while nothing computes."""
    waiting: Seconds
    """Seconds in which at least one collective waits for other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """One category of the critical path."""

    category: Category
    seconds: Seconds
    rank: int | None
    """The only rank it is on, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the critical path that stays on one rank, thread or stream, and category."""

    start: Seconds
    """From the beginning of the step."""
    seconds: Seconds
    rank: int
    resource: str
    category: Category
    longest: str
    """Name of the node that takes most of it; for the host, of the call that it leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where a run's time goes."""

    streams: Sequence[StreamUse]
    communication: Sequence[CommunicationTimes]
    path: Sequence[PathPart]
    """The last step's critical path by category, longest first."""
    path_time: Seconds
    stretches: Sequence[Stretch]
    """The last step's critical path in the order of time."""

    @property
    def host_bound(self) -> float:
        """The share of the critical path that is the host's."""
        return self.bounds.get(Limit.CPU, 0.0)

    @property
    def bounds(self) -> Mapping[Limit, float]:
        """The shares of the critical path by what bounds it, largest first."""
        shares: dict[Limit, float] = defaultdict(float)
        for part in self.path:
            shares[limit_of(part.category)] += part.seconds / self.path_time
        return dict(sorted(shares.items(), key=lambda share: -share[1]))


def breakdown(timeline: Timeline) -> Breakdown:
    """Return the breakdown of a timed graph."""
    ranks = timeline.graph.ranks
    by_rank: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(timeline.graph.nodes):
        if node.kind in DEVICE_KINDS:
            by_rank[node.rank].append(index)
    segments = timeline.critical_path()
    path = _path(timeline, segments)
    return Breakdown(
        streams=[use for rank in ranks for use in _streams(timeline, rank, by_rank[rank])],
        communication=[_communication(timeline, rank, by_rank[rank]) for rank in ranks],
        path=path,
        path_time=sum(part.seconds for part in path),
        stretches=_stretches(timeline, segments),
    )


def _streams(timeline: Timeline, rank: int, nodes: Sequence[int]) -> list[StreamUse]:
    busy: dict[str, dict[Category, Seconds]] = defaultdict(lambda: defaultdict(float))
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


def _communication(timeline: Timeline, rank: int, nodes: Sequence[int]) -> CommunicationTimes:
    """Return the seconds of a rank's collectives, hidden by work or not, and of its waits."""
    work: list[tuple[Seconds, Seconds]] = []
    collectives: list[tuple[Seconds, Seconds]] = []
    waits: list[tuple[Seconds, Seconds]] = []
    for index in nodes:
        span = (timeline.starts[index], timeline.ends[index])
        if timeline.graph.nodes[index].kind is NodeKind.COLLECTIVE:
            collectives.append(span)
            waits.append((min(timeline.ready[index], span[0]), span[0]))
        else:
            work.append(span)
    total, waiting = (
        sum(end - start for start, end in union(spans)) for spans in (collectives, waits)
    )
    hidden = _overlap(union(collectives), union(work))
    return CommunicationTimes(rank=rank, hidden=hidden, exposed=total - hidden, waiting=waiting)


def union(spans: Sequence[tuple[Seconds, Seconds]]) -> list[tuple[Seconds, Seconds]]:
    """Return spans of time merged where they overlap, in order."""
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
    """Return the seconds in which both run; each is sorted and without overlaps of its own."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total


def _path(timeline: Timeline, segments: Sequence[PathSegment]) -> list[PathPart]:
    """Return the critical path's seconds by category, the longest first."""
    seconds: dict[Category, Seconds] = defaultdict(float)
    ranks: dict[Category, set[int]] = defaultdict(set)
    for segment in segments:
        name = _category(timeline, segment)
        seconds[name] += segment.seconds
        ranks[name].add(timeline.graph.nodes[segment.node].rank)
    return [
        PathPart(
            category=name,
            seconds=seconds[name],
            rank=min(ranks[name]) if len(ranks[name]) == 1 else None,
        )
        for name in sorted(seconds, key=lambda each: -seconds[each])
    ]


def _stretches(timeline: Timeline, segments: Sequence[PathSegment]) -> list[Stretch]:
    """Return the critical path as stretches on one rank and resource, in order."""

    def place(segment: PathSegment) -> tuple[int, str, Category]:
        node = timeline.graph.nodes[segment.node]
        what = _category(timeline, segment)
        on_device = what not in (Category.HOST, Category.OTHER_RANKS)
        resource = node.resource if on_device else what.value
        return node.rank, resource, what

    begin = timeline.window[0]
    stretches = []
    for (rank, resource, what), same in groupby(segments, place):
        parts = list(same)
        longest = max(parts, key=lambda part: part.seconds)
        stretches.append(
            Stretch(
                start=parts[0].start - begin,
                seconds=sum(part.seconds for part in parts),
                rank=rank,
                resource=resource,
                category=what,
                longest=timeline.graph.nodes[longest.node].name,
            )
        )
    return stretches


def _category(timeline: Timeline, segment: PathSegment) -> Category:
    node = timeline.graph.nodes[segment.node]
    if node.role is Role.ABSENT:
        return Category.OTHER_RANKS
    if segment.stage is Stage.HOST:
        before = timeline.binding[segment.node]
        if before is None or before != node.launched_by:
            return Category.HOST
        in_graph = timeline.graph.nodes[before].kind in DEVICE_KINDS
        return Category.OTHER if in_graph else Category.HOST
    return category(node.name, node.kind, node.stage)
