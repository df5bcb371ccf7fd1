"""Making an execution graph of the work of all ranks, for any machine.

A machine times kernels and adds the nodes of one rank's step. The rest is here: timing every kernel
once, repeating the step, numbering collectives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import BytesPerSecond, Seconds
from costmodel.domain.hardware import Bound, Estimate, Source
from costmodel.step.graph import ExecutionGraph, Node
from planner.traces.predict.calls import KernelCall
from planner.traces.predict.kernel_models import KernelModel
from planner.traces.predict.operator_trace import OperatorTrace
from planner.traces.predict.walk import HostCounts, RankWork, TracedWork, TracedWorkKind, rank_work

NUM_REPEATS = 3
"""How often the step is repeated in a graph, so that the last one is in the steady state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A kernel with its predicted time."""

    call: KernelCall
    estimate: Estimate
    known: bool
    """Whether a model knows the operator; else the time is estimated from bytes."""


class Timer:
    """Times kernels by a model, or by their bytes if it does not know them."""

    def __init__(self, model: KernelModel, floor: Seconds, bandwidth: BytesPerSecond) -> None:
        self._model = model
        self._floor = floor
        self._bandwidth = bandwidth

    def time(self, call: KernelCall) -> Timed:
        """Return a kernel with its time."""
        estimate = self._model.kernel(call)
        if estimate is not None:
            return Timed(call=call, estimate=estimate, known=True)
        seconds = self._floor + call.num_bytes / self._bandwidth
        guess = Estimate(
            seconds=seconds, bound_by=Bound.BYTES_OF_TENSORS, source=Source.ROOFLINE,
            extrapolated=True,
        )  # fmt: skip
        return Timed(call=call, estimate=guess, known=False)


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

    timer: Timer
    writer: Callable[[int, Nodes], RankWriter]
    """Makes the writer of a rank."""
    on_cpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedGraph:
    """A graph, with the kernels of one step of all ranks."""

    graph: ExecutionGraph
    kernels: Sequence[Timed]


def timed_graph(works: Sequence[RankWork], machine: TargetMachine) -> TimedGraph:
    """Return the graph of ``NUM_REPEATS`` steps of all ranks' work."""
    timed = [
        [None if item.call is None else machine.timer.time(item.call) for item in work.items]
        for work in works
    ]
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
    number = step * len(_collectives(work))
    items = []
    for each, kernel in zip(work.items, kernels, strict=True):
        items.append(Item(each, kernel, number))
        number += each.kind is TracedWorkKind.COLLECTIVE
    return items


def work_of_step(traces: Sequence[OperatorTrace], source: str) -> list[RankWork]:
    """Return the work of every rank in the last step of its trace.

    Raises
    ------
    InputError
        The ranks start different collectives.

    """
    works = [rank_work(trace.steps[-1][1]) for trace in traces]
    expected = _collectives(works[0])
    for trace, work in zip(traces, works, strict=True):
        mine = _collectives(work)
        if [c.collective for c in mine] != [c.collective for c in expected]:
            message = (
                f"`{trace.source}` starts {len(mine)} collectives, "
                f"`{traces[0].source}` {len(expected)}, or others"
            )
            hint = "give traces of the same step of one job"
            raise InputError(source, (Problem(message=message, hint=hint),))
    return works


def _collectives(work: RankWork) -> list[TracedWork]:
    return [item for item in work.items if item.kind is TracedWorkKind.COLLECTIVE]
