"""A plan as a page, and plans beside each other: what ``--html`` writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.step.timeline import Timeline
from planner.pages.charts import Spec
from planner.pages.document import Panel, html_page
from planner.pages.tables import HtmlColumn
from planner.planning.confidence_text import span
from planner.planning.plan_charts import (
    MOST_RANKS,
    breakdown_spec,
    memory_spec,
    ranks_spec,
    timeline_spec,
)
from planner.planning.report import Report
from planner.planning.report_text import rank_list
from planner.show.format import duration, memory, percent, rate, signed_duration

if TYPE_CHECKING:
    from planner.planning.api import Planned
    from planner.planning.diff import PlanDiff


def plan_page(planned: "Planned", timeline: Timeline) -> str:
    """Return the page of one plan: where its step goes, on which rank, in what memory."""
    report = planned.report
    ranks = report.world_size
    some = f" {MOST_RANKS} of {ranks} ranks: the busiest and the idlest." if ranks > 8 else ""
    panels = [
        Panel(
            title="Where the step goes",
            note="The critical path by stage; the line is the 90% interval of the step.",
            chart=breakdown_spec([report], ["step"]),
        ),
        Panel(
            title="Ranks",
            note="Time on three streams of every rank. They run side by side, so they do not add "
            "up; what is missing to the step is idle. Waiting is for slower ranks.",
            chart=ranks_spec(timeline),
        ),
        Panel(
            title="Timeline of a step",
            note="The wheel zooms, a drag moves, a double click shows all. What is outlined is on "
            f"the critical path; the tooltip says what work waited for.{some}",
            chart=timeline_spec(timeline),
        ),
        Panel(
            title="Memory",
            note=f"Of every rank, by table: {memory(report.usable_bytes)} are usable for tables.",
            chart=memory_spec(planned),
        ),
        Panel(title="Tables", table=table_columns(planned)),
    ]
    title = f"Plan of {report.workload or 'a workload'} on {report.world_size:,} × "
    return html_page(title + report.hardware, headline(report), panels)


def headline(report: Report) -> list[tuple[str, str]]:
    """Return what is to be read first."""
    facts = [("step time", duration(report.step_time))]
    if report.confidence is not None:
        facts.append(("90% interval", span(report.confidence.interval)))
        facts.append(("expected", duration(report.confidence.expected)))
    facts.append(("samples/s", rate(report.samples_per_second)))
    search, baseline = report.search, report.baseline
    if search is not None and search.bound:
        facts.append(("no plan undercuts", duration(search.bound)))
    if baseline is not None:
        faster = f"{duration(baseline.step_time)}, {baseline.step_time / report.step_time:.2f}×"
        facts.append((baseline.sharder, faster))
    fullest = max(rank.memory.tables for rank in report.ranks) / report.usable_bytes
    facts += [
        ("tables", f"{report.num_tables:,}, {memory(report.weight_bytes)}"),
        ("batch per GPU", f"{report.local_batch_size:,}"),
        ("fullest rank", f"{percent(fullest)} of {memory(report.usable_bytes)}"),
    ]
    if search is not None:
        facts.append(("found by", search.sharder))
    return facts


def table_columns(planned: "Planned") -> list[HtmlColumn]:
    """Return every table as a row: what it is, and where it went."""
    tables = [planned.workload.table(entry.sharding.table) for entry in planned.report.tables]
    places = [entry.sharding for entry in planned.report.tables]
    world_size = planned.report.world_size
    return [
        HtmlColumn(header="Table", cells=[table.name for table in tables]),
        _numbers("Rows", [table.num_embeddings for table in tables]),
        _numbers("Columns", [table.embedding_dim for table in tables]),
        _numbers("Ids per sample", [table.pooling_factor for table in tables]),
        HtmlColumn(
            header="Weights",
            cells=[memory(table.weight_bytes) for table in tables],
            values=[table.weight_bytes for table in tables],
        ),
        HtmlColumn(header="Sharding", cells=[str(each.sharding_type) for each in places]),
        HtmlColumn(header="Kernel", cells=[str(each.compute_kernel) for each in places]),
        _numbers("Blocks", [len(each.shards) for each in places]),
        HtmlColumn(header="Ranks", cells=[rank_list(each.ranks, world_size) for each in places]),
    ]


def _numbers(header: str, values: Sequence[float]) -> HtmlColumn:
    return HtmlColumn(header=header, cells=[f"{value:,.12g}" for value in values], values=values)


def sharder_names_of(plans: "Sequence[Planned]") -> list[str]:
    """Return what plans beside each other are called: their sharders."""
    searches = [each.report.search for each in plans]
    return [s.sharder if s else f"plan {n}" for n, s in enumerate(searches, start=1)]


def comparison_spec(plans: "Sequence[Planned]") -> Spec:
    """Return the critical paths of plans of several sharders."""
    return breakdown_spec([each.report for each in plans], sharder_names_of(plans))


def comparison_columns(plans: "Sequence[Planned]") -> list[HtmlColumn]:
    """Return every sharder as a row."""
    reports = [each.report for each in plans]
    return [
        HtmlColumn(header="Sharder", cells=sharder_names_of(plans)),
        HtmlColumn(
            header="Step time",
            cells=[duration(report.step_time) for report in reports],
            values=[report.step_time for report in reports],
        ),
        HtmlColumn(
            header="90% interval",
            cells=[span(report.interval) if report.interval else "" for report in reports],
        ),
        HtmlColumn(
            header="Samples/s",
            cells=[rate(report.samples_per_second) for report in reports],
            values=[report.samples_per_second for report in reports],
        ),
        HtmlColumn(
            header="Peak memory",
            cells=[memory(report.peak_memory_bytes) for report in reports],
            values=[report.peak_memory_bytes for report in reports],
        ),
        _numbers("Plans looked at", [r.search.evaluated if r.search else 0 for r in reports]),
        HtmlColumn(
            header="Search",
            cells=[f"{r.search.time:.2f} s" if r.search else "" for r in reports],
            values=[r.search.time if r.search else None for r in reports],
        ),
    ]


def comparison_page(plans: "Sequence[Planned]") -> str:
    """Return the page of several sharders' plans for one workload, best first."""
    best = plans[0].report
    panels = [
        Panel(
            title="Where their steps go",
            note="The critical path of each plan by stage; the line is the step's 90% interval.",
            chart=comparison_spec(plans),
        ),
        Panel(title="Sharders", table=comparison_columns(plans)),
    ]
    title = f"Sharders on {best.workload or 'a workload'}, {best.world_size:,} × {best.hardware}"
    facts = [("best", sharder_names_of(plans)[0]), *headline(best)]
    return html_page(title, facts, panels)


