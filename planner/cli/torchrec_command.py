"""``planner torchrec``: ``export``, ``import``, ``read-stats`` and ``stats``."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.pages import check_stdout
from planner.cli.shared_options import (
    COUNT,
    GPUS,
    ModelTold,
    factory_option,
    hardware_option,
    model_options,
    nodes_option,
    output_options,
    profile_and_nodes,
    told_of_model,
)
from planner.cli.values import FILE, WEIGHTS, WRITTEN
from planner.show.output import Output

if TYPE_CHECKING:
    from costmodel.domain.hardware import Topology
    from costmodel.domain.workload import Workload
    from planner.files.plans import PlanFile
    from planner.planned.planned import Planned

STREAM = "-"
MOST_ON_A_HOST = 16
"""GPUs of the largest hosts there are; a node of more is a domain of several (NVL72)."""
_DATA_TYPE = click.Choice(WEIGHTS)


@click.group("torchrec", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Carry plans into a TorchRec training script and back, with nothing lost."""


@command.command("export", short_help="Write a plan that a training script loads.")
@click.argument("plan", metavar="PLAN", type=FILE)
@click.option(
    "-o", "--output", "target", metavar="FILE", type=WRITTEN, help="PLAN with `.pt` unless given."
)
@click.option(
    "--module",
    metavar="PATH",
    help="The module that all tables are in, as in `sparse_arch.embedding_bag_collection`.",
)
@factory_option("Instead: a function that returns the model (meta device will do).")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where the job runs.")
@click.option(
    "--gpus-per-host",
    metavar="N",
    type=COUNT,
    help="Where a node is an NVLink domain of several hosts (NVL72: 4).",
)
@output_options
def export_command(
    plan: str,
    *,
    target: str | None,
    module: str | None,
    factory: str | None,
    device: str | None,
    gpus_per_host: int | None,
    output: Output,
) -> None:
    """Write the PLAN of a plan file for a training script, which loads it without the planner:

    \b
    plan = torch.load("plan.pt", weights_only=False)
    model = DistributedModelParallel(model, plan=plan, sharders=sharders)

    A plan made with --replica-group goes into DMPCollection, with the arguments that are told.
    Plans made with --from-torchrec, or saved by IterationTimePlanner, know where in the model
    their tables live; for others say so. Needs torchrec.
    """  # noqa: D301, D400 - click's mark for lines to keep; a colon before the example
    if module is not None and factory is not None:
        raise click.UsageError("give either --module or --from-torchrec")
    from planner.files.plans import load_plan_file
    from planner.show.format import count
    from planner.torchrec import export_plan

    target = target or _beside(plan, ".pt")
    check_stdout({"`--output`": target, "`--json`": STREAM if output.json else None})
    file = load_plan_file(plan)
    maker, domains = _wrapper_call(file), _domains(file, gpus_per_host)
    made = export_plan(
        plan,
        target,
        module=module,
        factory=factory,
        device=device,
        gpus_per_host=gpus_per_host,
        file=file,
    )
    tables = {path: len(shardings) for path, shardings in made.plan.items()}
    if output.json:
        output.data({"file": target, "num_tables": tables, "model": maker})
    where = ", ".join(f"{count(number, 'table')} of `{path}`" for path, number in tables.items())
    output.remark(
        f"Wrote {target}: {where}\n"
        "In the training script:\n"
        f'  plan = torch.load("{target}", weights_only=False)\n'
        f"  model = {maker}{domains}"
    )


def _domains(file: "PlanFile", gpus_per_host: int | None) -> str:
    """Return what a job must know whose nodes are NVLink domains of several hosts, as a line."""
    from planner.torchrec.topology import RESOLVED_POD_SIZE

    plan = file.plan
    node = plan.local_world_size
    host = gpus_per_host or (file.torchrec or {}).get("local_world_size") or node
    if file.replicas is not None and gpus_per_host is not None:
        raise click.UsageError("--gpus-per-host goes with plans without --replica-group")
    if node % host:
        raise click.UsageError(f"--gpus-per-host {host} does not divide a node's {node} GPUs")
    if file.replicas is not None:
        return ""  # node_group_size says it
    if host > MOST_ON_A_HOST:
        return f"\nNodes have {node} GPUs; where hosts have fewer, give --gpus-per-host."
    if node == host or not any(each.sharding_type.within_node for each in plan.tables):
        return ""
    return f"\nIn the environment of all ranks: {RESOLVED_POD_SIZE}={node // host}"


