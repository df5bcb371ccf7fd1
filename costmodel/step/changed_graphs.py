"""Execution graphs with changed durations, for what-ifs.

A change keeps every node and every edge. It does not model what the host or the model would do
differently, only when the same work would be done.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from costmodel.base.units import Bytes, Seconds
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.timeline import DEVICE_KINDS

CollectiveTime = Callable[[Stage, Bytes, int], Seconds]
"""Returns the seconds of a collective of a stage, given message bytes and number of members."""


def scaled(graph: ExecutionGraph, chosen: Callable[[Node], bool], factor: float) -> ExecutionGraph:
    """Return a graph whose chosen nodes take ``factor`` times as long."""
    return _with_nodes(
        graph,
        lambda node: replace(node, seconds=node.seconds * factor) if chosen(node) else node,
    )


def balanced(graph: ExecutionGraph) -> ExecutionGraph:
    """Return a graph in which every rank's GPU does the same amount of work.

    Per step and stage, the work of all ranks but collectives is scaled to the mean over ranks.
    A rank without any nodes of a stage gets none, so such work is shared by those that have some.
    """
    total: dict[tuple[int, Stage], dict[int, Seconds]] = defaultdict(lambda: defaultdict(float))
    for node in graph.nodes:
        if _is_own_work(node):
            total[node.step, node.stage][node.rank] += node.seconds

    def even(node: Node) -> Node:
        if not _is_own_work(node):
            return node
        ranks = total[node.step, node.stage]
        if not ranks[node.rank]:
            return node
        mean = sum(ranks.values()) / len(ranks)
        return replace(node, seconds=node.seconds * mean / ranks[node.rank])

    return _with_nodes(graph, even)


def with_collectives(graph: ExecutionGraph, time: CollectiveTime) -> ExecutionGraph:
    """Return a graph whose collectives take a model's time for their largest message."""
    sizes: dict[int, Bytes] = defaultdict(float)
    members: dict[int, int] = defaultdict(int)
    for node in graph.nodes:
        if node.collective is not None:
            sizes[node.collective] = max(sizes[node.collective], node.num_bytes)
            members[node.collective] += 1

    def timed(node: Node) -> Node:
        number = node.collective
        if number is None:
            return node
        return replace(node, seconds=time(node.stage, sizes[number], members[number]))

    return _with_nodes(graph, timed)


def _is_own_work(node: Node) -> bool:
    """Return whether a node is a GPU's work other than a collective."""
    return node.kind in DEVICE_KINDS and node.kind is not NodeKind.COLLECTIVE


def _with_nodes(graph: ExecutionGraph, change: Callable[[Node], Node]) -> ExecutionGraph:
    return replace(graph, nodes=tuple(change(node) for node in graph.nodes))
