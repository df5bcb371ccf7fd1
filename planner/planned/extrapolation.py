"""Which part of a step rests on kernels outside what was measured."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.base.units import Seconds
from costmodel.step.graph import NodeGroup, Stage
from costmodel.step.timeline import DEVICE_KINDS, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """The kernels of one stage that lie outside the range their model was fitted on."""

    stage: Stage
    kernels: tuple[str, ...]
    """Kernel names, in the order of the step."""
    time: Seconds
    """Seconds of a step in which at least one of the kernels runs, on the rank with most."""
    critical: Seconds
    """Seconds of these kernels on the critical path."""


def extrapolations(timeline: Timeline, *, host_assumed: bool = False) -> tuple[Extrapolation, ...]:
    """Return the stages of the last step that have extrapolated kernels, most critical first.

    Parameters
    ----------
    timeline
        The step; the host's part of its critical path is what the host launches meanwhile.
    host_assumed
        Whether host times were not measured on the machine, so that its part counts, too.

    """
    beyond: dict[Stage, list[NodeGroup]] = defaultdict(list)
    for group in timeline.graph.groups():
        node = group.first
        if node.kind in DEVICE_KINDS and node.basis.extrapolated and group.seconds.any():
            beyond[node.stage].append(group)
    critical: dict[Stage, Seconds] = defaultdict(float)
    for segment in timeline.critical_path():
        node = timeline.graph.nodes[segment.node]
        if segment.stage is Stage.HOST and host_assumed:
            critical[Stage.HOST] += segment.seconds
        elif segment.stage is node.stage and node.basis.extrapolated:
            critical[segment.stage] += segment.seconds
    found = [
        Extrapolation(
            stage=stage,
            kernels=tuple(dict.fromkeys(group.first.name for group in groups)),
            time=float(timeline.work_times(groups).max()),
            critical=critical[stage],
        )
        for stage, groups in beyond.items()
        if stage is not Stage.HOST
    ]
    if critical.get(Stage.HOST):
        found.append(
            Extrapolation(
                stage=Stage.HOST,
                kernels=(),
                time=critical[Stage.HOST],
                critical=critical[Stage.HOST],
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.critical, -each.time)))


def critical_share(found: Sequence[Extrapolation], step_time: Seconds) -> float:
    """Return the share of the critical path that is extrapolated."""
    return sum(each.critical for each in found) / step_time if step_time else 0.0
