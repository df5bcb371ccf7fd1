"""``--trace FILE|DIR``, of commands that simulate a step, or time recorded runs again."""

from typing import TYPE_CHECKING

import click

from planner.cli.shared_options import Command, refuse_given
from planner.cli.values import WRITTEN, Parsed
from planner.show.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from costmodel.step.timeline import Timeline
    from planner.show.ranks import ShownRanks
    from planner.traces.chrome_trace import StepSpan

_MOST_FILES = 3
"""Most files named that were there before."""


def _ranks(text: str) -> "Iterable[int] | str":
    from planner.show.ranks import parse_ranks

    return parse_ranks(text)


def trace_options(command: Command) -> Command:
    """Add ``--trace`` and ``--ranks`` to a command."""
    trace = click.option(
        "--trace",
        metavar="FILE|DIR",
        type=WRITTEN,
        help="Write a Chrome trace, for Perfetto; in a folder, one per rank.",
    )
    ranks = click.option(
        "--ranks",
        metavar="0-7,12|all",
        type=Parsed("ranks", _ranks),
        help="Ranks of the trace, and of timelines shown [default: all up to 8; of more, one of "
        "each kind, or those longest on the critical path, the busiest and the idlest].",
    )
    return trace(ranks(command))


def check_trace(path: str | None, **options: object) -> None:
    """Raise, before any work is done, what writing traces there would raise.

    Options that go with it alone are refused without it.
    """
    from planner.traces.trace_folder import check_traces_writable

    if path == "-":
        raise click.BadParameter("it needs a file", param_hint="'--trace'")
    if path is None:
        refuse_given("--trace", "nothing else shows ranks", **options)
    else:
        check_traces_writable(path)


def write_trace(
    path: str | None,
    timeline: "Timeline",
    shown: "ShownRanks",
    output: Output,
    steps: "Iterable[StepSpan]" = (),
) -> None:
    """Write the traces of the ranks shown, if they were asked for, and say which are left out."""
    if path is None:
        return
    from planner.show.ranks import MOST_RANKS, rank_list
    from planner.traces.trace_folder import other_traces, write_traces

    written = write_traces(timeline, path, steps, shown.ranks)
    if len(written) > MOST_RANKS:
        output.remark(f"Wrote {len(written):,} files, {written[0]} to {written[-1]}")
    else:
        for each in written:
            output.remark(f"Wrote {each}")
    if shown.text:
        these = rank_list(shown.ranks, shown.num_ranks)
        why = shown.rule and f" ({shown.rule})"
        verb = "is" if len(shown.ranks) == 1 else "are"
        said = f"Of {shown.num_ranks:,} ranks, {len(shown.ranks)} {verb} written: {these}{why}"
        output.remark(f"{said}; `--ranks all` writes every one")
    if others := other_traces(path, written):
        output.remark(f"Not written now, and perhaps of another step: {_listed(others)}")
    output.remark(f"Open {'it' if len(written) == 1 else 'them'} in https://ui.perfetto.dev")


def _listed(files: "Sequence[Path]") -> str:
    """Return the names of the first files, and how many more there are."""
    more = len(files) - _MOST_FILES
    return ", ".join(map(str, files[:_MOST_FILES])) + (f" and {more:,} more" if more > 0 else "")
