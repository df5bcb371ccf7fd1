"""Plans beside each other, as pages: what ``compare --html`` writes."""

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.pages.charts import Spec
from planner.pages.document import Panel, html_page
from planner.pages.tables import HtmlColumn
from planner.show.format import duration, memory, rate, signed_duration, span
from planner.views.compare_text import others_text, throughput_change, where_texts
from planner.views.plan_charts import breakdown_spec
from planner.views.plan_page import headline, numbers, warning_panels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from costmodel.base.errors import PlannerError
    from planner.planned.planned import Planned
    from planner.verbs.diff import PlanDiff


def sharder_names_of(plans: "Sequence[Planned]") -> list[str]:
    """Return what plans beside each other are called: their sharders."""
    searches = [each.report.search for each in plans]
    return [s.sharder if s else f"plan {n}" for n, s in enumerate(searches, start=1)]


def comparison_spec(plans: "Sequence[Planned]") -> Spec:
    """Return the critical paths of plans of several sharders."""
    return breakdown_spec([each.report for each in plans], sharder_names_of(plans))


def comparison_columns(
    plans: "Sequence[Planned]", errors: "Mapping[str, PlannerError]"
) -> list[HtmlColumn]:
    """Return every sharder as a row, those that have no plan last, with the reason."""
    columns = _plan_columns(plans)
    if not errors:
        return columns
    without = [
        replace(
            column,
            cells=[*column.cells, *([""] * len(errors))],
            values=column.values and [*column.values, *([None] * len(errors))],
        )
        for column in columns[1:]
    ]
    names = [*columns[0].cells, *errors]
    reasons = [*([""] * len(plans)), *map(str, errors.values())]
    return [
        HtmlColumn(header="Sharder", cells=names),
        *without,
        HtmlColumn(header="No plan", cells=reasons, prose=True),
    ]


def _plan_columns(plans: "Sequence[Planned]") -> list[HtmlColumn]:
    reports = [each.report for each in plans]
    return [
        HtmlColumn(header="Sharder", cells=sharder_names_of(plans)),
        HtmlColumn.of_values("Step time", [report.expected for report in reports], duration),
        HtmlColumn(
            header="90% interval",
            cells=[span(report.interval) if report.interval else "" for report in reports],
        ),
        HtmlColumn.of_values("Samples/s", [report.samples_per_second for report in reports], rate),
        HtmlColumn.of_values(
            "Peak memory", [report.peak_memory_bytes for report in reports], memory
        ),
        numbers("Plans looked at", [r.search.evaluated if r.search else 0 for r in reports]),
        HtmlColumn.of_values(
            "Search", [r.search.time if r.search else None for r in reports], "{:.2f} s".format
        ),
    ]


def comparison_page(plans: "Sequence[Planned]", errors: "Mapping[str, PlannerError]") -> str:
    """Return the page of several sharders' plans for one workload, best first."""
    best = plans[0].report
    panels = [
        *warning_panels(best.notes),
        Panel(
            title="Where their steps go",
            note="The critical path of each plan by stage; the line is the step's 90% interval.",
            chart=comparison_spec(plans),
        ),
        Panel(title="Sharders", table=comparison_columns(plans, errors)),
    ]
    title = f"Sharders on {best.workload or 'a workload'}, {best.world_size:,} × {best.hardware}"
    facts = [("best", sharder_names_of(plans)[0]), *headline(best)]
    return html_page(title, facts, panels)


def diff_page(diff: "PlanDiff", names: tuple[str, str]) -> str:
    """Return the page of two plans, and of every table that is not where it was."""
    changes = diff.changes
    places = [where_texts(change, diff) for change in changes]
    effects = [change.step_time_change for change in changes]
    columns = [
        HtmlColumn(header="Table", cells=[change.table for change in changes]),
        HtmlColumn(header=names[0], cells=[old for old, _ in places]),
        HtmlColumn(header=names[1], cells=[new for _, new in places]),
        HtmlColumn.of_values("Adds to the step", effects, signed_duration),
    ]
    panels = [
        *warning_panels(diff.notes),
        Panel(
            title="Where their steps go",
            note="The critical path of each plan by stage; the line is the step's 90% interval.",
            chart=breakdown_spec([diff.old, diff.new], names),
        ),
        Panel(
            title="Tables that are elsewhere",
            note=f"{diff.num_unchanged:,} are where they were. Tables are changed from the top "
            "down, so that what they add sums up to the change of the predicted step"
            f"; {others_text(diff)}: {signed_duration(diff.other_change)}.",
            table=columns if changes else (),
        ),
    ]
    facts = [
        (names[0], duration(diff.old.expected)),
        (names[1], duration(diff.new.expected)),
        ("ratio", f"{diff.speedup:.2f}×"),
        ("throughput", throughput_change(diff)),
    ]
    return html_page(f"{names[0]} and {names[1]}", facts, panels)
