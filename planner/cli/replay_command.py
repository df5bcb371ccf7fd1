"""``planner replay``."""

from typing import TYPE_CHECKING

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import output_options
from planner.cli.traces import check_trace, trace_options, write_trace
from planner.cli.values import FILE
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterable


@click.command("replay")
@click.argument("traces", metavar="TRACES", type=FILE)
@click.option(
    "--mode",
    type=click.Choice(["graph", "algorithm1", "baseline"]),
    default="graph",
    show_default=True,
    help="The planner's simulator; the paper's Algorithm 1; the busiest stream's kernels.",
)
@click.option(
    "--execution-traces",
    "execution",
    metavar="PATH",
    help="PyTorch execution traces of the same steps; by default those beside the TRACES.",
)
@click.option(
    "--cycle",
    metavar="N",
    type=click.IntRange(min=1),
    help="Of a process that was profiled several times (`schedule(repeat=...)`): which time, from "
    "1 on; by default the last.",
)
@click.option(
    "--what-if",
    "questions",
    multiple=True,
    metavar="CHANGE",
    help="`all_to_all x0.5`, `host x0`, `balance`, `collectives h100-sxm`, ...; repeatable.",
)
@trace_options
@html_option
@output_options
def command(  # noqa: PLR0913 - an argument per option
    traces: str,
    *,
    mode: str,
    execution: str | None,
    cycle: int | None,
    questions: tuple[str, ...],
    trace: str | None,
    ranks: "Iterable[int] | str | None",
    html: str | None,
    output: Output,
) -> None:
    """Replay a profiled run: profiler TRACES of its ranks, a file, a folder or an archive."""
    from planner.show.ranks import shown_ranks
    from planner.traces.replay.modes import step_spans
    from planner.traces.replay.replay_data import replay_data
    from planner.traces.replay.replay_page import replay_page
    from planner.traces.replay.replay_report import replay_report
    from planner.traces.replay.replay_text import replay_text

    if mode != "graph" and (questions or trace or ranks):
        said = "`--what-if`, `--trace` and `--ranks` need `--mode graph`"
        raise click.UsageError(f"{said}, not `{mode}`")
    check_trace(trace, **({} if html else {"ranks": ranks}))
    check_page(html, output)
    with ProgressLine(output) as progress:
        progress.say(f"reading and replaying {traces}")
        report = replay_report(
            traces, mode=mode, execution=execution, questions=questions, cycle=cycle
        )
        timeline = report.replay.timeline
        shown = None if timeline is None else shown_ranks(timeline, ranks)
    if output.json:
        output.data(replay_data(report))
    elif html != "-":
        output.lines(lambda width: replay_text(report, width))
    write_page(html, lambda: replay_page(report, shown), output)
    if timeline is not None and shown is not None:
        write_trace(trace, timeline, shown, output, step_spans(report.run, timeline))
