"""Event-driven simulation of an execution graph.

A node starts when its resource is free (nodes of a resource run in graph order), the nodes it
comes after have ended, and its launch has reached the device. A collective starts when its last
member is ready and ends on all of them at once. These rules are max-plus linear: lengthening
any node never ends another one earlier.

Real GPUs break that in one place: a kernel that becomes ready while a wide kernel of another
stream fills the GPU starts only when that one drains (seen in 131 of 138 delayed collectives of
three profiled runs), unless its own stream has a higher priority. ``drain=True`` adds the rule,
for replaying traces. Predictions leave it out: it delays a kernel by at most one other, and with
it a slower link could shorten a step (a scheduling anomaly), which no search can trust.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from costmodel.base.units import Seconds
from costmodel.step.graph import ExecutionGraph, NodeKind
from costmodel.step.timeline import Timeline


def simulate(graph: ExecutionGraph, *, drain: bool = False) -> Timeline:
    """Return the timeline of a graph.

    Raises
    ------
    ValueError
        If some nodes can never start: a cycle, or a collective whose members disagree.

    """
    return _Simulation(graph, drain=drain).run()


class _Simulation:
    """State of one run: how many nodes every node still waits for, and when it can start."""

    def __init__(self, graph: ExecutionGraph, *, drain: bool) -> None:
        count = len(graph.nodes)
        self.graph = graph
        self.drain = drain
        self.waits_for, self.successors = _dependencies(graph)
        self.members = _collectives(graph)
        self.missing = {number: len(nodes) for number, nodes in self.members.items()}
        self.ready = [0.0] * count
        self.starts = [0.0] * count
        self.ends = [0.0] * count
        self.binding: list[int | None] = [None] * count
        self.latest: dict[int, dict[str, int]] = defaultdict(dict)
        """The latest kernel that started, by rank and stream."""
        self.queue: list[tuple[Seconds, int]] = []

    def run(self) -> Timeline:
        """Process nodes in the order of their start."""
        for node, missing in enumerate(self.waits_for):
            if not missing:
                heapq.heappush(self.queue, (0.0, node))
        done = 0
        while self.queue:
            at, node = heapq.heappop(self.queue)
            done += self._begin(node, at)
        if done < len(self.graph.nodes):
            raise ValueError(f"{len(self.graph.nodes) - done} nodes of the graph can never start")
        return Timeline(
            graph=self.graph,
            starts=self.starts,
            ready=self.ready,
            ends=self.ends,
            binding=self.binding,
            step_ends=_step_ends(self.graph, self.ends),
        )

    def _begin(self, node: int, at: Seconds) -> int:
        """Start a node that is due, or the collective it completes; return how many started."""
        if self.drain and (room := self._room(node, at)) > at:
            heapq.heappush(self.queue, (room, node))
            return 0
        number = self.graph.nodes[node].collective
        if number is None:
            self._finish(node, at)
            return 1
        self.ready[node] = at
        self.missing[number] -= 1
        if self.missing[number]:
            return 0
        return self._begin_collective(self.members[number], last=node, at=at)

    def _room(self, node: int, at: Seconds) -> Seconds:
        """Return when a node's GPU has room for it beside the kernels of other streams."""
        work = self.graph.nodes[node]
        if work.kind not in (NodeKind.KERNEL, NodeKind.COLLECTIVE):
            return at
        room = at
        for stream, other in self.latest[work.rank].items():
            running = self.graph.nodes[other]
            full_until = self.starts[other] + running.seconds * running.fills_gpu
            begun = stream != work.resource and self.starts[other] < at
            if begun and running.priority >= work.priority and full_until > room:
                room, self.binding[node] = full_until, other
        return room

    def _begin_collective(self, members: Sequence[int], *, last: int, at: Seconds) -> int:
        """Start and finish a collective for all its members; return how many they are.

        All wait for ``last``, the member that was ready last.
        """
        cause = self.binding[last]
        for member in members:
            ready = self.ready[member]
            self.binding[member] = cause
            self._finish(member, at)
            self.ready[member] = ready
        return len(members)

    def _finish(self, node: int, at: Seconds) -> None:
        """Set a node's times, and release the nodes that wait for it."""
        work = self.graph.nodes[node]
        end = at + work.seconds
        self.starts[node] = self.ready[node] = at
        self.ends[node] = end
        if self.drain and work.kind is NodeKind.KERNEL:
            self.latest[work.rank][work.resource] = node
        for successor in self.successors[node]:
            self._release(successor, node, end)

    def _release(self, node: int, cause: int, end: Seconds) -> None:
        """Note that a node which others wait for has ended, and start those that can."""
        work = self.graph.nodes[node]
        due = end + work.launch_delay if work.launched_by == cause else end
        if self.binding[node] is None or due > self.ready[node]:
            self.binding[node] = cause
            self.ready[node] = due
        self.waits_for[node] -= 1
        if not self.waits_for[node]:
            heapq.heappush(self.queue, (self.ready[node], node))


def _dependencies(graph: ExecutionGraph) -> tuple[list[int], list[list[int]]]:
    """Return how many nodes every node waits for, and the nodes that wait for each."""
    waits_for = [0] * len(graph.nodes)
    successors: list[list[int]] = [[] for _ in graph.nodes]
    previous: dict[tuple[int, str], int] = {}
    for index, node in enumerate(graph.nodes):
        before = set(node.after)
        if node.launched_by is not None:
            before.add(node.launched_by)
        place = (node.rank, node.resource)
        if place in previous:
            before.add(previous[place])
        previous[place] = index
        waits_for[index] = len(before)
        for other in sorted(before):
            successors[other].append(index)
    return waits_for, successors


def _collectives(graph: ExecutionGraph) -> dict[int, list[int]]:
    """Return the indices of every collective's members, by its number."""
    members: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.nodes):
        if node.collective is not None:
            members[node.collective].append(index)
    return members


def _step_ends(graph: ExecutionGraph, ends: Sequence[Seconds]) -> list[Seconds]:
    """Return when every step's last node ends."""
    latest = [0.0] * graph.num_steps
    for node, end in zip(graph.nodes, ends, strict=True):
        latest[node.step] = max(latest[node.step], end)
    return latest
