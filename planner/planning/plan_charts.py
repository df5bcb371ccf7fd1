"""What is drawn of a plan: its critical path, ranks, timeline and memory, as charts' data."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.base.units import GIB, MS, Seconds
from costmodel.memory.storage import plan_shard_bytes
from costmodel.step.graph import NodeKind, Resource
from costmodel.step.timeline import Timeline
from planner.pages.charts import VEGA, Spec, field, spec
from planner.planning.report_text import STAGE_NAMES
from planner.show.format import duration, memory

if TYPE_CHECKING:
    from planner.planning.api import Planned
    from planner.planning.report import Report

MOST_RANKS = 8
"""Ranks whose timelines are drawn at once: of more, the page is neither small nor readable."""
_MOST_TABLES = 40
"""Tables of a rank that are drawn one by one, the largest; the others are one area together."""
_STREAMS = {"compute": Resource.COMPUTE, "host thread": Resource.MAIN}
_COLLECTIVES = "collectives"
_WAITING, _IDLE, _FREE = "waiting", "idle", "free"
_ROW, _BAR, _TREE_HEIGHT, _TREE_WIDTH = 15, 30, 460, 1100
_BELOW = {"orient": "bottom", "columns": 7}
"""A legend that a low chart has room for."""
_COLORS = (
    ("input dist", "#76b7b2"),
    ("host to device", "#9c755f"),
    ("lookup forward", "#4e79a7"),
    ("lookup backward", "#1f4e79"),
    ("all-to-all", "#f28e2b"),
    ("reduce-scatter", "#ffbe7d"),
    ("all-gather", "#d37295"),
    ("all-reduce", "#b07aa1"),
    ("dense forward", "#59a14f"),
    ("dense backward", "#2f6b2a"),
    ("optimizer", "#edc948"),
    ("host", "#79706e"),
    (_WAITING, "#e15759"),
    (_IDLE, "#e8e8e8"),
)
"""By what time is spent for: the same on every chart."""


def _color(names: set[str], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of an encoding
    """Return the colours of what is on a chart, in one order for all charts."""
    shown = [(name, color) for name, color in _COLORS if name in names]
    scale = {"domain": [name for name, _ in shown], "range": [color for _, color in shown]}
    return field("part", "", "nominal", scale=scale, sort=scale["domain"], **more)


def breakdown_spec(reports: Sequence["Report"], names: Sequence[str]) -> Spec:
    """Return the critical paths of some plans, a bar each, stacked by stage; they end at the step.

    With the 90% interval of the step where it is known.
    """
    rows: list[dict[str, Any]] = [
        {
            "plan": name,
            "part": STAGE_NAMES[stage],
            "ms": seconds / MS,
            "text": duration(seconds),
            "order": number,
        }
        for name, report in zip(names, reports, strict=True)
        for number, (stage, seconds) in enumerate(report.breakdown.items())
    ]
    whole = [
        {"plan": name, "low": report.interval[0] / MS, "high": report.interval[1] / MS}
        for name, report in zip(names, reports, strict=True)
        if report.interval
    ]
    y = field("plan", "", "nominal", sort=None, axis={"labelLimit": 240})
    bars = {
        "mark": "bar",
        "encoding": {
            "y": y,
            "x": field("ms", "ms on the critical path"),
            "color": _color({row["part"] for row in rows}, legend=_BELOW),
            "order": {"field": "order"},
            "tooltip": [field("plan", "plan", "nominal"), *_said(("part", "stage"))],
        },
    }
    interval = {
        "data": {"values": whole},
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {
            "y": y,
            "x": field("low", "ms on the critical path"),
            "x2": {"field": "high"},
        },
    }
    return spec(rows, height=_BAR * len(names), layer=[bars, *([interval] if whole else ())])


def _said(*fields: tuple[str, str]) -> list[dict[str, Any]]:
    return [field(name, title, "nominal") for name, title in (*fields, ("text", "time"))]


def ranks_spec(timeline: Timeline) -> Spec:
    """Return what streams of every rank do in the last step, three bars a rank, stacked by part."""
    rows = list(_rank_rows(timeline))
    return spec(
        rows,
        height=_ROW * 16,
        mark="bar",
        encoding={
            "x": field("rank", "rank; of each: collectives, compute, host thread", "ordinal"),
            "xOffset": {"field": "stream"},
            "y": field("ms", "ms of a step"),
            "color": _color({row["part"] for row in rows}),
            "order": {"field": "order"},
            "tooltip": _said(("rank", "rank"), ("stream", "stream"), ("part", "part")),
        },
    )


def _rank_rows(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield seconds by rank, stream and part; a stream's parts sum to no more than the step."""
    parts: dict[str, dict[str, Any]] = defaultdict(dict)
    for (resource, stage), seconds in timeline.busy_times.items():
        stream = next((name for name, of in _STREAMS.items() if of == resource), None)
        if stream is None and resource not in set(Resource):
            stream = _COLLECTIVES  # those of process groups
        if stream is not None:
            name = STAGE_NAMES[stage]
            parts[stream][name] = parts[stream].get(name, 0.0) + seconds
    parts[_COLLECTIVES][_WAITING] = timeline.waiting_times
    parts["compute"][_IDLE] = timeline.idle_times
    for stream, by_part in parts.items():
        for order, (name, _) in enumerate(_COLORS):
            for rank, seconds in enumerate(np.asarray(by_part.get(name, ())).tolist()):
                if seconds > 1e-3 * timeline.step_time:
                    yield {
                        "rank": rank,
                        "stream": stream,
                        "part": name,
                        "ms": round(seconds / MS, 5),
                        "text": duration(seconds),
                        "order": order,
                    }


