"""Where no plan fits: what the same search finds if something is changed."""

from collections.abc import Iterator
from dataclasses import replace

from costmodel.base.errors import InfeasibleError, PlannerError
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import memory_per_rank, usable_bytes
from costmodel.uncertainty.step_samples import sample_steps
from planner.planning.search import Search, run_sharders
from planner.show.format import duration, percent
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
        ("UVM", _uvm(workload, topology)),
        ("fp16", _fp16(workload, topology)),
    ]


def _more_gpus(workload: Workload, topology: Topology) -> Iterator[Variant]:
    gpus, per_node = topology.world_size, topology.hardware.gpus_per_node
    while gpus < MOST_TIMES * topology.world_size:
        gpus *= 2
        local = min(gpus, max(per_node, topology.local_world_size))
        if gpus % local:
            return
        nodes = f" --nodes {gpus // local}" if gpus > local else ""
        larger = replace(topology, world_size=gpus, local_world_size=local)
        yield f"--gpus {gpus}{nodes}", workload, larger


def _uvm(workload: Workload, topology: Topology) -> Iterator[Variant]:
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)
    tables = tuple(
        table if table.compute_kernels else replace(table, compute_kernels=kernels)
        for table in workload.tables
    )
    if tables != workload.tables:
        text = f"compute_kernels: [{', '.join(kernels)}]"
        yield text, replace(workload, tables=tables), topology


def _fp16(workload: Workload, topology: Topology) -> Iterator[Variant]:
    halved = in_fp16(workload)
    if halved.tables != workload.tables:
        yield "data_type: fp16", halved, topology


def in_fp16(workload: Workload) -> Workload:
    """Return a workload whose FP32 tables are FP16."""
    tables = tuple(
        replace(table, data_type=DataType.FP16) if table.data_type is DataType.FP32 else table
        for table in workload.tables
    )
    return replace(workload, tables=tables)


def _effect(workload: Workload, topology: Topology, search: Search) -> str | None:
    """Return what a search finds: its expected step, and how full the fullest GPU is."""
    try:
        problem = ShardingProblem(
            workload=workload, topology=topology, objective=Objective(workload, topology)
        )
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
    cached = f", {len(hosted)} of {len(workload.tables)} tables cached" if hosted else ""
    return f"a plan of {duration(expected)}, the fullest GPU to {full}{cached}"
