"""A sweep as a page: the front, how throughput scales, and every point in a table."""

from math import inf
from typing import Any

from planner.pages.charts import Spec, field, spec
from planner.pages.document import Panel, html_page
from planner.pages.tables import HtmlColumn
from planner.show.format import duration, memory, rate, significant
from planner.sweeping.points import Sweep, SweepPoint
from planner.sweeping.sweep_text import cost_text, warnings
from planner.views.confidence_text import span
from planner.views.plan_page import warning_panels

_HEIGHT = 320
_LOG = {"type": "log", "nice": False, "padding": 25}
_TOOLTIP = (
    ("hardware", "hardware"),
    ("gpus", "GPUs"),
    ("batch", "samples per GPU"),
    ("step", "step time"),
    ("throughput", "samples/s"),
    ("cost", "cost per million samples"),
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
        Panel(title="Points", table=sweep_columns(sweep)),
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
            (f"least {_unit(sweep)}", f"{cost_text(thriftiest)} on {_where(thriftiest)}"),
        ]
    return facts


def _where(point: SweepPoint) -> str:
    return f"{point.world_size:,} × {point.hardware}"


def _unit(sweep: Sweep) -> str:
    return f"{'cost' if sweep.is_priced else 'GPU-hours'} per million samples"


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
    """Return the part of the front that a chart of throughput and cost shows as its edge.

    What is on the front only for its short step lies inside.
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
    """Return points by cost and throughput, those on the front connected."""
    x = field("cost", _unit(sweep), scale=_LOG)
    y = field("throughput", "samples/s", scale=_LOG, axis={"format": "~s"})
    points = {
        "mark": {"type": "point", "filled": True},
        "encoding": {
            "x": x,
            "y": y,
            "color": field("hardware", "hardware", "nominal"),
            "size": field("gpus", "GPUs", "ordinal", scale={"range": [50, 450]}),
            "shape": field("batch", "samples per GPU", "nominal"),
            "opacity": {"condition": {"test": "datum.front", "value": 1}, "value": 0.35},
            "tooltip": [field(name, title, "nominal") for name, title in _TOOLTIP],
        },
    }
    line = {
        "transform": [{"filter": "datum.line"}],
        "mark": {"type": "line", "color": "#999", "strokeDash": [4, 3]},
        "encoding": {"x": x, "y": y, "order": {"field": "throughput"}},
    }
    return spec(_rows(sweep), height=_HEIGHT, layer=[line, points])


def scaling_spec(sweep: Sweep) -> Spec:
    """Return throughput over GPUs, a line for every machine and batch."""
    ticks = {"values": sorted({point.world_size for point in sweep.feasible}), "format": "d"}
    x = field("gpus", "GPUs", scale={**_LOG, "base": 2}, axis=ticks)
    y = field("throughput", "samples/s", scale=_LOG, axis={"format": "~s"})
    color = field("hardware", "hardware", "nominal")
    dash = field("batch", "samples per GPU", "nominal")
    lines = {
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": x,
            "y": y,
            "color": color,
            "strokeDash": dash,
            "tooltip": [field(name, title, "nominal") for name, title in _TOOLTIP],
        },
    }
    bars = {
        "mark": {"type": "rule", "opacity": 0.35},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color},
    }
    return spec(_rows(sweep), height=_HEIGHT, layer=[bars, lines])


def sweep_columns(sweep: Sweep) -> list[HtmlColumn]:
    """Return every point as a row."""
    points, front = sweep.points, set(sweep.front)
    return [
        HtmlColumn(header="Front", cells=["*" if point in front else "" for point in points]),
        HtmlColumn(header="Hardware", cells=[point.hardware for point in points]),
        HtmlColumn.of_values("GPUs", [p.world_size for p in points], "{:,}".format),
        HtmlColumn.of_values(
            "Samples per GPU", [point.local_batch_size for point in points], "{:,}".format
        ),
        HtmlColumn.of_values("Step time", [point.step_time for point in points], duration),
        HtmlColumn(
            header="90% interval",
            cells=[span(point.interval) if point.interval else "" for point in points],
        ),
        HtmlColumn.of_values("Samples/s", [p.samples_per_second or None for p in points], rate),
        HtmlColumn.of_values(
            _unit(sweep).capitalize() if sweep.is_priced else _unit(sweep),
            [point.cost_per_million_samples for point in points],
            significant,
        ),
        HtmlColumn.of_values("Peak memory", [p.peak_memory_bytes for p in points], memory),
        HtmlColumn(header="Why no plan", cells=[point.reason or "" for point in points]),
    ]
