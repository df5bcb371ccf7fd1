"""What a profiler's trace says: the device's time by stage."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError
from costmodel.base.units import Seconds
from costmodel.step.graph import ExecutionGraph, Node, Stage
from costmodel.step.timeline import DEVICE_KINDS
from planner.traces.replay.importing import load_run


def traced_stages(trace: Path, num_steps: int) -> dict[str, Any]:
    """Return the device's seconds in one step of a trace, by stage, as ``stages``.

    Where it cannot be read they are none, and ``unreadable`` says why: the timing is worth keeping.
    """
    try:
        return {"stages": device_stages(load_run(trace).graph, num_steps)}
    except InputError as error:
        return {"stages": {}, "unreadable": str(error)}


def device_stages(graph: ExecutionGraph, num_steps: int = 1) -> dict[str, Seconds]:
    """Return the device's seconds in one step of a graph, by stage; all ranks together."""
    return stage_times([node for node in graph.nodes if node.kind in DEVICE_KINDS], num_steps)


def stage_times(nodes: Sequence[Node], num_steps: int) -> dict[str, Seconds]:
    """Return the seconds of some operations by stage, over the steps they are from."""
    total: Counter[Stage] = Counter()
    for node in nodes:
        total[node.stage] += node.seconds  # type: ignore[assignment] # counts seconds
    return {stage.value: float(seconds) / num_steps for stage, seconds in sorted(total.items())}
