"""A replay as a page: steps, streams, timeline, critical path, what-ifs."""

from collections.abc import Iterator

from costmodel.step.graph import Node, NodeKind, Role
from costmodel.step.timeline import Timeline
from planner.pages.charts import Spec, field, spec, timed, tooltip
from planner.pages.document import Panel, html_page
from planner.pages.html_tables import rows_html
from planner.pages.timelines import ROW, WAITING, TimelineStyle, color, timeline_spec
from planner.show.format import change, duration, percent, percent_fine
from planner.show.ranks import ShownRanks, shown_ranks
from planner.traces.replay.breakdown import Breakdown
from planner.traces.replay.classify import Category, category
from planner.traces.replay.replay_data import STRETCH_COLUMNS, answer_columns, step_columns
from planner.traces.replay.replay_report import ReplayReport

LEAST_SHARE = 2e-4
"""Smallest share of the step that is drawn on the timeline, less than a pixel: recorded steps have
ten thousands of shorter kernels and calls."""
_COLORS = {
    Category.EMBEDDING_FORWARD: "#4e79a7",
    Category.EMBEDDING_BACKWARD: "#1f4e79",
    Category.GEMM: "#59a14f",
    Category.MEMORY: "#9c755f",
    Category.OTHER: "#bab0ac",
    Category.ALL_TO_ALL: "#f28e2b",
    Category.ALL_REDUCE: "#b07aa1",
    Category.REDUCE_SCATTER: "#ffbe7d",
    Category.ALL_GATHER: "#d37295",
    Category.HOST: "#79706e",
    Category.OTHER_RANKS: "#d4a6c8",
    WAITING: "#e15759",
}
"""Colors of categories, as on the pages of plans."""


def replay_page(report: ReplayReport, shown: ShownRanks | None = None) -> str:
    """Return the page of a replay, with the timeline of some ranks, by default of a few.

    Raises
    ------
    MissingDependencyError
        The library that draws charts is not installed.

    """
    return html_page(f"Replay of {report.source}", _facts(report), list(_panels(report, shown)))


def _facts(report: ReplayReport) -> list[tuple[str, str]]:
    replay, graph = report.replay, report.run.graph
    error = change(replay.step_time / replay.measured_step_time)
    facts = [
        ("step, simulated", duration(replay.step_time)),
        ("measured", f"{duration(replay.measured_step_time)} ({error})"),
        ("furthest off", percent_fine(replay.worst_error)),
        ("ranks", f"{len(graph.ranks):,}" if report.run.job.is_whole else report.run.job.text),
        ("steps", f"{graph.num_steps:,}"),
    ]
    if report.breakdown is not None:
        shares = (f"{name} {percent(share)}" for name, share in report.breakdown.bounds.items())
        facts.append(("limited by", ", ".join(shares)))
    return facts


def _panels(report: ReplayReport, shown: ShownRanks | None) -> Iterator[Panel]:
    timeline, found = report.replay.timeline, report.breakdown
    if found is not None:
        yield Panel(
            title="Streams",
            note="What every stream does from the first event to the last; the rest is idle.",
            chart=_streams_spec(found),
        )
    if timeline is not None:
        shown = shown or shown_ranks(timeline)
        yield Panel(
            title="Timeline of the last step",
            note="As simulated. The wheel zooms, a drag moves, a double click shows all. What is "
            f"outlined is on the critical path; the tooltip says what work waited for. Work below "
            f"{100 * LEAST_SHARE:.2f}% of the step is left out.{shown.sentence}",
            chart=_timeline(timeline, shown),
        )
    if found is not None:
        yield Panel(
            title="The critical path in order", table=rows_html(STRETCH_COLUMNS, found.stretches)
        )
    if report.answers:
        columns = answer_columns(report.replay.step_time)
        yield Panel(title="What if", table=rows_html(columns, report.answers))
    steps = rows_html(step_columns(), report.replay.steps)
    yield Panel(title="Step by step", lines=report.run.notes, table=steps)


def _streams_spec(found: Breakdown) -> Spec:
    rows = [
        timed(seconds, row=f"rank {use.rank} {use.stream}", part=part)
        for use in found.streams
        for part, seconds in [*use.busy.items(), (WAITING, use.waiting)]
        if seconds > 0
    ]
    lines = list(dict.fromkeys(row["row"] for row in rows))
    return spec(
        rows,
        height=ROW * len(lines),
        mark="bar",
        encoding={
            "y": field("row", "", "nominal", sort=lines, axis={"labelLimit": 220}),
            "x": field("ms", "ms"),
            "color": color({row["part"] for row in rows}, _COLORS),
            "tooltip": tooltip(row="rank and stream", part="part", text="time"),
        },
    )


def _timeline(timeline: Timeline, shown: ShownRanks) -> Spec:
    style = TimelineStyle(part=_part, colors=_COLORS, least=LEAST_SHARE * timeline.step_time)
    return timeline_spec(timeline, shown.ranks, style)


def _part(node: Node) -> str:
    if node.kind is NodeKind.HOST:
        return Category.OTHER_RANKS if node.role is Role.ABSENT else Category.HOST
    return category(node.name, node.kind, node.stage)
