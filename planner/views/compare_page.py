"""Plans beside each other, as pages: what ``compare --html`` writes."""

from typing import TYPE_CHECKING

from planner.pages.charts import Spec
from planner.pages.document import Panel, html_page
from planner.pages.html_tables import rows_html
from planner.show.format import duration, signed_duration
from planner.views.compare_columns import change_columns, each_found, sharder_columns, sharder_names
from planner.views.compare_text import inputs_text, others_text, throughput_change
from planner.views.plan_charts import breakdown_spec
from planner.views.plan_page import headline, warning_panels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from costmodel.base.errors import PlannerError
    from planner.planned.planned import Planned
    from planner.planned.report import Report
    from planner.verbs.diff import PlanDiff


def comparison_spec(reports: "Sequence[Report]") -> Spec:
    """Return a chart of the critical paths of several sharders' plans."""
    return breakdown_spec(reports, sharder_names(reports))


def sharders_html(
    plans: "Sequence[Planned]",
    errors: "Mapping[str, PlannerError]",
    most_rows: int | None = None,
) -> str:
    """Return a table with a row for every sharder; for one without a plan, the reason."""
    found = each_found([each.report for each in plans], errors)
    return rows_html(sharder_columns(found), found, most_rows)


def comparison_page(plans: "Sequence[Planned]", errors: "Mapping[str, PlannerError]") -> str:
    """Return the page of several sharders' plans for one workload, best first."""
    best = plans[0].report
    panels = [
        *warning_panels(best.notes),
        _steps_panel(comparison_spec([each.report for each in plans])),
        Panel(title="Sharders", table=sharders_html(plans, errors)),
    ]
    title = f"Sharders on {best.workload or 'a workload'}, {best.num_ranks:,} × {best.hardware}"
    facts = [("best", sharder_names([best])[0]), *headline(best)]
    return html_page(title, facts, panels)


def _steps_panel(chart: Spec) -> Panel:
    note = "The critical path of each plan by stage; the line is the step's 90% interval."
    return Panel(title="Where their steps go", note=note, chart=chart)


def diff_page(diff: "PlanDiff", names: tuple[str, str]) -> str:
    """Return the page of two plans and every table whose sharding differs."""
    changed = rows_html(change_columns(diff, names), diff.changes)
    panels = [
        *warning_panels(diff.notes),
        _steps_panel(breakdown_spec([diff.old, diff.new], names)),
        Panel(
            title="Tables that are sharded otherwise",
            note=f"{diff.num_unchanged:,} are where they were. Tables are changed from the top "
            "down, so that what they add sums up to the change of the step"
            f"; {others_text(diff)}: {signed_duration(diff.other_change)}."
            f"{f' {inputs_text(diff)}' if diff.differ_in else ''}",
            table=changed if diff.changes else "",
        ),
    ]
    facts = [
        (names[0], duration(diff.old.step_time)),
        (names[1], duration(diff.new.step_time)),
        ("ratio", f"{diff.speedup:.2f}×"),
        ("throughput", throughput_change(diff)),
    ]
    return html_page(f"{names[0]} and {names[1]}", facts, panels)
