"""A sweep as a page: the front, throughput over GPUs, and a table of points."""

from math import inf
from typing import Any

from planner.pages.charts import Spec, field, layer, spec, tooltip
from planner.pages.document import Panel, html_page
from planner.pages.html_tables import NOTEBOOK_ROWS, rows_html
from planner.show.format import duration, rate
from planner.sweeping.sweep_data import cost_unit, point_columns
from planner.sweeping.sweep_points import Sweep, SweepPoint
from planner.sweeping.sweep_text import cost_text, warnings
from planner.views.plan_page import warning_panels

_HEIGHT = 320
_LOG = {"type": "log", "nice": False, "padding": 25}
_SAMPLES = field("throughput", "samples/s", scale=_LOG, axis={"format": "~s"})
_HARDWARE = field("hardware", "hardware", "nominal")
_BATCH = field("batch", "samples per GPU", "nominal")
_TOOLTIP = tooltip(
    hardware="hardware",
    gpus="GPUs",
    batch="samples per GPU",
    step="step time",
    throughput="samples/s",
    cost="cost per million samples",
)


def sweep_page(sweep: Sweep) -> str:
    """Return the page."""
    charts = [
        Panel(
            title="Throughput and cost",
            note="Every point is the best plan found for a machine and a batch. Pale ones are not "
            "on the Pareto front of throughput, cost per sample and step time; the line is its "
            "edge in throughput and cost.",
            chart=front_spec(sweep),
        ),
        Panel(
            title="Scaling",
            note="A line for every machine and batch; bars are the 90% interval of the prediction.",
            chart=scaling_spec(sweep),
        ),
    ]
    panels = [
        *warning_panels(warnings(sweep)),
        *(charts if sweep.feasible else ()),
        Panel(title="Points", table=rows_html(point_columns(sweep), sweep.points)),
    ]
    return html_page(f"Sweep of {sweep.workload or 'a workload'}", _headline(sweep), panels)


def _headline(sweep: Sweep) -> list[tuple[str, str]]:
    facts = [
        ("tables", f"{sweep.num_tables:,}"),
        ("points", f"{len(sweep.points):,}"),
        ("with a plan", f"{len(sweep.feasible):,}"),
    ]
    if sweep.feasible:
        fastest = max(sweep.feasible, key=lambda point: point.samples_per_second)
        thriftiest = min(sweep.feasible, key=lambda point: point.cost_per_million_samples or 0)
        facts += [
            ("most samples/s", f"{rate(fastest.samples_per_second)} on {_where(fastest)}"),
            (f"least {cost_unit(sweep)}", f"{cost_text(thriftiest)} on {_where(thriftiest)}"),
        ]
    return facts


def _where(point: SweepPoint) -> str:
    return f"{point.world_size:,} × {point.hardware}"


def _rows(sweep: Sweep) -> list[dict[str, Any]]:
    """Return one row for every point that has a plan."""
    front, line = set(sweep.front), _line(sweep)
    return [
        {
            "hardware": point.hardware,
            "gpus": point.world_size,
            "batch": point.local_batch_size,
            "step": duration(point.step_time or 0.0),
            "throughput": point.samples_per_second,
            "low": point.least_samples_per_second,
            "high": point.global_batch_size / point.interval[0] if point.interval else None,
            "cost": point.cost_per_million_samples,
            "front": point in front,
            "line": point in line,
        }
        for point in sweep.feasible
    ]


def _line(sweep: Sweep) -> set[SweepPoint]:
    """Return the points of the front that are the edge of a chart of throughput and cost.

    Points on the front only for their short step lie inside.
    """
    edge, least = set(), inf
    key = lambda p: (-p.samples_per_second, p.cost_per_million_samples or 0.0)  # noqa: E731
    for point in sorted(sweep.front, key=key):
        cost = point.cost_per_million_samples or 0.0
        if cost < least:
            edge.add(point)
            least = cost
    return edge


def front_spec(sweep: Sweep) -> Spec:
    """Return a chart of points by cost and throughput, those on the front connected."""
    place = {"x": field("cost", cost_unit(sweep), scale=_LOG), "y": _SAMPLES}
    points = layer(
        {"type": "point", "filled": True},
        **place,
        color=_HARDWARE,
        size=field("gpus", "GPUs", "ordinal", scale={"range": [50, 450]}),
        shape=_BATCH,
        opacity={"condition": {"test": "datum.front", "value": 1}, "value": 0.35},
        tooltip=_TOOLTIP,
    )
    dashed = {"type": "line", "color": "#999", "strokeDash": [4, 3]}
    line = layer(dashed, **place, order={"field": "throughput"})
    edge = {"transform": [{"filter": "datum.line"}], **line}
    return spec(_rows(sweep), height=_HEIGHT, layer=[edge, points])


def scaling_spec(sweep: Sweep) -> Spec:
    """Return a chart of throughput over GPUs, a line for every machine and batch."""
    ticks = {"values": sorted({point.world_size for point in sweep.feasible}), "format": "d"}
    x = field("gpus", "GPUs", scale={**_LOG, "base": 2}, axis=ticks)
    line = {"type": "line", "point": True}
    lines = layer(line, x=x, y=_SAMPLES, color=_HARDWARE, strokeDash=_BATCH, tooltip=_TOOLTIP)
    low, high = {**_SAMPLES, "field": "low"}, {"field": "high"}
    bars = layer({"type": "rule", "opacity": 0.35}, x=x, y=low, y2=high, color=_HARDWARE)
    return spec(_rows(sweep), height=_HEIGHT, layer=[bars, lines])


def sweep_table(sweep: Sweep) -> str:
    """Return an HTML table of all points for notebooks."""
    return rows_html(point_columns(sweep), sweep.points, NOTEBOOK_ROWS)
