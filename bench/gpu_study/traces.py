"""What a profiler's trace says: host overheads T1 to T5, and the device's time by stage."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError
from costmodel.base.units import Seconds
from costmodel.domain.traced import OperatorOverheads
from costmodel.step.graph import ExecutionGraph, Node, Stage
from costmodel.step.timeline import DEVICE_KINDS
from planner.calibration.learning import learn
from planner.traces.replay.importing import load_run

OVERHEADS: Mapping[str, str] = {
    "T1": "before",
    "T2": "lead",
    "T3": "tail",
    "T4": "call",
    "T5": "between",
}
"""The paper's names, and the fields of ``OperatorOverheads``."""
_OF_LAUNCHES = ("lead", "tail", "call")


def traced_overheads(trace: Path) -> dict[str, float]:
    """Return T1 to T5 of a trace, each the mean over its operators, and how many those were."""
    rows = learn(load_run(trace), str(trace)).operators
    means = {name: _mean(rows, field) for name, field in OVERHEADS.items()}
    return {**means, "operators": float(sum(row.count for row in rows))}


def traced_stages(trace: Path, num_steps: int) -> dict[str, Seconds]:
    """Return the device's seconds in one step of a trace, by stage."""
    return device_stages(load_run(trace).graph, num_steps)


def unless_unreadable(read: Callable[[Path], dict[str, float]], trace: Path) -> dict[str, Any]:
    """Return what is read of a trace, or why it cannot be read: the timing is worth keeping."""
    try:
        return {"found": read(trace)}
    except InputError as error:
        return {"found": {}, "unreadable": str(error)}


def device_stages(graph: ExecutionGraph, num_steps: int = 1) -> dict[str, Seconds]:
    """Return the device's seconds in one step of a graph, by stage; all ranks together."""
    return stage_times([node for node in graph.nodes if node.kind in DEVICE_KINDS], num_steps)


def stage_times(nodes: Sequence[Node], num_steps: int) -> dict[str, Seconds]:
    """Return the seconds of some operations by stage, over the steps they are from."""
    total: Counter[Stage] = Counter()
    for node in nodes:
        total[node.stage] += node.seconds  # type: ignore[assignment] # counts seconds
    return {stage.value: float(seconds) / num_steps for stage, seconds in sorted(total.items())}


def _mean(rows: Sequence[OperatorOverheads], field: str) -> float:
    """Return the mean over operators; of what only launches have, over those that launch."""
    counted = [row for row in rows if row.call > 0 or field not in _OF_LAUNCHES]
    total = sum(row.count for row in counted)
    return sum(row.count * float(getattr(row, field)) for row in counted) / max(1, total)
