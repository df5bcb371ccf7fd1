"""A plan as a page, written by ``--html`` of ``plan``, ``simulate`` and ``explain``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from costmodel.step.timeline import Timeline
from planner.pages.document import Panel, html_page
from planner.pages.html_tables import rows_html
from planner.planned.report import Report
from planner.show.format import duration, memory, percent, rate, span
from planner.show.ranks import ShownRanks, shown_ranks
from planner.verbs.alternatives import alternatives
from planner.verbs.what_if import unsearched, usual_changes
from planner.views.decision_charts import search_spec, sensitivity_spec, what_if_spec
from planner.views.plan_charts import breakdown_spec, memory_spec, plan_timeline_spec, ranks_spec
from planner.views.plan_columns import (
    WHEN_WEIGHED,
    group_columns,
    path_columns,
    plan_rows,
    table_columns,
)
from planner.views.report_text import averaging_sentences, gain_text
from planner.views.verdict_text import choice_sentences

if TYPE_CHECKING:
    from planner.planned.planned import Planned
    from planner.verbs.alternatives import Alternatives
    from planner.verbs.explanation import Explanation


def plan_page(
    planned: "Planned",
    timeline: Timeline,
    explanation: "Explanation | None" = None,
    shown: ShownRanks | None = None,
) -> str:
    """Return the page of one plan: its step, memory, and what the choice rests on.

    What-ifs are those of an explanation, searched again, or else of the plan as it is. The timeline
    is of some ranks; None: of a few.
    """
    report = planned.report
    panels = [
        *warning_panels(report.notes),
        *_step_panels(planned, timeline, shown or shown_ranks(timeline)),
        *_decision_panels(planned, explanation),
    ]
    title = f"Plan of {report.workload or 'a workload'} on {report.num_ranks:,} × "
    return html_page(title + report.hardware, headline(report), panels)


def warning_panels(notes: Sequence[str]) -> Iterator[Panel]:
    """Yield a panel of warnings, if there are any."""
    if notes:
        yield Panel(title="Warnings", lines=notes)


def _step_panels(planned: "Planned", timeline: Timeline, shown: ShownRanks) -> Iterator[Panel]:
    report = planned.report
    stretched = timeline.stretched(report.step_time)
    yield Panel(
        title="Where the step goes",
        note="The critical path by stage; the line is the 90% interval of the step. Times "
        "here are the models', stretched to the expected step.",
        chart=breakdown_spec([report], ["step"]),
        lines=[averaging_sentences(report, report.replicas)] if report.replicas else [],
    )
    yield Panel(
        title="Ranks",
        note="Time on the streams of every rank: of each process group, of compute, of the "
        "host. They run side by side, so they do not add up; what is missing to the step is idle. "
        "Waiting is for slower ranks.",
        chart=ranks_spec(stretched),
    )
    yield Panel(
        title="Timeline of a step",
        note="The wheel zooms, a drag moves, a double click shows all. What is outlined is on "
        f"the critical path; the tooltip says what work waited for.{shown.sentence}",
        chart=plan_timeline_spec(stretched, shown.ranks),
    )
    yield Panel(
        title="Memory",
        note=f"Of every rank, by table: {memory(report.usable_bytes)} are usable for tables; "
        "ranks go down, then right.",
        chart=memory_spec(planned),
    )


def _decision_panels(planned: "Planned", explanation: "Explanation | None") -> Iterator[Panel]:
    report = planned.report
    yield Panel(
        title="Tables",
        note="Otherwise: how the step changes, by the models, if this table alone were sharded so.",
        table=rows_html(table_columns(report, _others(planned, explanation)), plan_rows(planned)),
    )
    if len(report.weighed_groups) > 1:
        yield Panel(
            title="Group sizes weighed",
            note=WHEN_WEIGHED,
            table=rows_html(group_columns(), report.weighed_groups),
        )
    if explanation is not None:
        yield Panel(
            title="The critical path in order", table=rows_html(path_columns(), explanation.path)
        )
    if report.search is not None and report.search.history:
        yield Panel(
            title="The search",
            note="Every gain of 0.1% or more, by the models without their errors: above the bound "
            "that no plan undercuts. The choice afterwards is by the expected step.",
            chart=search_spec(report),
        )
    yield Panel(
        title="How the choice depends on what is assumed",
        note="The step if host operations, lookups or collectives took so many times as long as "
        "assumed, beside this plan's as assumed; where lines cross, another plan becomes faster.",
        lines=choice_sentences(report),
        chart=sensitivity_spec(planned),
    )
    again = "each searched again from this plan"
    if explanation is None:
        again = "of this plan as it is; planner explain searches again for each"
    what_ifs = unsearched(planned, usual_changes(planned))
    remedies = tuple(what_ifs) if explanation is None else explanation.remedies
    if remedies:
        yield Panel(
            title="What if",
            note=f"Samples a second, {again}. The line is this plan.",
            chart=what_if_spec(remedies, report),
        )


def _others(planned: "Planned", explanation: "Explanation | None") -> "Mapping[str, Alternatives]":
    """Return the alternatives of tables, those of the explanation if there is one."""
    if explanation is None:
        return alternatives(planned)
    return {each.sharding.table: each.others for each in explanation.choices if each.others}


def headline(report: Report) -> list[tuple[str, str]]:
    """Return the first figures of the page, as (name, value)."""
    facts = [
        ("step time", duration(report.step_time)),
        ("90% interval", span(report.interval)),
        ("samples/s", rate(report.samples_per_second)),
    ]
    search, baseline = report.search, report.baseline
    if baseline is not None:
        facts.append((baseline.sharder, f"{duration(baseline.step_time)}, {report.speedup:.2f}×"))
    if report.gap is not None:
        facts.append(("to gain at most", gain_text(report.gap)))
    fullest = report.fullest.memory.tables / report.usable_bytes
    facts += [
        ("tables", f"{report.num_tables:,}, {memory(report.weight_bytes)}"),
        ("batch per GPU", f"{report.local_batch_size:,}"),
        ("fullest rank", f"{percent(fullest)} of {memory(report.usable_bytes)}"),
    ]
    if search is not None:
        facts.append(("found by", search.sharder))
    return facts
