"""``planner compare``."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import (
    GPUS,
    SEED,
    TIME,
    hardware_option,
    headroom_option,
    nodes_option,
    output_options,
    profile_and_nodes,
    refuse_given,
)
from planner.cli.values import FILE, SHARDER
from planner.environment.interrupts import interruptible
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.planned.report import Report


@click.command("compare")
@click.argument("files", nargs=-1, required=True, metavar="WORKLOAD | OLD_PLAN NEW_PLAN", type=FILE)
@click.option("--gpus", type=GPUS, help="GPUs in all, on all nodes.")
@nodes_option
@hardware_option
@click.option("--seed", type=SEED, help="Of everything random.")
@click.option(
    "--time-limit",
    type=TIME,
    metavar="10s",
    help="Of each search; those that gain nothing for a while end sooner.",
)
@click.option(
    "--sharder",
    "sharders",
    multiple=True,
    metavar="NAME",
    type=SHARDER,
    help="Only this; repeatable.",
)
@headroom_option
@html_option
@output_options
def command(
    files: tuple[str, ...],
    *,
    gpus: int | None,
    nodes: int | None,
    sharders: tuple[str, ...],
    html: str | None,
    output: Output,
    **flags: object,
) -> None:
    """Compare all sharders on a workload file, or two plan files with each other.

    A sharder that fails is a row with the reason, and the exit code tells: 1 a bug, 5 a plug-in.
    """
    check_page(html, output)
    if len(files) == 2:
        where, why = "a workload file", "plans are compared as they are"
        refuse_given(where, why, gpus=gpus, nodes=nodes, sharder=sharders, **flags)
        _compare_plans(*files, html=html, output=output)
    elif len(files) > 2:
        raise click.UsageError(f"one workload file or two plan files, got {len(files)} files")
    elif gpus is None:
        raise click.UsageError("a workload file needs `--gpus`, and a plan file another beside it")
    else:
        _compare_sharders(files[0], gpus, nodes, sharders, html=html, output=output, flags=flags)


def _compare_sharders(
    workload: str,
    gpus: int,
    nodes: int | None,
    sharders: tuple[str, ...],
    *,
    html: str | None,
    output: Output,
    flags: dict[str, object],
) -> None:
    from costmodel.base.errors import PluginError, SharderFailedError
    from planner.environment.settings import DEFAULT, resolve
    from planner.search.plugins import sharder_names
    from planner.search.search import Search
    from planner.show.error_text import error_json, exit_code
    from planner.verbs.comparing import compare
    from planner.views.compare_text import sharders_text
    from planner.views.report_data import report_data

    settings = resolve(flags)
    searches = len(sharders) or len(sharder_names()) + 1
    progress = ProgressLine(output, searches * settings.time_limit)
    with interruptible(ending=True) as interrupt, progress:
        results = compare(
            workload,
            gpus=gpus,
            nodes=profile_and_nodes(settings, gpus, nodes),
            hardware=settings.hardware,
            sharders=sharders,
            search=Search(
                seed=settings.seed,
                time_limit=settings.time_limit,
                headroom=settings.headroom,
                interrupted=lambda: interrupt.happened,
                watch=progress.watch,
            ),
        )
    assumed = settings.origins["hardware"] == DEFAULT
    reports = [replace(result.report, hardware_assumed=assumed) for result in results]
    if output.json:
        output.data({
            "results": [report_data(report) for report in reports],
            "without_plan": {name: error_json(error) for name, error in results.errors.items()},
        })
    elif html != "-":
        output.lines(lambda width: sharders_text(reports, width, results.errors))
    write_page(html, results.to_html, output)
    for line in _late(reports, settings.time_limit):
        output.remark(line)
    if interrupt.happened:
        output.remark("interrupted: not every sharder had its turn")
        click.get_current_context().exit(interrupt.exit_code)
    for error in results.errors.values():
        if isinstance(error, PluginError | SharderFailedError):
            click.get_current_context().exit(exit_code(error))


def _late(reports: "Sequence[Report]", limit: float) -> "Iterator[str]":
    """Yield the searches that took longer than they may."""
    from planner.search.stages import may_take

    for search in filter(None, (report.search for report in reports)):
        if search.time > may_take(limit):
            yield (
                f"`{search.requested}` searched for {search.time:.1f} s, longer than the limit of "
                f"{limit:g} s: it looks at the clock only between steps of its own"
            )


def _compare_plans(old: str, new: str, *, html: str | None, output: Output) -> None:
    from planner.verbs.diff import compare_plans
    from planner.views.compare_page import diff_page
    from planner.views.compare_text import diff_text
    from planner.views.report_data import diff_data

    with ProgressLine(output) as progress:
        progress.say("timing both plans")
        diff = compare_plans(old, new)
    write_page(html, lambda: diff_page(diff, (old, new)), output)
    if output.json:
        output.data(diff_data(diff))
    elif html != "-":
        output.lines(lambda width: diff_text(diff, width))
