"""A timed execution graph: critical path, breakdown, busy and waiting times."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.intervals import covered
from costmodel.base.units import Seconds
from costmodel.step.graph import ExecutionGraph, NodeGroup, NodeKind, Resource, Stage

DEVICE_KINDS = (NodeKind.KERNEL, NodeKind.COPY, NodeKind.COLLECTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSegment:
    """A part of the critical path: the node that the step waited for, and for how long."""

    node: int
    start: Seconds
    seconds: Seconds
    stage: Stage


@dataclass(frozen=True, kw_only=True, repr=False)
class Timeline:
    """When every node of a graph ran.

    Times are seconds from the start of the first step. The *window* is the last step of the
    graph: from the end of the step before it to its own end.
    """

    graph: ExecutionGraph
    starts: Sequence[Seconds]
    """When the node occupied its resource; for collectives, when the last member was ready."""
    ready: Sequence[Seconds]
    """When the node could have started on its own rank; a collective waits from here on."""
    ends: Sequence[Seconds]
    binding: Sequence[int | None]
    """The predecessor whose end decided the node's start; None at the beginning."""
    step_ends: Sequence[Seconds]
    """End of every step: when the last rank has finished it."""

    def __repr__(self) -> str:
        steps, ranks = len(self.step_ends), self.graph.world_size
        return f"<Timeline of {steps} steps on {ranks:,} ranks, {len(self.graph.nodes):,} nodes>"

    @property
    def window(self) -> tuple[Seconds, Seconds]:
        """Start and end of the last step."""
        start = self.step_ends[-2] if len(self.step_ends) > 1 else 0.0
        return start, self.step_ends[-1]

    @property
    def step_time(self) -> Seconds:
        """Length of the last step, in the steady state of the pipeline."""
        start, end = self.window
        return end - start

    def stretched(self, step_time: Seconds) -> "Timeline":
        """Return the timeline with all times multiplied such that its last step takes so long."""
        factor = step_time / self.step_time if self.step_time else 1.0
        times = (self.starts, self.ready, self.ends, self.step_ends)
        starts, ready, ends, step_ends = ((np.asarray(each) * factor).tolist() for each in times)
        return replace(self, starts=starts, ready=ready, ends=ends, step_ends=step_ends)

    @property
    def last_node(self) -> int:
        """The node that ends last; of several, the first one of the graph."""
        return int(np.argmax(np.asarray(self.ends)))

    def critical_path(self) -> tuple[PathSegment, ...]:
        """Return the chain of nodes that decided the end of the last step, in time order.

        Segments are cut to the window and follow each other without gaps, so their lengths
        add up to the step time. Time between a launch and its kernel counts as host time.
        """
        begin, end = self.window
        node: int | None = self.last_node
        at, path = end, []
        while node is not None and at > begin:
            start = max(begin, min(self.starts[node], at))
            if at > start:
                path.append(self._segment(node, start, at, self.graph.nodes[node].stage))
            at = start
            before = self.binding[node]
            if before is not None and self.ends[before] < at:
                launched = max(begin, self.ends[before])
                path.append(self._segment(node, launched, at, Stage.HOST))
                at = launched
            node = before
        return tuple(reversed(path))

    @staticmethod
    def _segment(node: int, start: Seconds, end: Seconds, stage: Stage) -> PathSegment:
        return PathSegment(node=node, start=start, seconds=end - start, stage=stage)

    def breakdown(self) -> Mapping[Stage, Seconds]:
        """Return seconds of the critical path by stage, largest first; they sum to the step."""
        total: dict[Stage, Seconds] = defaultdict(float)
        for segment in self.critical_path():
            total[segment.stage] += segment.seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    @cached_property
    def busy_times(self) -> Mapping[tuple[str, Stage], Array]:
        """Return seconds of the last step in which resources work, by resource and stage.

        Arrays have shape (ranks,). A collective counts from when its last member was ready: waiting
        for peers is not work.
        """
        total: dict[tuple[str, Stage], Array] = {}
        starts, ends = np.asarray(self.starts), np.asarray(self.ends)
        for group in self.graph.groups():
            place = group.first.resource, group.first.stage
            seconds = self._within(starts[group.numbers], ends[group.numbers])
            np.add.at(total.setdefault(place, self._zeros()), group.ranks, seconds)
        return total

    @cached_property
    def waiting_times(self) -> Array:
        """Return seconds of the last step in which at least one collective waits for peers.

        Waits of several process groups at the same time count once; shape (ranks,).
        """
        return self._waited(self.graph.groups())

    @cached_property
    def waiting_by_stream(self) -> Mapping[str, Array]:
        """Return the waiting seconds by the collectives' resource, shape (ranks,) each.

        Together with ``busy_times`` they are at most the step on each resource.
        """
        streams: dict[str, list[NodeGroup]] = {}
        for group in self.graph.groups():
            if group.first.kind is NodeKind.COLLECTIVE:
                streams.setdefault(group.first.resource, []).append(group)
        return {resource: self._waited(groups) for resource, groups in streams.items()}

    def _waited(self, groups: Iterable[NodeGroup]) -> Array:
        """Return seconds of the window in which any collective of some groups waits, by rank."""
        some = [group for group in groups if group.first.kind is NodeKind.COLLECTIVE]
        return self._covered(some, self.ready, self.starts)

    def work_times(self, groups: Sequence[NodeGroup]) -> Array:
        """Return the seconds of the last step in which at least one of the groups runs, by rank.

        Work on several streams at the same time counts once, so that it is at most the step.
        """
        return self._covered(groups, self.starts, self.ends)

    @property
    def idle_times(self) -> Array:
        """Return seconds of the last step in which compute streams do nothing, shape (ranks,)."""
        work = [each for place, each in self.busy_times.items() if place[0] == Resource.COMPUTE]
        idle: Array = self.step_time - sum(work, start=self._zeros())
        return idle.clip(min=0.0)

    def busy(self, rank: int) -> Mapping[str, Mapping[Stage, Seconds]]:
        """Return ``busy_times`` of one rank, by resource and then by stage."""
        total: dict[str, dict[Stage, Seconds]] = {}
        for (resource, stage), seconds in self.busy_times.items():
            if seconds[rank] > 0:
                total.setdefault(resource, {})[stage] = float(seconds[rank])
        return total

    def _covered(
        self, groups: Sequence[NodeGroup], begins: Sequence[Seconds], ends: Sequence[Seconds]
    ) -> Array:
        """Return how much of the window lies between some groups' begins and ends, by rank."""
        if not groups:
            return self._zeros()
        begin, end = self.window
        numbers = np.concatenate([group.numbers for group in groups])
        ranks = np.concatenate([group.ranks for group in groups])
        first, last = np.asarray(begins)[numbers], np.asarray(ends)[numbers]
        return covered(ranks, first.clip(min=begin), last.clip(max=end), self.graph.world_size)

    def _within(self, starts: Array, ends: Array) -> Array:
        """Return the seconds of each stretch that lie in the window."""
        begin, end = self.window
        inside: Array = np.minimum(end, ends) - np.maximum(begin, starts)
        return inside.clip(min=0.0)

    def _zeros(self) -> Array:
        return np.zeros(self.graph.world_size)
