"""A timed execution graph, and what can be read off it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.base.units import Seconds
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Resource, Stage

DEVICE_KINDS = (NodeKind.KERNEL, NodeKind.COPY, NodeKind.COLLECTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSegment:
    """A stretch of the critical path: the node that the step waited for, and for how long."""

    node: int
    start: Seconds
    seconds: Seconds
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
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
    _window_nodes: Mapping[int, Sequence[int]] = field(init=False, repr=False, compare=False)
    """Nodes that overlap the window, by rank."""

    def __post_init__(self) -> None:
        begin, _ = self.window
        nodes: dict[int, list[int]] = defaultdict(list)
        for index, node in enumerate(self.graph.nodes):
            if self.ends[index] > begin:
                nodes[node.rank].append(index)
        object.__setattr__(self, "_window_nodes", nodes)

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

    def critical_path(self) -> tuple[PathSegment, ...]:
        """Return the chain of nodes that decided the end of the last step, in time order.

        Segments are cut to the window and follow each other without gaps, so their lengths
        add up to the step time. Time between a launch and its kernel counts as host time.
        """
        begin, end = self.window
        node: int | None = max(range(len(self.ends)), key=lambda i: (self.ends[i], -i))
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

    def busy(self, rank: int) -> Mapping[str, Mapping[Stage, Seconds]]:
        """Return seconds of the last step that one rank's resources work, by resource and stage.

        A collective counts from when its last member was ready: waiting for peers is not work.
        """
        begin, end = self.window
        total: dict[str, dict[Stage, Seconds]] = {}
        for index, node in self._of_rank(rank):
            seconds = min(end, self.ends[index]) - max(begin, self.starts[index])
            if seconds > 0:
                stages = total.setdefault(node.resource, defaultdict(float))
                stages[node.stage] += seconds
        return {resource: dict(stages) for resource, stages in total.items()}

    def waiting(self, rank: int) -> Seconds:
        """Return seconds of the last step that one rank's collectives wait for slower peers."""
        begin, end = self.window
        return sum(
            max(0.0, min(end, self.starts[index]) - max(begin, self.ready[index]))
            for index, node in self._of_rank(rank)
            if node.kind is NodeKind.COLLECTIVE
        )

    def idle(self, rank: int) -> Seconds:
        """Return seconds of the last step in which one rank's compute stream does nothing."""
        return max(0.0, self.step_time - sum(self.busy(rank).get(Resource.COMPUTE, {}).values()))

    def _of_rank(self, rank: int) -> Sequence[tuple[int, Node]]:
        return [(i, self.graph.nodes[i]) for i in self._window_nodes.get(rank, ())]
