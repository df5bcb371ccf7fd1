"""Which part of a step rests on kernels outside what was measured."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.base.units import Seconds
from costmodel.step.graph import Stage
from costmodel.step.timeline import DEVICE_KINDS, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """The kernels of one stage that lie outside the range their model was fitted on."""

    stage: Stage
    kernels: tuple[str, ...]
    """Their names, in the order of the step."""
    time: Seconds
    """What they take in a step, on the rank where that is most."""
    critical: Seconds
    """Their share of the critical path."""


def extrapolations(timeline: Timeline) -> tuple[Extrapolation, ...]:
    """Return what is extrapolated in the last step of a timeline, the most critical first."""
    nodes, last = timeline.graph.nodes, timeline.graph.num_steps - 1
    names: dict[Stage, dict[str, None]] = defaultdict(dict)
    times: dict[Stage, dict[int, Seconds]] = defaultdict(lambda: defaultdict(float))
    for node in nodes:
        beyond = node.kind in DEVICE_KINDS and node.basis.extrapolated and node.seconds > 0
        if beyond and node.step == last:
            names[node.stage][node.name] = None
            times[node.stage][node.rank] += node.seconds
    critical: dict[Stage, Seconds] = defaultdict(float)
    for segment in timeline.critical_path():
        node = nodes[segment.node]
        if segment.stage is node.stage and node.basis.extrapolated:
            critical[segment.stage] += segment.seconds
    found = [
        Extrapolation(
            stage=stage,
            kernels=tuple(names[stage]),
            time=max(times[stage].values()),
            critical=critical[stage],
        )
        for stage in names
    ]
    return tuple(sorted(found, key=lambda each: (-each.critical, -each.time)))


def critical_share(found: Sequence[Extrapolation], step_time: Seconds) -> float:
    """Return the share of the critical path that is extrapolated."""
    return sum(each.critical for each in found) / step_time if step_time else 0.0