def diff_page(diff: "PlanDiff", names: tuple[str, str]) -> str:
    """Return the page of two plans, and of every table that is not where it was."""
    changes = diff.changes

    def where(each: str) -> list[str]:
        report = diff.old if each == "old" else diff.new
        shardings = [getattr(change, each) for change in changes]
        return [
            "" if s is None else f"{s.sharding_type} → {rank_list(s.ranks, report.world_size)}"
            for s in shardings
        ]

    effects = [change.step_time_change for change in changes]
    columns = [
        HtmlColumn(header="Table", cells=[change.table for change in changes]),
        HtmlColumn(header=names[0], cells=where("old")),
        HtmlColumn(header=names[1], cells=where("new")),
        HtmlColumn(
            header="Step, if only it moved",
            cells=["" if each is None else signed_duration(each) for each in effects],
            values=effects,
        ),
    ]
    panels = [
        Panel(
            title="Where their steps go",
            note="The critical path of each plan by stage; the line is the step's 90% interval.",
            chart=breakdown_spec([diff.old, diff.new], names),
        ),
        Panel(
            title="Tables that are elsewhere",
            note=f"{diff.num_unchanged:,} are where they were.",
            table=columns if changes else (),
        ),
    ]
    facts = [
        (names[0], duration(diff.old.step_time)),
        (names[1], duration(diff.new.step_time)),
        ("ratio", f"{diff.speedup:.2f}×"),
    ]
    return html_page(f"{names[0]} and {names[1]}", facts, panels)
