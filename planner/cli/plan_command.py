"""``planner plan``."""

import shlex
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from planner.cli.pages import check_page, html_option, write_page
from planner.cli.shared_options import (
    REPLICA_GROUP,
    SHARE,
    factory_option,
    model_options,
    output_options,
    plan_limit,
    profile_and_nodes,
    refuse_averaging,
    refuse_given,
    search_options,
    sync_interval_option,
    told_of_model,
    workload_source,
)
from planner.cli.values import BASELINE, FILE, SHARDER, WRITTEN
from planner.environment.interrupts import interruptible
from planner.show.output import Output, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from costmodel.domain.hardware import Topology
    from costmodel.domain.workload import Workload
    from planner.environment.settings import Settings
    from planner.planned.planned import Planned
    from planner.search.search import Search
    from planner.verbs.grouping import Grouping

DEFAULT_FILE = "plan.json"
OPTUNA = "optuna"
MOST_JOBS = 256
PLACE = "use_inter_host_allreduce"
AVERAGING = ("sync_interval", "sharding_strategy", PLACE)
"""Options of how the replicas of groups are averaged, fields of ``Grouping``."""


@click.command("plan")
@click.argument("workload", metavar="FILE", type=FILE, required=False)
@search_options
@click.option(
    "--sharder", metavar="NAME", type=SHARDER, help="`auto` (all built-in ones) or one of them."
)
@click.option(
    "--baseline",
    metavar="NAME",
    type=BASELINE,
    help="What the report compares with: `torchrec_port` (TorchRec's planner, ported: the "
    "default), `torchrec` (the planner itself, where it is installed), another sharder, or `none`.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1, max=MOST_JOBS),
    default=1,
    help="Processes that search at once, each from a seed of its own [default: 1].",
)
@click.option(
    "--gap",
    type=SHARE,
    default="1%",
    metavar="1%",
    help="End the search at a step within this of the bound, which no plan undercuts.",
)
@click.option(
    "--storage",
    metavar="URL",
    help="With --sharder optuna: share one study with other processes and machines that give the "
    "same URL, `sqlite:///study.db`, `journal://study.log`, or a database server's. This is how "
    "to search on more than one machine.",
)
@click.option(
    "--replica-group",
    metavar="auto|N",
    type=REPLICA_GROUP,
    help="Several groups of N GPUs that each hold all tables (TorchRec's DMPCollection), or of as "
    "many as are best; the plan is that of one group.",
)
@sync_interval_option
@click.option(
    "--sharding-strategy",
    type=click.Choice(["default", "fully_sharded"]),
    help="With --replica-group: DMPCollection's, which collectives average replicas; "
    "`fully_sharded` does in every step (--sync-interval 1) [default: default].",
)
@click.option(
    "--use-inter-host-allreduce/--no-use-inter-host-allreduce",
    default=None,
    help="With --replica-group: whether groups have consecutive GPUs [default: if faster].",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="PLAN",
    type=WRITTEN,
    help=f"Where the plan goes: {DEFAULT_FILE} unless --json is given; - is stdout.",
)
@factory_option("Instead of FILE: a function that returns a TorchRec model (meta device will do).")
@click.option(
    "--from",
    "start",
    metavar="PLAN",
    type=FILE,
    help="Instead of FILE: search from this plan file's plan, for its workload, machine and groups "
    "(whose replicas may be averaged otherwise).",
)
@model_options
@html_option
@output_options
def command(
    workload: str | None,
    *,
    factory: str | None,
    start: str | None,
    target: str | None,
    output: Output,
    **flags: Any,  # noqa: ANN401 - what `resolve` knows, and how to search
) -> None:
    """Find the plan with the shortest predicted step for a workload FILE (- is stdin)."""
    began = time.monotonic()  # imports count, too

    from planner.environment.settings import DEFAULT, resolve
    from planner.files.disk import check_writable, version_of
    from planner.search.search import Search

    unasked = target is None and not output.json
    target, html = target or (None if output.json else DEFAULT_FILE), flags.pop("html")
    check_page(html, output, output=target)
    before = version_of(target or "")
    if target is not None:
        check_writable(target)
    jobs, storage, max_plans = flags.pop("jobs"), flags.pop("storage"), plan_limit(flags)
    gap, given = flags.pop("gap"), {name: flags.pop(name) for name in AVERAGING}
    averaging = {name: value for name, value in given.items() if value is not None}
    size = flags.pop("replica_group")
    told = told_of_model(factory, flags, output)
    machine = {name: flags.pop(name) for name in ("gpus", "nodes")}
    if start is not None:
        given = {**machine, "hardware": flags["hardware"], "replica_group": size}
        refuse_given("a workload", "--from plans for the plan's own machine and groups", **given)
    settings = resolve(flags)
    if storage is not None and settings.sharder != OPTUNA:
        raise click.UsageError("--storage goes with --sharder optuna, which keeps its trials there")
    if start is None:
        source, besides = workload_source(workload, factory, told)
        if unasked:
            from planner.files.plan_keeping import check_same_workload

            source = check_same_workload(DEFAULT_FILE, source)
        find = _planning(source, besides, settings, _grouping(size, **averaging), **machine)
    elif workload is not None or factory is not None:
        raise click.UsageError("give one of FILE, --from-torchrec and --from")
    else:
        find = _again(start, settings, averaging)
    progress = ProgressLine(output, settings.time_limit)
    with interruptible(ending=True) as interrupt, progress:
        planned = find(
            Search(
                seed=settings.seed,
                time_limit=settings.time_limit,
                began=began,
                gap=gap,
                headroom=settings.headroom,
                max_plans=max_plans,
                interrupted=lambda: interrupt.happened,
                watch=progress.watch,
                jobs=jobs,
                storage=storage,
            )
        )
    assumed = start is None and settings.origins["hardware"] == DEFAULT
    report = replace(planned.report, hardware_assumed=assumed)
    planned = replace(planned, report=report)
    if target is not None:
        _save(planned, target, before, output)
    _show(planned, "-" if html == "-" else target, output)
    if target is not None:
        seconds = time.monotonic() - began
        limit = None if max_plans is not None else settings.time_limit
        output.remark(_last_lines(planned, target, seconds) + _late(planned, seconds, limit))
    write_page(html, planned.to_html, output)
    if interrupt.happened:
        output.remark("interrupted: this is the best plan found until then")
        click.get_current_context().exit(interrupt.exit_code)


