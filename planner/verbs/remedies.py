"""Where no plan fits: the smallest change of each kind with which a plan is found."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from costmodel.base.errors import InfeasibleError, PlannerError
from costmodel.base.limits import MOST_RANKS
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Workload
from costmodel.memory.rank_memory import fits, least_table_bytes, memory_per_rank, usable_bytes
from costmodel.uncertainty.step_samples import sample_steps
from planner.search.running import run_sharders
from planner.search.search import Search
from planner.show.format import count, duration, percent
from planner.verbs.topologies import node_count
from sharders.problem.packing import ROUND, WAY, PackingSearch
from sharders.problem.placement import place_by_bytes
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import ShardingProblem

SHARDERS = ("size_greedy", "size_lookup_greedy", "lp", "annealing")
SEARCH_TIME: Seconds = 1.5
"""To find a change at most, and to search with it, if the limit leaves as much for all of them."""
LEAST_TIME: Seconds = 0.3
"""To find each, whatever the limit leaves; mostly it takes a hundredth."""
MOST_TIMES = 16
"""GPUs at most, as a multiple of those asked for."""
MOST_HALVINGS = 4
"""A batch smaller by more than 2 ** 4 is another training run, not a remedy."""
MOST_NAMED = 4
"""Tables of a change that are named; of more it is said how many of the largest they are."""
PACKING_EFFORT = 1000 * ROUND
"""What packing may take for a try, in moves of annealing, where placing tables by size fails."""
NUM_WAYS = 48
"""In how many ways packing places all tables by size, at most."""
_KERNELS = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A change: what to write, for which tables, and what is then planned."""

    name: str
    workload: Workload
    topology: Topology
    tables: str = ""
    """``for a and b``; empty: it is none of some tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A kind of change, from the smallest to the largest."""

    steps: int
    """How many changes there are."""
    make: Callable[[int], Variant]
    """Makes one, from the smallest (0) on."""
    grows: bool = True
    """Whether a larger change always does where a smaller one does."""
    last_resort: bool = False
    """Whether it is two changes in one, for where no single one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The smallest change with which a plan was found."""

    variant: Variant
    plan: ShardingPlan
    is_smallest: bool
    """Whether there was time to try the next smaller one, and it has none."""


Grown: TypeAlias = Callable[[Topology, int], Topology]
"""Returns a topology with more GPUs in all; ValueError if they cannot be spread."""


def with_searched(
    error: InfeasibleError, workload: Workload, topology: Topology, search: Search, grown: Grown
) -> InfeasibleError:
    """Return an error with the remedies that a search found a plan with, the smallest of each kind.

    ``grown``: what the machine is with more GPUs.
    """
    deadline = search.clock() + search.time_limit
    if search.began is not None:
        deadline = search.began + search.time_limit
    found: list[Found] = []
    for scale in (*scales(workload, topology, grown), *last_resorts(workload, topology, grown)):
        if search.interrupted() or (found and scale.last_resort):
            break
        left = min(SEARCH_TIME, deadline - search.clock())
        made = smallest(scale, _watch(search, search.clock() + max(LEAST_TIME, left)))
        found += [] if made is None else [made]
    remedies = []
    for number, each in enumerate(found):
        left = (deadline - search.clock()) / (len(found) - number)
        own = replace(search, time_limit=max(0.0, min(SEARCH_TIME, left)), began=None)
        remedies.append((each.variant.name, _effect(each, own)))
    return replace(error, remedies=tuple(remedies))


def _watch(search: Search, until: Seconds) -> Callable[[], bool]:
    """Return what tells whether a time is over; where plans are counted, nothing looks at it."""
    return lambda: search.max_plans is None and search.clock() > until


def scales(workload: Workload, topology: Topology, grown: Grown) -> Iterator[Scale]:
    """Yield every kind of change that could be one for a workload and machine."""
    yield _more_gpus(workload, topology, grown)
    if workload.pipeline is Pipeline.DLRM:
        split = replace(workload, pipeline=Pipeline.SPARSE_DIST)
        variant = Variant(name="pipeline: sparse_dist", workload=split, topology=topology)
        yield Scale(steps=1, make=lambda _: variant)

    def of_tables(name: str, change: Callable[[EmbeddingTable], EmbeddingTable]) -> Scale:
        return _of_tables(name, change, workload, topology)

    yield of_tables("ranks: []", lambda table: replace(table, ranks=()))
    yield of_tables("sharding_types: []", lambda table: replace(table, sharding_types=()))
    if topology.hardware.device is not Device.CPU:
        yield of_tables(f"compute_kernels: [{', '.join(_KERNELS)}]", _cached)
    yield of_tables("data_type: fp16", _halved)
    yield _smaller_batch(workload, topology)


def last_resorts(workload: Workload, topology: Topology, grown: Grown) -> Iterator[Scale]:
    """Yield what may do where no single change does: any sharding type, and more GPUs."""
    free = tuple(replace(table, sharding_types=()) for table in workload.tables)
    if free != workload.tables:
        freed = replace(workload, tables=free)
        scale = _more_gpus(freed, topology, grown, "sharding_types: [], ")
        yield replace(scale, last_resort=True)