def shown_ranks(timeline: Timeline) -> tuple[int, ...]:
    """Return the ranks whose timelines are drawn: those that others wait for, and the idlest."""
    world_size = timeline.graph.world_size
    if world_size <= MOST_RANKS:
        return tuple(range(world_size))
    by_idle = np.argsort(np.asarray(timeline.idle_times), kind="stable").tolist()
    half = MOST_RANKS // 2
    return tuple(sorted((*by_idle[:half], *by_idle[-half:])))


def timeline_spec(timeline: Timeline, ranks: Sequence[int] | None = None) -> Spec:
    """Return the last step of some ranks, a row for every stream; the wheel zooms, a drag moves.

    What is outlined is on the critical path. The tooltip names what a piece of work waited for.
    """
    rows = list(_timeline_rows(timeline, shown_ranks(timeline) if ranks is None else ranks))
    lines = list(dict.fromkeys(row["row"] for row in sorted(rows, key=lambda row: row["order"])))
    step = timeline.step_time / MS
    return spec(
        [{name: value for name, value in row.items() if name != "order"} for row in rows],
        height=_ROW * len(lines),
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
            "color": _color({row["part"] for row in rows}),
            "stroke": {"condition": {"test": "datum.critical", "value": "#000"}, "value": None},
            "tooltip": [
                *_said(("name", "work"), ("part", "stage"), ("row", "rank and stream")),
                field("after", "waited for", "nominal"),
            ],
        },
    )


def _timeline_rows(timeline: Timeline, ranks: Sequence[int]) -> Iterator[dict[str, Any]]:
    begin, end = timeline.window
    critical = {segment.node for segment in timeline.critical_path()}
    nodes, chosen = timeline.graph.nodes, set(ranks)
    places = {Resource.MAIN: 0, Resource.AUTOGRAD: 1, Resource.COMPUTE: 2}

    def row(index: int, part: str, start: Seconds, stop: Seconds) -> dict[str, Any]:
        node, before = nodes[index], timeline.binding[index]
        return {
            "row": f"rank {node.rank} {node.resource}",
            "order": (node.rank, places.get(Resource(node.resource), 3))
            if node.resource in set(Resource)
            else (node.rank, 4),
            "name": node.name,
            "part": part,
            "start": round((max(start, begin) - begin) / MS, 5),
            "end": round((min(stop, end) - begin) / MS, 5),
            "text": duration(stop - start),
            "after": "" if before is None else f"{nodes[before].name} (rank {nodes[before].rank})",
            **({"critical": 1} if index in critical and part != _WAITING else {}),
        }

    for index, node in enumerate(nodes):
        start, stop = timeline.starts[index], timeline.ends[index]
        if node.rank not in chosen or stop <= begin:
            continue
        ready = timeline.ready[index]
        if node.kind is NodeKind.COLLECTIVE and begin < start and ready < start:
            yield row(index, _WAITING, ready, start)
        if stop > start and start < end:
            part = _WAITING if node.kind is NodeKind.WAIT else STAGE_NAMES[node.stage]
            yield row(index, part, start, stop)


