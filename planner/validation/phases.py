"""Phases of a step that both the simulator and the profiler can tell apart, on one host thread.

On a CPU all operations of a rank follow one another on its thread, so the time between the ends of
two operations belongs to the second: its own work, and its wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from costmodel.base.units import Seconds
from costmodel.step.graph import HOST_THREADS, Node, NodeKind, Resource, Role, Stage
from costmodel.step.timeline import Timeline


class Phase(StrEnum):
    """Kinds of work, or waits, of a rank's thread."""

    INPUT_DIST = "input_dist"
    LOOKUP = "lookup"
    OUTPUT_DIST = "output_dist"
    DENSE_FORWARD = "dense_forward"
    DENSE_BACKWARD = "dense_backward"
    GRADIENT_DIST = "gradient_dist"
    LOOKUP_BACKWARD = "lookup_backward"
    ALL_REDUCE = "all_reduce"
    OPTIMIZER = "optimizer"


_PHASES: Mapping[Stage, Phase] = {
    Stage.INPUT_DIST: Phase.INPUT_DIST,
    Stage.MEMORY_COPY: Phase.INPUT_DIST,
    Stage.ALL_GATHER: Phase.GRADIENT_DIST,
    Stage.ALL_REDUCE: Phase.ALL_REDUCE,
    Stage.DENSE_FORWARD: Phase.DENSE_FORWARD,
    Stage.DENSE_BACKWARD: Phase.DENSE_BACKWARD,
    Stage.OPTIMIZER: Phase.OPTIMIZER,
}
_BY_ROLE: Mapping[Role, Phase] = {
    Role.GRADIENTS_REDUCED: Phase.ALL_REDUCE,
    Role.ORDER_FEATURES: Phase.DENSE_FORWARD,
}
"""The phase in which the profiler shows each role."""
_THREADS = (*HOST_THREADS, Resource.COMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """A predicted step."""

    step_time: Seconds
    """By the models; of a plan that is validated, the expected step."""
    interval: tuple[Seconds, Seconds] | None = None
    """Seconds between which the step lies with 90% probability; None: not known."""
    busy: tuple[Seconds, ...] = ()
    """Processor time by rank, without waits; empty unless steps are synchronous."""
    phases: tuple[Mapping[Phase, Seconds], ...] = ()
    """Seconds by phase, of every rank; empty as ``busy``."""

    @classmethod
    def of(cls, timeline: Timeline, *, synchronous: bool) -> "StepPrediction":
        """Return the prediction of a simulated step."""
        ranks = range(timeline.graph.world_size if synchronous else 0)
        return cls(
            step_time=timeline.step_time,
            busy=tuple(_busy_time(timeline, rank) for rank in ranks),
            phases=tuple(predicted_phases(timeline, rank) for rank in ranks),
        )


def _busy_time(timeline: Timeline, rank: int) -> Seconds:
    graph = timeline.graph
    return sum(
        node.seconds
        for node in graph.nodes
        if node.rank == rank and node.step == graph.num_steps - 1 and node.resource in _THREADS
    )


def predicted_phases(timeline: Timeline, rank: int) -> dict[Phase, Seconds]:
    """Return seconds of a rank's last step by phase; only of a device with synchronous steps."""
    nodes = timeline.graph.nodes
    order = [
        index
        for index, node in enumerate(nodes)
        if node.rank == rank and node.resource in _THREADS and node.kind is not NodeKind.COLLECTIVE
    ]
    order.sort(key=lambda index: (timeline.ends[index], index))
    phases = dict.fromkeys(Phase, 0.0)
    at, _ = timeline.window
    backward, waiting = False, 0.0
    for index in order:
        if timeline.ends[index] <= at:
            continue
        node = nodes[index]
        backward = node.resource == Resource.AUTOGRAD or (
            backward and node.resource == Resource.COMPUTE
        )
        waiting += timeline.ends[index] - at
        at = timeline.ends[index]
        phase = _phase(node, backward=backward)
        if phase is not None:
            phases[phase] += waiting
            waiting = 0.0
    phases[Phase.OPTIMIZER] += waiting
    return phases


def _phase(node: Node, *, backward: bool) -> Phase | None:
    """Return a node's phase; None for host work, which belongs to the operation it issues."""
    if node.stage is Stage.HOST:
        return Phase.INPUT_DIST if node.kind is NodeKind.WAIT else None
    if node.role in _BY_ROLE:
        return _BY_ROLE[node.role]
    if node.stage is Stage.LOOKUP_FORWARD:
        return Phase.LOOKUP if node.role is Role.LOOKUP else Phase.OUTPUT_DIST
    if node.stage is Stage.LOOKUP_BACKWARD:
        return Phase.LOOKUP_BACKWARD if node.role is Role.UPDATE else Phase.GRADIENT_DIST
    if node.stage in {Stage.ALL_TO_ALL, Stage.REDUCE_SCATTER}:
        return Phase.GRADIENT_DIST if backward else Phase.OUTPUT_DIST
    return _PHASES[node.stage]