def _wrapper_call(file: "PlanFile") -> str:
    """Return the line of a training script that gives the plan to torchrec."""
    plan, replicas = file.plan, file.replicas
    if replicas is None:
        return "DistributedModelParallel(model, plan=plan, sharders=sharders)"
    return (
        "DMPCollection(model, plan=plan, sharders=sharders, device=device, global_pg=pg, "
        f"world_size={plan.world_size * replicas.num_groups}, "
        f"sharding_group_size={plan.world_size}, node_group_size={plan.local_world_size}, "
        f"use_inter_host_allreduce={replicas.use_inter_host_allreduce}, "
        f"sharding_strategy=ShardingStrategy.{replicas.sharding_strategy.name})"
    )


@command.command("import", short_help="Read the plan of a training script.")
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "-o", "--output", "target", metavar="PLAN", type=WRITTEN, help="FILE with `.json` unless given."
)
@click.option("--workload", metavar="FILE", type=FILE, help="The workload that the plan is for.")
@factory_option("Instead: a function that returns the model.")
@click.option("--like", metavar="PLAN", type=FILE, help="Instead: a plan file for the same job.")
@model_options
@click.option("--gpus", type=GPUS, help="GPUs in all, unless --like has them.")
@nodes_option
@hardware_option
@output_options
def import_command(file: str, *, target: str | None, output: Output, **job: Any) -> None:  # noqa: ANN401
    """Read the TorchRec plan in FILE into a plan file, and predict its step.

    FILE is what a training script wrote, on rank 0, with

    \b
    torch.save(plan, "torchrec_plan.pt")

    where `plan` is the ShardingPlan of any TorchRec planner. It does not say how tables are read,
    on which machine: a workload, a model or another plan file does. Needs torchrec.
    """  # noqa: D301 - click's mark for lines to keep
    from planner.files.disk import check_writable
    from planner.torchrec import import_plan
    from planner.verbs.loading import judge

    target = target or _beside(file, ".json")
    check_writable(target)
    workload, topology, hardware = _job(told=told_of_model(job["factory"], job, output), **job)
    planned = judge(import_plan(file, workload, topology, hardware))
    _kept(planned, target, output, "planner compare {} OTHER")


def _kept(planned: "Planned", target: str, output: Output, next_command: str) -> None:
    """Write a plan, say what it is unless it goes to standard output, and what may come next.

    ``next_command``: with ``{}`` for the plan file.
    """
    from planner.views.report_data import report_data
    from planner.views.report_text import report_text

    planned.save(target)
    if output.json and target != STREAM:
        output.data(report_data(planned.report))
    elif target != STREAM:
        output.lines(lambda width: report_text(planned.report, width))
    made = shlex.quote(target)
    output.remark(
        f"\nWrote {target}\nNext: planner explain {made}        {next_command.format(made)}"
    )


