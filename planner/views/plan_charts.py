"""Specifications of a plan's charts: critical path, ranks, timeline and memory."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.base.units import GIB, MS
from costmodel.memory.storage import plan_shard_bytes
from costmodel.step.graph import Resource
from costmodel.step.timeline import Timeline
from planner.pages.charts import VEGA, Spec, field, layer, spec, timed, tooltip
from planner.pages.timelines import ROW, WAITING, TimelineStyle, color, timeline_spec
from planner.planned.report import STAGE_NAMES
from planner.show.format import memory

if TYPE_CHECKING:
    from planner.planned.planned import Planned
    from planner.planned.report import Report

_MOST_TABLES, _MOST_AREAS = 40, 4_000
"""Number of tables drawn one by one, of a rank and of all ranks, the largest first; the others of a
rank share one area."""
_STREAMS: Mapping[str, str] = {Resource.COMPUTE: "compute", Resource.MAIN: "host thread"}
_IDLE, _FREE = "idle", "free"
_BAR, _TREE_HEIGHT, _TREE_WIDTH = 30, 460, 1100
_BELOW = {"orient": "bottom", "columns": 7}
"""A legend below a low chart."""
_COLORS = {
    "input dist": "#76b7b2",
    "host to device": "#9c755f",
    "lookup forward": "#4e79a7",
    "lookup backward": "#1f4e79",
    "all-to-all": "#f28e2b",
    "reduce-scatter": "#ffbe7d",
    "all-gather": "#d37295",
    "all-reduce": "#b07aa1",
    "dense forward": "#59a14f",
    "dense backward": "#2f6b2a",
    "optimizer": "#edc948",
    "host": "#79706e",
    WAITING: "#e15759",
    _IDLE: "#e8e8e8",
}
"""Color of each kind of work, the same on every chart."""


def breakdown_spec(reports: Sequence["Report"], names: Sequence[str]) -> Spec:
    """Return a chart of plans' critical paths, one bar each, stacked by stage, in seconds.

    The 90% interval of the step is drawn where it is known.
    """
    plans = list(zip(names, reports, strict=True))
    rows = [
        timed(seconds, plan=name, part=STAGE_NAMES[stage], order=number)
        for name, report in plans
        for number, (stage, seconds) in enumerate(report.breakdown.items())
    ]
    whole = [
        {"plan": name, "low": report.interval[0] / MS, "high": report.interval[1] / MS}
        for name, report in plans
        if report.interval
    ]
    title = "ms on the critical path"
    y = field("plan", "", "nominal", sort=None, axis={"labelLimit": 240})
    bars = layer(
        "bar",
        y=y,
        x=field("ms", title),
        color=color({row["part"] for row in rows}, _COLORS, legend=_BELOW),
        order={"field": "order"},
        tooltip=tooltip(plan="plan", part="stage", text="time"),
    )
    rule = {"type": "rule", "strokeWidth": 2}
    interval = layer(rule, y=y, x=field("low", title), x2={"field": "high"})
    over = [{"data": {"values": whole}, **interval}] if whole else []
    return spec(rows, height=_BAR * len(names), layer=[bars, *over])


def ranks_spec(timeline: Timeline) -> Spec:
    """Return a chart of what each rank's streams do in the last step, stacked by part."""
    rows = list(_rank_rows(timeline))
    streams = ", ".join(sorted({row["stream"] for row in rows}))
    return spec(
        rows,
        height=ROW * 16,
        mark="bar",
        encoding={
            "x": field("rank", f"rank; of each: {streams}", "ordinal"),
            "xOffset": {"field": "stream"},
            "y": field("ms", "ms of a step"),
            "color": color({row["part"] for row in rows}, _COLORS),
            "order": {"field": "order"},
            "tooltip": tooltip(rank="rank", stream="stream", part="part", text="time"),
        },
    )