def memory_rows(planned: "Planned") -> list[dict[str, Any]]:
    """Return HBM by rank and table, with what is of no table, and what is free."""
    parts = plan_shard_bytes(planned.workload, planned.topology, planned.plan)
    hbm = parts.weights + parts.optimizer_state + parts.gradients + parts.inputs + parts.outputs
    by_rank: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    shards = ((t, s) for t in planned.plan.tables for s in t.shards)
    for (sharding, shard), size in zip(shards, np.asarray(hbm).tolist(), strict=True):
        by_rank[shard.rank][sharding.table] += size
    rows = []
    for rank in planned.report.ranks:
        tables = sorted(by_rank[rank.rank].items(), key=lambda item: -item[1])
        others = tables[_MOST_TABLES:]
        areas = [(name, size, "tables") for name, size in tables[:_MOST_TABLES]]
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
    """Return a treemap of every rank's memory by table, a specification of Vega."""
    rows = memory_rows(planned)
    ranks = [{"id": f"rank {rank.rank}", "parent": "all"} for rank in planned.report.ranks]
    leaves = [
        {**row, "id": f"{number}", "parent": f"rank {row['rank']}", "gib": row["bytes"] / GIB}
        for number, row in enumerate(rows)
    ]
    tooltip = "{'rank': datum.rank, 'what': datum.name, 'memory': datum.text, 'kind': datum.kind}"
    area = {
        "x": {"field": "x0"},
        "x2": {"field": "x1"},
        "y": {"field": "y0"},
        "y2": {"field": "y1"},
    }
    return {
        "$schema": VEGA,
        "width": _TREE_WIDTH,
        "height": _TREE_HEIGHT,
        "padding": 5,
        "data": [
            {
                "name": "tree",
                "values": [{"id": "all"}, *ranks, *leaves],
                "transform": [
                    {"type": "stratify", "key": "id", "parentKey": "parent"},
                    {
                        "type": "treemap",
                        "field": "gib",
                        "sort": {"field": ["value"], "order": ["descending"]},
                        "round": True,
                        "method": "squarify",
                        "paddingTop": 14,
                        "paddingInner": 1,
                        "size": [{"signal": "width"}, {"signal": "height"}],
                    },
                ],
            },
            {
                "name": "ranks",
                "source": "tree",
                "transform": [{"type": "filter", "expr": "datum.parent === 'all'"}],
            },
            {
                "name": "areas",
                "source": "tree",
                "transform": [{"type": "filter", "expr": "isValid(datum.kind)"}],
            },
        ],
        "scales": [
            {
                "name": "color",
                "type": "ordinal",
                "domain": ["tables", "dense model", _FREE],
                "range": ["#4e79a7", "#59a14f", "#e8e8e8"],
            }
        ],
        "marks": [
            {
                "type": "rect",
                "from": {"data": "areas"},
                "encode": {
                    "update": {
                        **area,
                        "fill": {"scale": "color", "field": "kind"},
                        "stroke": {"value": "white"},
                        "tooltip": {"signal": tooltip},
                    }
                },
            },
            {
                "type": "text",
                "from": {"data": "areas"},
                "interactive": False,
                "encode": {
                    "update": {
                        "x": {"signal": "(datum.x0 + datum.x1) / 2"},
                        "y": {"signal": "(datum.y0 + datum.y1) / 2"},
                        "align": {"value": "center"},
                        "baseline": {"value": "middle"},
                        "fontSize": {"value": 10},
                        "fill": {"signal": f"datum.kind === '{_FREE}' ? '#555' : 'white'"},
                        "limit": {"signal": "datum.x1 - datum.x0 - 4"},
                        "text": {
                            "signal": "datum.y1 - datum.y0 > 12 && datum.x1 - datum.x0 > 24 "
                            "? datum.name : ''"
                        },
                    }
                },
            },
            {
                "type": "text",
                "from": {"data": "ranks"},
                "interactive": False,
                "encode": {
                    "update": {
                        "x": {"signal": "datum.x0 + 3"},
                        "y": {"signal": "datum.y0 + 11"},
                        "fontSize": {"value": 10},
                        "fontWeight": {"value": "bold"},
                        "limit": {"signal": "datum.x1 - datum.x0 - 4"},
                        "text": {"field": "id"},
                    }
                },
            },
        ],
        "legends": [{"fill": "color", "orient": "top", "direction": "horizontal"}],
    }