@command.command("read-stats", short_help="Read the plan in a job's log.")
@click.argument("log", metavar="LOG", type=FILE)
@click.option(
    "-o", "--output", "target", metavar="PLAN", type=WRITTEN, help="LOG with `.json` unless given."
)
@hardware_option
@nodes_option
@click.option("--data-type", type=_DATA_TYPE, help="Of weights, unless sizes tell.")
@click.option("--output-type", type=_DATA_TYPE, help="Of looked-up embeddings [default: the same].")
@output_options
def read_stats_command(
    log: str,
    *,
    target: str | None,
    hardware: str | None,
    nodes: int | None,
    output: Output,
    **types: str | None,
) -> None:
    """Make a plan file of the planner statistics that TorchRec printed into a LOG (- is stdin).

    The printout has tables, ranks and memory; what it does not say is named. A log may be gzipped,
    have prefixes, and wrap lines; of several printouts the last is read. Needs no torchrec.
    """
    from costmodel.domain.workload import DataType
    from planner.environment.settings import DEFAULT, resolve
    from planner.files.disk import check_writable
    from planner.files.profiles import load_profile
    from planner.torchrec.printed_plan import printed_plan
    from planner.torchrec.printed_statistics import read_statistics
    from planner.verbs.loading import judge

    target = target or _beside(log, ".json")
    check_writable(target)
    settings = resolve({"hardware": hardware})
    stats = read_statistics(log)
    profile = load_profile(settings.hardware)
    if nodes is not None:
        profile_and_nodes(settings, stats.world_size, nodes)
    given = {name: DataType(each) for name, each in types.items() if each is not None}
    file, unsaid = printed_plan(stats, profile, settings.hardware, nodes=nodes, **given)
    planned = judge(file)
    assumed = settings.origins["hardware"] == DEFAULT
    notes = (*unsaid, *planned.report.notes)
    planned = replace(
        planned, report=replace(planned.report, notes=notes, hardware_assumed=assumed)
    )
    _kept(planned, target, output, "planner plan --from {}")


@command.command("stats", short_help="Print a plan as TorchRec's planner would.")
@click.argument("plan", metavar="PLAN", type=FILE)
@output_options
def stats_command(plan: str, *, output: Output) -> None:
    """Print the PLAN of a plan file as TorchRec's planner statistics, with our predictions in them.

    What TorchRec prints and nothing here predicts is left out. Needs no torchrec.
    """
    from planner.torchrec.printed_output import printed_lines
    from planner.verbs.loading import load_plan

    lines = printed_lines(load_plan(plan))
    if output.json:
        output.data({"lines": lines})
    else:
        click.echo("\n".join(lines))


def _job(
    *,
    workload: str | None,
    factory: str | None,
    like: str | None,
    told: ModelTold,
    gpus: int | None,
    nodes: int | None,
    hardware: str | None,
) -> "tuple[Workload, Topology, str]":
    """Return what a TorchRec plan does not say: the workload, the ranks and the hardware."""
    if sum(given is not None for given in (workload, factory, like)) != 1:
        raise click.UsageError("give one of --workload, --from-torchrec and --like")
    if like is not None:
        return _of_plan(like, gpus, nodes, hardware)
    if gpus is None:
        raise click.UsageError("Missing option '--gpus'.")
    return _read(workload, factory, told), *_machine(gpus, nodes, hardware)


def _read(path: str | None, factory: str | None, told: ModelTold) -> "Workload":
    """Return the workload of a factory's model, or else of a file."""
    if factory is not None:
        from planner.torchrec import read_factory

        workload: Workload = read_factory(factory, **told)[0]
        return workload
    from planner.files.workload_reading import load_workload

    return load_workload(path or STREAM)


def _of_plan(
    path: str, gpus: int | None, nodes: int | None, hardware: str | None
) -> "tuple[Workload, Topology, str]":
    """Return a plan file's workload, with the topology and profile that it or the flags name."""
    from planner.files.plans import load_plan_file

    like = load_plan_file(path)
    ranks = like.plan.world_size
    if nodes is None and gpus in {None, ranks}:
        nodes = ranks // like.plan.local_world_size
    return like.workload, *_machine(gpus or ranks, nodes, hardware or like.hardware)


def _machine(gpus: int, nodes: int | None, hardware: str | None) -> "tuple[Topology, str]":
    from planner.environment.settings import resolve
    from planner.files.profiles import load_profile
    from planner.verbs.topologies import make_topology

    settings = resolve({"hardware": hardware})
    nodes = profile_and_nodes(settings, gpus, nodes)
    return make_topology(load_profile(settings.hardware), gpus, nodes), settings.hardware


def _beside(path: str, suffix: str) -> str:
    """Return a path with another suffix; standard output stays."""
    from planner.files.disk import file_error

    if path == STREAM:
        return STREAM
    if not Path(path).name:  # as of `/`
        raise file_error(path, "this is a directory, not a file")
    return str(Path(path).with_suffix(suffix))