def _rank_rows(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield seconds by rank, stream and part; a stream's parts sum to no more than the step."""
    parts: dict[str, dict[str, Any]] = defaultdict(dict)
    for (resource, stage), seconds in timeline.busy_times.items():
        if resource in _STREAMS or resource not in set(Resource):
            parts[_stream_name(resource)][STAGE_NAMES[stage]] = seconds
    for resource, seconds in timeline.waiting_by_stream.items():
        parts[_stream_name(resource)][WAITING] = seconds
    parts[_stream_name(Resource.COMPUTE)][_IDLE] = timeline.idle_times
    for stream, by_part in parts.items():
        for order, name in enumerate(_COLORS):
            for rank, seconds in enumerate(np.asarray(by_part.get(name, ())).tolist()):
                if seconds > 1e-3 * timeline.step_time:
                    row = timed(seconds, rank=rank, stream=stream, part=name, order=order)
                    yield {**row, "ms": round(row["ms"], 5)}


def _stream_name(resource: str) -> str:
    """Return what a stream is called on the chart: process groups' streams are collectives'."""
    return _STREAMS.get(resource, f"collectives ({resource.replace('_', ' ')})")


def plan_timeline_spec(timeline: Timeline, ranks: Sequence[int]) -> Spec:
    """Return a chart of the last step of some ranks, a row per stream."""
    return timeline_spec(timeline, ranks, _STYLE)


_STYLE = TimelineStyle(part=lambda node: STAGE_NAMES[node.stage], colors=_COLORS)


def memory_rows(planned: "Planned") -> list[dict[str, Any]]:
    """Return bytes of HBM by rank and table, with those of no table and those free."""
    parts = plan_shard_bytes(planned.workload, planned.topology, planned.plan)
    hbm = parts.weights + parts.optimizer_state + parts.gradients + parts.inputs + parts.outputs
    by_rank: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    places = ((each.table, rank) for each in planned.plan.tables for rank in each.ranks)
    for (table, place), size in zip(places, np.asarray(hbm).tolist(), strict=True):
        by_rank[place][table] += size
    rows = []
    most = min(_MOST_TABLES, max(1, _MOST_AREAS // planned.report.world_size))
    for rank in planned.report.ranks:
        tables = sorted(by_rank[rank.rank].items(), key=lambda item: -item[1])
        others = tables[most:]
        areas = [(name, size, "tables") for name, size in tables[:most]]
        if others:
            areas.append((f"{len(others)} more", sum(size for _, size in others), "tables"))
        fixed = rank.memory.dense_model + rank.memory.activations
        areas.append(("dense model", fixed, "dense model"))
        areas.append((_FREE, planned.report.usable_bytes - rank.memory.tables, _FREE))
        rows += [
            {"rank": rank.rank, "name": name, "bytes": size, "kind": kind, "text": memory(size)}
            for name, size, kind in areas
            if size > 0
        ]
    return rows


def memory_spec(planned: "Planned") -> Spec:
    """Return a treemap of every rank's memory by table, as a Vega specification."""
    rows = memory_rows(planned)
    ranks = [
        {"id": f"rank {rank.rank}", "parent": "all", "order": rank.rank}
        for rank in planned.report.ranks
    ]
    leaves = [
        {**row, "id": f"{number}", "parent": f"rank {row['rank']}", "order": number,
         "gib": row["bytes"] / GIB}
        for number, row in enumerate(rows)
    ]  # fmt: skip
    return {
        "$schema": VEGA,
        "width": _TREE_WIDTH,
        "height": _TREE_HEIGHT,
        "padding": 5,
        "data": [
            {"name": "tree", "values": [{"id": "all"}, *ranks, *leaves], "transform": _TREE},
            _filtered("ranks", "datum.parent === 'all'"),
            _filtered("areas", "isValid(datum.kind)"),
        ],
        "scales": [{"name": "color", "type": "ordinal", **_KINDS}],
        "marks": _MARKS,
        "legends": [{"fill": "color", "orient": "top", "direction": "horizontal"}],
    }


def _filtered(name: str, expression: str) -> dict[str, Any]:
    """Return the Vega data source of the rows of the tree for which an expression holds."""
    chosen = {"type": "filter", "expr": expression}
    return {"name": name, "source": "tree", "transform": [chosen]}


def _mark(kind: str, source: str, /, **looks: object) -> dict[str, Any]:
    """Return Vega marks for one data source; a text among ``looks`` is an expression to compute."""
    update = {
        name: {"signal": look} if isinstance(look, str) else look for name, look in looks.items()
    }
    inert = {"interactive": False} if kind == "text" else {}
    return {"type": kind, "from": {"data": source}, **inert, "encode": {"update": update}}


_TREE = [
    {"type": "stratify", "key": "id", "parentKey": "parent"},
    {
        "type": "treemap", "field": "gib", "sort": {"field": ["data.order"]}, "round": True,
        "method": "squarify", "paddingTop": 14, "paddingInner": 1,
        "size": [{"signal": "width"}, {"signal": "height"}],
    },
]  # fmt: skip
_KINDS = {"domain": ["tables", "dense model", _FREE], "range": ["#4e79a7", "#59a14f", "#e8e8e8"]}
_SMALL: Mapping[str, object] = {"fontSize": {"value": 10}, "limit": "datum.x1 - datum.x0 - 4"}
_MARKS = [
    _mark(
        "rect",
        "areas",
        x={"field": "x0"},
        x2={"field": "x1"},
        y={"field": "y0"},
        y2={"field": "y1"},
        fill={"scale": "color", "field": "kind"},
        stroke={"value": "white"},
        tooltip="{'rank': datum.rank, 'what': datum.name, 'memory': datum.text, "
        "'kind': datum.kind}",
    ),
    _mark(
        "text",
        "areas",
        **_SMALL,
        x="(datum.x0 + datum.x1) / 2",
        y="(datum.y0 + datum.y1) / 2",
        align={"value": "center"},
        baseline={"value": "middle"},
        fill=f"datum.kind === '{_FREE}' ? '#555' : 'white'",
        text="datum.y1 - datum.y0 > 12 && datum.x1 - datum.x0 > 24 ? datum.name : ''",
    ),
    _mark(
        "text",
        "ranks",
        **_SMALL,
        x="datum.x0 + 3",
        y="datum.y0 + 11",
        fontWeight={"value": "bold"},
        text={"field": "id"},
    ),
]
