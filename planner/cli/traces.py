"""``--trace FILE|DIR``, of commands that simulate a step, or time recorded runs again."""

from typing import TYPE_CHECKING

import click

from planner.cli.values import WRITTEN
from planner.show.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from costmodel.step.timeline import Timeline
    from planner.traces.chrome_trace import StepSpan

trace_option = click.option(
    "--trace",
    metavar="FILE|DIR",
    type=WRITTEN,
    help="Write a Chrome trace, for Perfetto; in a folder, one per rank.",
)


def check_trace(path: str | None) -> None:
    """Raise, before any work is done, what writing traces there would raise."""
    from planner.traces.trace_folder import check_traces_writable

    if path == "-":
        raise click.BadParameter("it needs a file", param_hint="'--trace'")
    if path is not None:
        check_traces_writable(path)


def write_trace(
    path: str | None, timeline: "Timeline", output: Output, steps: "Iterable[StepSpan]" = ()
) -> None:
    """Write a timeline's traces, if they were asked for."""
    if path is not None:
        from planner.traces.trace_folder import write_traces

        written = write_traces(timeline, path, steps)
        for each in written:
            output.remark(f"Wrote {each}")
        output.remark(f"Open {'it' if len(written) == 1 else 'them'} in https://ui.perfetto.dev")