def _save(
    planned: "Planned", target: str, before: "tuple[int, ...] | None", output: Output
) -> None:
    """Write a plan; say so if another run has written the file since ``before``."""
    from planner.files.disk import version_of

    if version_of(target) != before:
        output.remark(f"warning: another run wrote {target} meanwhile; its plan is overwritten")
    planned.save(target)


def _planning(
    source: "str | Workload",
    besides: "Mapping[str, Any] | None",
    settings: "Settings",
    grouping: "Grouping | None",
    *,
    gpus: int | None,
    nodes: int | None,
) -> "Callable[[Search], Planned]":
    """Return how a search makes a plan for a workload."""
    from planner.search.baseline import DEFAULT_BASELINE
    from planner.verbs.planning import plan

    if gpus is None:
        raise click.MissingParameter(param_hint="'--gpus'", param_type="option")
    num_nodes = profile_and_nodes(settings, gpus, nodes)

    def find(search: "Search") -> "Planned":
        planned = plan(
            source,
            gpus=gpus,
            nodes=num_nodes,
            hardware=settings.hardware,
            sharder=settings.sharder,
            baseline=settings.baseline or DEFAULT_BASELINE,
            replica_group=grouping,
            search=search,
        )
        return replace(planned, torchrec=besides)

    return find


def _grouping(size: Any, **averaging: Any) -> "Grouping | None":  # noqa: ANN401 - of options
    """Return what is asked of groups of GPUs, of averaging no more than that; None: nothing is."""
    from costmodel.domain.replica_groups import ShardingStrategy
    from planner.verbs.grouping import Grouping

    if size is None:
        refuse_averaging(**dict.fromkeys(averaging, True))
        return None
    strategy = ShardingStrategy(averaging.pop("sharding_strategy", ShardingStrategy.DEFAULT))
    return Grouping(group_size=size, sharding_strategy=strategy, **averaging)


