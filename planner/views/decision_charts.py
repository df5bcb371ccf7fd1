"""Charts of the search, of the assumptions a decision rests on, and of what would help."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.base.units import MS
from costmodel.uncertainty.sensitivity import FACTORS, PlanStep
from planner.decision.judging import ASSUMPTIONS
from planner.pages.charts import VEGA_LITE, Spec, field, layer, spec, timed, tooltip
from planner.show.format import change, duration, rate
from planner.verbs.what_if import Remedy

if TYPE_CHECKING:
    from costmodel.domain.plan import ShardingPlan
    from planner.planned.planned import Planned
    from planner.planned.report import Report

_HEIGHT, _NARROW, _BAR = 220, 300, 22
_THIS_PLAN = "this plan"
_MODELLED = field("ms", "ms of the step by the models, without errors", scale={"zero": False})
_RATIO = field("step", "step, beside this plan's as assumed", scale={"zero": False})
_RED = "#e15759"
_FACTORS = {"type": "log", "domain": [FACTORS[0], FACTORS[-1]]}
_TICKS = {"values": [0.25, 0.5, 1, 2, 4]}


def search_spec(report: "Report") -> Spec:
    """Return a chart of the best step over time, down to the bound."""
    search = report.search
    if search is None or not search.history:
        return {}
    rows = [
        timed(each.modelled.seconds, s=each.time, sharder=each.sharder) for each in search.history
    ]
    curve = layer(
        {"type": "line", "interpolate": "step-after", "point": True},
        x=field("s", "seconds from when the command began"),
        y=_MODELLED,
        tooltip=[
            *tooltip(text="step by the models", sharder="found by"),
            field("s", "after seconds", format=".2f"),
        ],
    )
    if not search.bound:
        return spec(rows, height=_HEIGHT, layer=[curve])
    said = {"type": "text", "align": "left", "dy": -6, "x": 4, "color": _RED}
    values = [{"ms": search.bound.seconds / MS, "text": f"bound {duration(search.bound.seconds)}"}]
    bound = {
        "data": {"values": values},
        "encoding": {"y": field("ms", "")},
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [6, 4], "color": _RED}},
            layer(said, text={"field": "text"}),
        ],
    }
    return spec(rows, height=_HEIGHT, layer=[curve, bound])


def sensitivity_spec(planned: "Planned") -> Spec:
    """Return a chart of the step as assumptions vary, beside that of a rival plan.

    The rival is that of the verdict, or else the baseline's plan.
    """
    now = planned.report.modelled.seconds
    rows = [
        {
            "assumption": assumption,
            "factor": factor,
            "plan": name,
            "step": seconds / now,
            "text": change(seconds / now),
        }
        for name, plan in _compared(planned)
        for step in [PlanStep.of(planned.workload, planned.topology, plan)]
        for assumption, causes in ASSUMPTIONS.items()
        for factor, seconds in zip(FACTORS.tolist(), step.times(causes).tolist(), strict=True)
    ]
    lines = layer(
        "line",
        x=field("factor", "takes so many times as long", scale=_FACTORS, axis=_TICKS),
        y=_RATIO,
        color=field("plan", "", "nominal", sort=None),
        tooltip=[
            *tooltip(plan="plan"),
            field("factor", "times as long", format=".2f"),
            *tooltip(text="step"),
        ],
    )
    here = {"datum": 1.0, "type": "quantitative"}
    present = layer({"type": "rule", "strokeDash": [2, 4]}, x=here)
    return {
        "$schema": VEGA_LITE,
        "data": {"values": rows},
        "facet": {"column": field("assumption", "", "nominal", sort=list(ASSUMPTIONS))},
        "spec": {"width": _NARROW, "height": _HEIGHT, "layer": [lines, present]},
    }


def _compared(planned: "Planned") -> "list[tuple[str, ShardingPlan]]":
    """Return this plan and the one to show beside it, by title: the rival, or the baseline's."""
    report, plans = planned.report, [(_THIS_PLAN, planned.plan)]
    rival = report.verdict.rival if report.verdict else None
    if rival is not None and rival.plan != planned.plan:
        plans.append((rival.types, rival.plan))
    elif report.baseline is not None and report.baseline.plan not in {None, planned.plan}:
        plans.append((f"the plan of {report.baseline.sharder}", report.baseline.plan))
    return plans


def what_if_spec(remedies: Sequence[Remedy], report: "Report") -> Spec:
    """Return a chart of samples per second after each change, best first, and of the plan."""
    now = report.samples_per_second
    rows = [
        {
            "change": each.change,
            "samples": each.samples_per_second / 1e6,
            "more": change(each.samples_per_second / now),
            "rate": rate(each.samples_per_second),
            "text": duration(each.step_time),
            "helps": each.samples_per_second > now,
        }
        for each in remedies
    ]
    helps = {"condition": {"test": "datum.helps", "value": "#59a14f"}, "value": "#e0a39f"}
    bars = layer(
        "bar",
        y=field("change", "", "nominal", sort="-x", axis={"labelLimit": 320}),
        x=field("samples", "M samples/s"),
        color=helps,
        tooltip=tooltip(change="change", rate="samples/s", more="against this plan", text="step"),
    )
    present = layer({"type": "rule"}, x={"datum": now / 1e6})
    return spec(rows, height=_BAR * len(rows), layer=[bars, present])
