"""``planner simulate``."""

from typing import TYPE_CHECKING

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import output_options
from planner.cli.traces import check_trace, trace_option, write_trace
from planner.cli.values import FILE
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from costmodel.step.timeline import Timeline
    from planner.planned.planned import Planned


@click.command("simulate")
@click.argument("plan", metavar="PLAN", type=FILE)
@trace_option
@html_option
@output_options
def command(plan: str, *, trace: str | None, html: str | None, output: Output) -> None:
    """Show what every stream does during the step of a PLAN."""
    from planner.verbs.loading import load_plan, simulate
    from planner.views.report_data import report_data

    check_trace(trace)
    check_page(html, output)
    with ProgressLine(output) as progress:
        progress.say("timing the plan")
        planned = load_plan(plan)
        timeline = simulate(planned)
    if output.json:
        output.data({**report_data(planned.report), "trace": trace})
    elif html != "-":
        output.lines(lambda width: _lines(planned, timeline, width))
    write_page(html, planned.to_html, output)
    write_trace(trace, timeline, output)


def _lines(planned: "Planned", timeline: "Timeline", width: int) -> "Iterator[Text]":
    from planner.views.report_text import notes_text
    from planner.views.timeline_text import timeline_text

    yield from notes_text(planned.report.notes, width)
    report = planned.report
    yield from timeline_text(timeline.stretched(report.step_time), width, report)
