"""Making an execution graph of the work of all ranks, for any machine.

A machine times kernels and adds the nodes of one rank's step. The rest is here: timing every kernel
once, repeating the step, numbering collectives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from costmodel.step.graph import ExecutionGraph, Node
from planner.traces.execution.step_work import collectives
from planner.traces.execution.walk import HostCounts, RankWork, TracedWork, TracedWorkKind
from planner.traces.predict.kernel_models import Timed
from planner.traces.predict.lookups import TracedLookups

NUM_REPEATS = 3
"""How often the step is repeated in a graph, so that the last one is in the steady state."""


class Item(NamedTuple):
    """One item of a rank's work, timed."""

    work: TracedWork
    kernel: Timed | None
    """The timed kernel, if the item is one."""
    collective: int
    """Number of the collective that it is, or of the next one."""


class Nodes(list[Node]):
    """The nodes of a graph while it is made."""

    def add(self, node: Node) -> int:
        """Append a node, and return its number."""
        self.append(node)
        return len(self) - 1


class RankWriter(Protocol):
    """Adds the nodes of one rank, step by step."""

    def write(self, items: Sequence[Item], after: HostCounts, step: int) -> None:
        """Add the nodes of one step; ``after`` is what the host does after the last item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMachine:
    """The machine that a step is predicted for."""

    timer: Callable[[RankWork], Sequence[Timed | None]]
    """Times the kernels among the items of a rank's work; None are those that are no kernels."""
    writer: Callable[[int, Nodes], RankWriter]
    """Makes the writer of a rank."""
    on_cpu: bool
    lookups: TracedLookups | None = None
    """What times lookups of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedGraph:
    """A graph, with the kernels of one step of all ranks."""

    graph: ExecutionGraph
    kernels: Sequence[Timed]


def timed_graph(works: Sequence[RankWork], machine: TargetMachine) -> TimedGraph:
    """Return the graph of ``NUM_REPEATS`` steps of all ranks' work."""
    timed = [machine.timer(work) for work in works]
    nodes = Nodes()
    writers = [machine.writer(rank, nodes) for rank in range(len(works))]
    for step in range(NUM_REPEATS):
        for writer, work, kernels in zip(writers, works, timed, strict=True):
            writer.write(_items(work, kernels, step), work.after, step)
    return TimedGraph(
        graph=ExecutionGraph(nodes=nodes, world_size=len(works), num_steps=NUM_REPEATS),
        kernels=[kernel for mine in timed for kernel in mine if kernel is not None],
    )


def _items(work: RankWork, kernels: Sequence[Timed | None], step: int) -> list[Item]:
    """Return a rank's work with its kernels' times; collectives are numbered through all steps."""
    number = step * len(collectives(work))
    items = []
    for each, kernel in zip(work.items, kernels, strict=True):
        items.append(Item(each, kernel, number))
        number += each.kind is TracedWorkKind.COLLECTIVE
    return items
