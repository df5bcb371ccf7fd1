"""``planner simulate``."""

from typing import TYPE_CHECKING

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import output_options
from planner.cli.traces import check_trace, trace_options, write_trace
from planner.cli.values import FILE
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.text import Text

    from costmodel.step.timeline import Timeline
    from planner.planned.planned import Planned
    from planner.show.ranks import ShownRanks


@click.command("simulate")
@click.argument("plan", metavar="PLAN", type=FILE)
@trace_options
@html_option
@output_options
def command(
    plan: str,
    *,
    trace: str | None,
    ranks: "Iterable[int] | str | None",
    html: str | None,
    output: Output,
) -> None:
    """Show what every stream does during the step of a PLAN."""
    from planner.show.ranks import shown_ranks
    from planner.verbs.loading import load_plan, simulate
    from planner.views.plan_page import plan_page
    from planner.views.report_data import report_data

    check_trace(trace)
    check_page(html, output)
    with ProgressLine(output) as progress:
        progress.say("timing the plan")
        planned = load_plan(plan)
        timeline = simulate(planned)
        shown = shown_ranks(timeline, ranks)
    if output.json:
        in_trace = list(shown.ranks) if trace else None
        output.data({**report_data(planned.report), "trace": trace, "trace_ranks": in_trace})
    elif html != "-":
        output.lines(lambda width: _lines(planned, timeline, shown, width))
    write_page(html, lambda: plan_page(planned, timeline, shown=shown), output)
    write_trace(trace, timeline, shown, output)


def _lines(
    planned: "Planned", timeline: "Timeline", shown: "ShownRanks", width: int
) -> "Iterator[Text]":
    from planner.views.report_text import notes_text
    from planner.views.timeline_text import timeline_text

    yield from notes_text(planned.report.notes, width)
    report = planned.report
    yield from timeline_text(timeline.stretched(report.step_time), width, report, shown)
