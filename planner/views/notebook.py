"""How plans show themselves in a notebook: a line, a table, charts and data frames."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from costmodel.step.timeline import Timeline
from planner.files.plans import table_data
from planner.pages.charts import Chart, chart
from planner.pages.frames import dataframe
from planner.pages.html_tables import NOTEBOOK_ROWS, rows_html, text
from planner.planned.planned import Comparison, Planned
from planner.show.format import count, duration, rate
from planner.show.ranks import shown_ranks
from planner.verbs.loading import simulate
from planner.views.compare_columns import sharder_names
from planner.views.compare_page import comparison_spec, sharders_html
from planner.views.plan_charts import breakdown_spec, plan_timeline_spec, ranks_spec
from planner.views.plan_columns import plan_rows, table_columns
from planner.views.plan_page import headline, plan_page
from planner.views.report_data import report_data


def plan_line(planned: Planned) -> str:
    """Return a plan in one line: tables, machine, step time and throughput."""
    report = planned.report
    return (
        f"<Planned {report.workload or 'workload'}: {count(report.num_tables, 'table')} on "
        f"{report.num_ranks:,} × {report.hardware}, {duration(report.step_time)} a step, "
        f"{rate(report.samples_per_second)} samples/s>"
    )


def plan_table(planned: Planned) -> str:
    """Return the HTML of a plan's first figures, and of a table with a row for every table."""
    facts = " · ".join(
        f"{text(name)} <b>{text(value)}</b>" for name, value in headline(planned.report)
    )
    table = rows_html(table_columns(planned.report), plan_rows(planned), NOTEBOOK_ROWS)
    return f"<p>{facts}</p>{table}"


def shards_dataframe(planned: Planned) -> Any:  # noqa: ANN401 - a pandas.DataFrame
    """Return one row for every shard: table, type, kernel, block."""
    rows = []
    for sharding in planned.plan.tables:
        data = table_data(sharding)
        del data["shards"]  # those on many ranks together
        rows += [{**data, **asdict(shard)} for shard in sharding.shards]
    return dataframe(rows)


def simulated_page(planned: Planned) -> str:
    """Return a plan's page, with the timeline of its step."""
    return plan_page(planned, simulate(planned))


def breakdown_chart(planned: Planned) -> Chart:
    """Return a chart of a plan's critical path by stage."""
    return chart(breakdown_spec([planned.report], ["step"]))


def ranks_chart(planned: Planned) -> Chart:
    """Return a chart of the busy time of three streams of every rank."""
    return chart(ranks_spec(_stretched(planned)))


def timeline_chart(planned: Planned, ranks: Sequence[int]) -> Chart:
    """Return a chart of the timeline of some ranks; none given: of a few."""
    timeline = _stretched(planned)
    return chart(plan_timeline_spec(timeline, shown_ranks(timeline, ranks or None).ranks))


def _stretched(planned: Planned) -> Timeline:
    """Return a plan's timeline, stretched to the expected step as all of its charts are."""
    return simulate(planned).stretched(planned.report.step_time)


def comparison_line(plans: Comparison) -> str:
    """Return the sharders compared, each with its plan's step time, in one line."""
    names = sharder_names([each.report for each in plans])
    both = zip(names, plans, strict=True)
    steps = ", ".join(f"{name} {duration(each.report.step_time)}" for name, each in both)
    return f"<Comparison of {count(len(plans), 'sharder')}: {steps}>"


def comparison_table(plans: Comparison) -> str:
    """Return the HTML of a table with a row for every sharder."""
    if not plans:
        return comparison_line(plans)
    return sharders_html(plans, plans.errors, NOTEBOOK_ROWS)


def reports_dataframe(plans: Comparison) -> Any:  # noqa: ANN401 - a pandas.DataFrame
    """Return one row for every sharder, with the keys of JSON whose values are single ones."""
    data = (report_data(each.report) for each in plans)
    return dataframe([
        {name: value for name, value in row.items() if not isinstance(value, list | dict)}
        for row in data
    ])


def comparison_chart(plans: Comparison) -> Chart:
    """Return a chart of the critical paths of the compared plans."""
    return chart(comparison_spec([each.report for each in plans]))
