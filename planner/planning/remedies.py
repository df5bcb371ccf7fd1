"""Where no plan fits: what the same search finds if something is changed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from costmodel.base.errors import InfeasibleError, PlannerError
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Workload
from costmodel.memory.rank_memory import memory_per_rank, usable_bytes
from costmodel.uncertainty.step_samples import sample_steps
from planner.planning.api import node_count
from planner.planning.running import run_sharders
from planner.planning.search import Search
from planner.show.format import count, duration, percent
from sharders.problem.sharding_problem import ShardingProblem

SHARDERS = ("size_greedy", "size_lookup_greedy", "lp", "annealing")
SEARCH_TIME: Seconds = 1.5
"""For each change, if the limit leaves as much for all of them."""
MOST_TIMES = 16
"""GPUs at most, as a multiple of those asked for."""
_SEARCHED = ("--gpus", "compute_kernels")
"""How the remedies begin that are searched for here, and guessed from sums of bytes elsewhere."""


def with_searched(
    error: InfeasibleError, problem: ShardingProblem, search: Search
) -> InfeasibleError:
    """Return an error whose remedies were searched for, beside those that cannot be.

    A remedy that the search finds no plan with is left out.
    """
    deadline = search.clock() + search.time_limit
    if search.began is not None:
        deadline = search.began + search.time_limit
    found: list[tuple[str, str]] = []
    changes = _changes(problem.workload, problem.topology)
    for number, (change, variants) in enumerate(changes):
        left = max(0.0, deadline - search.clock()) / (len(changes) - number)
        until = search.clock() + min(SEARCH_TIME, left)
        for name, workload, topology in variants:
            if search.interrupted() or (found and search.clock() > deadline):
                break
            own = replace(search, time_limit=max(0.1, until - search.clock()), began=None)
            effect = _effect(workload, topology, own)
            if effect is not None:
                found.append((name or change, effect))
                break
    if not found:
        return error
    kept = [each for each in error.remedies if not each[0].startswith(_SEARCHED)]
    return replace(error, remedies=(*found, *kept))


Variant = tuple[str, Workload, Topology]
"""What to write, and what is then planned."""


def _changes(workload: Workload, topology: Topology) -> list[tuple[str, Iterator[Variant]]]:
    """Return every kind of change with its variants, of which the first that fits is enough."""
    return [
        ("GPUs", _more_gpus(workload, topology)),
        ("types", _any_type(workload, topology)),
        ("UVM", _uvm(workload, topology)),
        ("fp16", _fp16(workload, topology)),
    ]


def _more_gpus(workload: Workload, topology: Topology) -> Iterator[Variant]:
    gpus = topology.world_size
    while gpus < MOST_TIMES * topology.world_size:
        gpus *= 2
        try:
            larger = on_gpus(topology, gpus)
        except ValueError:
            return
        nodes = f" --nodes {larger.num_nodes}" if larger.num_nodes > 1 else ""
        yield f"--gpus {gpus}{nodes}", workload, larger


def on_gpus(topology: Topology, gpus: int) -> Topology:
    """Return a topology with so many GPUs in all, on as few of its nodes as hold them.

    Several nodes show how many GPUs each has; a single one may have more than are used. Where ranks
    have different memory, all have that of the poorest.

    Raises
    ------
    ValueError
        They cannot be spread evenly, or are too many.

    """
    hardware, local = topology.hardware, topology.local_world_size
    per_node = local if topology.num_nodes > 1 else max(hardware.gpus_per_node, local)
    nodes = node_count(gpus, None, replace(hardware, gpus_per_node=per_node))
    withheld = (max(topology.withheld_bytes),) * gpus if topology.withheld_bytes else ()
    return replace(
        topology, world_size=gpus, local_world_size=gpus // nodes, withheld_bytes=withheld
    )


def _any_type(workload: Workload, topology: Topology) -> Iterator[Variant]:
    tables = tuple(replace(table, sharding_types=()) for table in workload.tables)
    if tables != workload.tables:
        yield "sharding_types: []", replace(workload, tables=tables), topology


def _uvm(workload: Workload, topology: Topology) -> Iterator[Variant]:
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)
    tables = tuple(
        table if table.compute_kernels else replace(table, compute_kernels=kernels)
        for table in workload.tables
    )
    if tables != workload.tables and topology.hardware.device is not Device.CPU:
        text = f"compute_kernels: [{', '.join(kernels)}]"
        yield text, replace(workload, tables=tables), topology


def _fp16(workload: Workload, topology: Topology) -> Iterator[Variant]:
    halved = in_fp16(workload)
    if halved.tables != workload.tables:
        yield "data_type: fp16", halved, topology


def in_fp16(workload: Workload) -> Workload:
    """Return a workload whose FP32 tables are FP16."""
    return in_type(workload, DataType.FP16, (DataType.FP32,))


def in_type(workload: Workload, data_type: DataType, those: Sequence[DataType]) -> Workload:
    """Return a workload whose tables of some types are of another."""
    tables = tuple(
        replace(table, data_type=data_type) if table.data_type in those else table
        for table in workload.tables
    )
    return replace(workload, tables=tables)


def _effect(workload: Workload, topology: Topology, search: Search) -> str | None:
    """Return what a search finds: its expected step, and how full the fullest GPU is."""
    try:
        problem = ShardingProblem.of(workload, topology)
        attempts = run_sharders(SHARDERS, problem, search)
    except (PlannerError, ValueError):
        return None
    best = min(attempts, key=lambda attempt: attempt.step_time)
    if best.plan is None:
        return None
    expected = sample_steps(workload, topology, (best.plan,)).mean()
    held = max(rank.tables for rank in memory_per_rank(workload, topology, best.plan))
    full = percent(held / usable_bytes(workload, topology))
    hosted = [
        sharding.table
        for sharding in best.plan.tables
        if sharding.compute_kernel is ComputeKernel.FUSED_UVM_CACHING
    ]
    cached = f", {len(hosted)} of {count(len(workload.tables), 'table')} cached" if hosted else ""
    unit = topology.hardware.device.unit
    return f"a plan of {duration(expected)}, the fullest {unit} to {full}{cached}"