def _averaged(topology: "Topology", averaging: "Mapping[str, Any]") -> "Topology":
    """Return a plan's topology with its groups' replicas averaged as asked, if that is.

    Raises
    ------
    click.UsageError
        There is one group, or its ranks would be others, or it cannot be averaged so.

    """
    asked, now = dict(averaging), topology.replicas
    if now is None:
        given = dict.fromkeys(asked, True)
        refuse_given("a plan of groups", "all ranks of this one are one group", **given)
        return topology
    placed = asked.pop(PLACE, now.use_inter_host_allreduce)
    if placed != now.use_inter_host_allreduce:
        refuse_given("a workload", "--from keeps the ranks of the plan's groups", **{PLACE: True})
    try:
        return replace(topology, replicas=replace(now, **asked))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _again(
    path: str, settings: "Settings", averaging: "Mapping[str, Any]"
) -> "Callable[[Search], Planned]":
    """Return how a search makes a plan from a plan file's, on that file's machine."""
    from planner.files.plans import load_plan_file, planned_topology
    from planner.search.baseline import START
    from planner.verbs.planning import plan_from

    file = load_plan_file(path)
    topology = _averaged(planned_topology(file), averaging)

    def find(search: "Search") -> "Planned":
        planned = plan_from(
            file.plan,
            file.workload,
            topology,
            search,
            sharder=settings.sharder,
            baseline=settings.baseline or START,
            hardware_name=file.hardware,
        )
        return replace(planned, torchrec=file.torchrec)

    return find


def _show(planned: "Planned", target: str | None, output: Output) -> None:
    """Print the report; to stderr if the plan itself goes to stdout."""
    if output.json:
        if target != "-":
            from planner.views.report_data import report_data

            output.data(report_data(planned.report))
        return
    from planner.views.report_text import report_text

    if target != "-" or not output.quiet:
        file = sys.stderr if target == "-" else None
        output.lines(lambda width: report_text(planned.report, width), file)


def _last_lines(planned: "Planned", target: str, seconds: float) -> str:
    """Return the two lines below a plan: how it was found, and which commands come next."""
    from planner.show.format import count

    search = planned.report.search
    how = "no search"
    if search is not None:
        name = search.sharder
        if search.requested != name:
            name = f"{search.requested}: {name} won"
        how = f"{name}, {count(search.evaluated, 'plan')}, seed {search.seed}"
        how += _early(search.end)
        if search.proof is not None and search.proof.gap is not None:
            how += f", gap of its own objective {search.proof.gap:.1%}"
    if target == "-":
        return f"\nPlanned in {seconds:.1f} s ({how})"
    file = shlex.quote(target)
    then = f"simulate {file} --trace trace.json"
    if planned.torchrec is not None:
        then = f"torchrec export {file}"
    return (
        f"\nWrote {target} in {seconds:.1f} s ({how})\n"
        f"Next: planner explain {file}        planner {then}"
    )


def _early(end: str | None) -> str:
    """Say why a search ended though it had time, if it did."""
    from planner.search.search import SearchEnd

    if end == SearchEnd.BOUND:
        return ", ended early: near enough to the bound (`--gap`)"
    if end == SearchEnd.INTERRUPTED:
        return ", interrupted"
    return ", ended early: no more was gained for a while" if end == SearchEnd.QUIET else ""


def _late(planned: "Planned", seconds: float, limit: float | None) -> str:
    """Say why a command took longer than its limit, if it did."""
    from planner.search.stages import may_take

    search = planned.report.search
    if search is None or limit is None or seconds <= may_take(limit):
        return ""
    from planner.show.format import count

    unit = planned.topology.hardware.device.unit
    first = f"{search.first_plan:.1f} s until there was a plan, reading included"
    return (
        f"\nLonger than the limit of {limit:g} s: {count(len(planned.plan.tables), 'table')} on "
        f"{count(planned.report.num_ranks, unit)} took {first}; a busy machine takes longer"
    )
