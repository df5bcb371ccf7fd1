"""Charts of timed graphs: the work of streams over time, in colors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.base.units import MS, Seconds
from costmodel.step.graph import Node, NodeKind, Resource
from costmodel.step.timeline import Timeline
from planner.pages.charts import Spec, field, spec, tooltip
from planner.show.format import duration

ROW = 15
"""Height of a row of bars, in pixels."""
WAITING = "waiting"
_PLACES = {Resource.MAIN: 0, Resource.AUTOGRAD: 1, Resource.COMPUTE: 2}


def color(names: set[str], colors: Mapping[str, str], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of an encoding
    """Return the color encoding of parts by name, in one order for all charts."""
    shown = {name: each for name, each in colors.items() if name in names}
    scale = {"domain": list(shown), "range": list(shown.values())}
    return field("part", "", "nominal", scale=scale, sort=scale["domain"], **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStyle:
    """Names and colors of work on a timeline, and how much of it is drawn."""

    part: Callable[[Node], str]
    colors: Mapping[str, str]
    least: Seconds = 0.0
    """Seconds below which work is left out: a recorded run may have too much for a page."""


def timeline_spec(timeline: Timeline, ranks: Sequence[int], style: TimelineStyle) -> Spec:
    """Return a chart of the last step of some ranks, a row per stream, to zoom and to drag.

    Work on the critical path is outlined. The tooltip of a piece of work names what it waited for.
    """
    rows = list(_rows(timeline, ranks, style))
    lines = list(dict.fromkeys(row["row"] for row in sorted(rows, key=lambda row: row["order"])))
    step = timeline.step_time / MS
    return spec(
        [{name: value for name, value in row.items() if name != "order"} for row in rows],
        height=ROW * len(lines),
        params=[
            {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
        ],
        mark={"type": "bar", "clip": True, "height": {"band": 0.9}},
        encoding={
            "y": field("row", "", "nominal", sort=lines, axis={"labelLimit": 220}),
            "x": field(
                "start", "ms of the step", scale={"domain": [0, step], "nice": False, "zero": False}
            ),
            "x2": {"field": "end"},
            "color": color({row["part"] for row in rows}, style.colors),
            "stroke": {"condition": {"test": "datum.critical", "value": "#000"}, "value": None},
            "tooltip": tooltip(
                name="work", part="stage", row="rank and stream", text="time", after="waited for"
            ),
        },
    )


def _rows(
    timeline: Timeline, ranks: Sequence[int], style: TimelineStyle
) -> Iterator[dict[str, Any]]:
    """Yield the bars of the chosen ranks as the chart's data, times in ms."""
    begin, end = timeline.window
    critical = {segment.node for segment in timeline.critical_path()}
    nodes, chosen = timeline.graph.nodes, set(ranks)

    def row(index: int, part: str, start: Seconds, stop: Seconds) -> dict[str, Any]:
        node, before = nodes[index], timeline.binding[index]
        place = _PLACES.get(Resource(node.resource), 3) if node.resource in set(Resource) else 4
        return {
            "row": f"rank {node.rank} {node.resource}",
            "order": (node.rank, place),
            "name": node.name,
            "part": part,
            "start": round((max(start, begin) - begin) / MS, 5),
            "end": round((min(stop, end) - begin) / MS, 5),
            "text": duration(stop - start),
            "after": "" if before is None else f"{nodes[before].name} (rank {nodes[before].rank})",
            **({"critical": 1} if index in critical and part != WAITING else {}),
        }

    for index, node in enumerate(nodes):
        start, stop = timeline.starts[index], timeline.ends[index]
        if node.rank not in chosen or stop <= begin:
            continue
        ready = timeline.ready[index]
        if node.kind is NodeKind.COLLECTIVE and begin < start and ready < start - style.least:
            yield row(index, WAITING, ready, start)
        if stop > start + style.least and start < end:
            part = WAITING if node.kind is NodeKind.WAIT else style.part(node)
            yield row(index, part, start, stop)
