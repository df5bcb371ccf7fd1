"""``planner simulate``."""

import click

from planner.cli.options import output_options
from planner.cli.output import Output


@click.command("simulate")
@click.argument("plan", metavar="PLAN")
@click.option("--trace", metavar="FILE", help="Write a Chrome trace, for Perfetto.")
@output_options
def command(plan: str, *, trace: str | None, output: Output) -> None:
    """Show what every stream does during the step of a PLAN."""
    from planner.api import load_plan, simulate
    from planner.io.files import check_writable
    from planner.io.trace import write_trace
    from planner.report.data import report_data
    from planner.report.timeline_text import timeline_text

    if trace == "-":
        raise click.BadParameter("a trace needs a file", param_hint="'--trace'")
    if trace is not None:
        check_writable(trace)
    planned = load_plan(plan)
    timeline = simulate(planned)
    if output.json:
        output.data({**report_data(planned.report), "trace": trace})
    else:
        output.lines(lambda width: timeline_text(timeline, width))
    if trace is not None:
        write_trace(timeline, trace)
        output.remark(f"Wrote {trace}; open it in https://ui.perfetto.dev")