def smallest(scale: Scale, is_spent: Callable[[], bool]) -> Found | None:
    """Return the smallest change with which a plan is found; None: none is, or no time is left.

    Changes are tried ever further apart until one does, and then halfway between it and the last
    that does not: the next smaller one of the change returned has no plan, if time allows.
    """
    if not scale.steps:
        return None
    if scale.grows and scale.steps > 1 and _plan(scale.make(scale.steps - 1), is_spent) is None:
        return None
    fails, tried = -1, 0
    plan = _plan(scale.make(0), is_spent)
    while plan is None:
        if tried == scale.steps - 1 or is_spent():
            return None
        fails, tried = tried, min(2 * tried + 1, scale.steps - 1)
        plan = _plan(scale.make(tried), is_spent)
    does = tried
    while does - fails > 1 and not is_spent():
        halfway = (does + fails) // 2
        smaller = _plan(scale.make(halfway), is_spent)
        if smaller is None:
            fails = halfway
        else:
            does, plan = halfway, smaller
    return Found(variant=scale.make(does), plan=plan, is_smallest=does - fails == 1)


def _plan(variant: Variant, is_spent: Callable[[], bool]) -> ShardingPlan | None:
    """Return a plan that fits; None if none is found with little effort."""
    try:
        problem = ShardingProblem.of(variant.workload, variant.topology)
        check_room(problem)
    except (PlannerError, ValueError):
        return None
    anything = np.zeros(len(problem.option_arrays.total_bytes), dtype=bool)
    packing = PackingSearch(problem, anything)
    by_size = NUM_WAYS * WAY * len(variant.workload.tables)
    plan = packing.go_on(by_size, lambda: False) or place_by_bytes(problem)
    if plan is None and not is_spent():
        plan = packing.go_on(PACKING_EFFORT, is_spent)
    fitting = plan is not None and fits(variant.workload, variant.topology, plan)
    return plan if fitting else None


def _more_gpus(workload: Workload, topology: Topology, grown: Grown, beside: str = "") -> Scale:
    most = MOST_TIMES * topology.world_size
    larger: list[Topology] = []
    for number in range(topology.world_size + 1, min(most, MOST_RANKS) + 1):
        with suppress(ValueError):
            larger.append(grown(topology, number))

    def make(step: int) -> Variant:
        ranks = larger[step]
        nodes = f" --nodes {ranks.num_nodes}" if ranks.num_nodes > 1 else ""
        name = f"{beside}--gpus {ranks.world_size}{nodes}"
        return Variant(name=name, workload=workload, topology=ranks)

    return Scale(steps=len(larger), make=make, grows=False)


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


def _of_tables(
    name: str,
    change: Callable[[EmbeddingTable], EmbeddingTable],
    workload: Workload,
    topology: Topology,
) -> Scale:
    """Return the change of one table, of two, and so on, those first that take most memory."""
    sizes = {each.name: least_table_bytes(workload, topology, each) for each in workload.tables}
    changed = {each.name: other for each in workload.tables if (other := change(each)) != each}
    order = sorted(changed, key=lambda each: -sizes[each])

    def make(step: int) -> Variant:
        some = set(order[: step + 1])
        tables = (changed[each.name] if each.name in some else each for each in workload.tables)
        return Variant(
            name=name,
            workload=replace(workload, tables=tuple(tables)),
            topology=topology,
            tables=_named(order[: step + 1]),
        )

    return Scale(steps=len(order), make=make)


def _named(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"for the {len(names)} largest that it changes"
    return f"for {' and '.join((', '.join(names[:-1]), names[-1])) if len(names) > 1 else names[0]}"


def _smaller_batch(workload: Workload, topology: Topology) -> Scale:
    halvings = range(1, MOST_HALVINGS + 1)
    batches = [size for each in halvings if (size := workload.local_batch_size >> each)]

    def make(step: int) -> Variant:
        name, smaller = f"local_batch_size: {batches[step]}", batches[step]
        changed = replace(workload, local_batch_size=smaller)
        return Variant(name=name, workload=changed, topology=topology)

    return Scale(steps=len(batches), make=make)


def _cached(table: EmbeddingTable) -> EmbeddingTable:
    """Return a table that may be in host memory, unless it says where it is to be."""
    copied = table.sharding_types == (ShardingType.DATA_PARALLEL,)
    return table if table.compute_kernels or copied else replace(table, compute_kernels=_KERNELS)


def _halved(table: EmbeddingTable) -> EmbeddingTable:
    is_whole = table.data_type is DataType.FP32
    return replace(table, data_type=DataType.FP16) if is_whole else table


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


def _effect(found: Found, search: Search) -> str:
    """Return what a search finds: its expected step, and how full the fullest GPU is.

    Where no time is left, that is of the plan that it was found with, whose step is none too short.
    """
    workload, topology, plan = found.variant.workload, found.variant.topology, found.plan
    if search.time_limit > 0 and not search.interrupted():
        with suppress(PlannerError):
            attempts = run_sharders(SHARDERS, ShardingProblem.of(workload, topology), search)
            made = (each for each in attempts if each.plan)
            plan = min(made, key=lambda each: each.step_time).found
    expected = sample_steps(workload, topology, (plan,)).mean()
    held = max(rank.tables for rank in memory_per_rank(workload, topology, plan))
    full = percent(held / usable_bytes(workload, topology))
    hosted = sum(
        sharding.compute_kernel is ComputeKernel.FUSED_UVM_CACHING for sharding in plan.tables
    )
    cached = f", {hosted} of {count(len(workload.tables), 'table')} cached" if hosted else ""
    unit = topology.hardware.device.unit
    tables = f"{found.variant.tables}: " if found.variant.tables else ""
    untried = "" if found.is_smallest else "; less may do, which was not tried"
    return f"{tables}a plan of {duration(expected)}, the fullest {unit} to {full}{cached}{untried}"
