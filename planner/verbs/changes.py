"""Changes of a workload or machine that may make tables fit, by kind, the smallest first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import TypeAlias

from costmodel.base.limits import MOST_RANKS
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Workload
from costmodel.memory.rank_memory import (
    Place,
    host_bytes_needed,
    host_bytes_usable,
    least_ranks,
    least_table_bytes,
)
from planner.show.format import count
from planner.verbs.topologies import node_count

MOST_TIMES = 16
"""Largest multiple of the asked number of nodes that is tried."""
LEAST_SHARE = 1 / 16
"""Smallest share of the asked batch that is tried: a smaller batch is another training run."""
MOST_NAMED = 4
"""Largest number of tables of a change that are named without their number; of more, the message
says how many of the largest it changes."""
MOST_LISTED = 12
"""Largest number of those that are named; of more, the first and the last are."""
MOST_DROPPED = 64
"""Number of tables of a change that are each tried without it, the smallest first."""
_KERNELS = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)

Grown: TypeAlias = Callable[[Topology, int, int], Topology]
"""Returns a topology with other numbers of GPUs in all and of nodes."""
Refit: TypeAlias = Callable[[Workload, Topology], Topology]
"""Returns a topology as it is for another workload."""


def on_gpus(topology: Topology, gpus: int, nodes: int | None = None) -> Topology:
    """Return a topology with so many GPUs in all; ``nodes`` None: on as few nodes as hold them.

    Where ranks have different memory, all have that of the poorest.

    Raises
    ------
    ValueError
        They cannot be spread evenly, or are too many.

    """
    hardware = replace(topology.hardware, gpus_per_node=node_size(topology))
    num_nodes = node_count(gpus, nodes, hardware)
    withheld = (max(topology.withheld_bytes),) * gpus if topology.withheld_bytes else ()
    return replace(
        topology, world_size=gpus, local_world_size=gpus // num_nodes, withheld_bytes=withheld
    )


def node_size(topology: Topology) -> int:
    """Return the number of GPUs of a node.

    With several nodes it is what they have; a single one may have more than are used.
    """
    local = topology.local_world_size
    return local if topology.num_nodes > 1 else max(topology.hardware.gpus_per_node, local)


def _as_it_is(workload: Workload, topology: Topology) -> Topology:
    del workload
    return topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload and its machine, and functions that change the machine."""

    workload: Workload
    topology: Topology
    grown: Grown = on_gpus
    refit: Refit = _as_it_is
    """Returns the machine for another workload."""

    def of(self, workload: Workload) -> "Case":
        """Return the case of another workload."""
        return replace(self, workload=workload, topology=self.refit(workload, self.topology))

    def on(self, gpus: int, nodes: int) -> "Case":
        """Return the case with other numbers of GPUs in all and of nodes."""
        return replace(self, topology=self.grown(self.topology, gpus, nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A change: how it is written, and the case with it."""

    name: str
    apply: Callable[[Case], Case]
    tables: str = ""
    """Its tables, as ``for a and b``; empty if it changes no single tables."""
    label: str = ""
    """What it does, in a few words; empty: its name says so."""


def _none(step: int) -> None:
    """Return None: there are no finer changes."""
    del step


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Changes of one kind, from the smallest to the largest."""

    steps: int
    """Number of changes."""
    make: Callable[[int], Variant]
    """Returns the change of a number, 0 being the smallest."""
    grows: bool = True
    """Whether every larger change makes tables fit if a smaller one does."""
    finer: Callable[[int], "Scale | None"] = _none
    """Returns smaller changes than that of a number, the last of them being that change; None:
    there are none."""


Kind: TypeAlias = Callable[[Case], Scale]


def _nothing_to_do(step: int) -> Variant:
    raise ValueError(f"a scale of no changes has no {step}")


_NOTHING = Scale(steps=0, make=_nothing_to_do)


def larger_machine(case: Case) -> Scale:
    """Return the scale of ever more full nodes, then of fewer GPUs on as many nodes.

    There are no fewer GPUs than were asked for, nor fewer than the sum of bytes needs.
    """
    topology, most = case.topology, node_size(case.topology)
    if topology.replicas is not None:
        return _NOTHING  # more ranks are more groups, and larger ones another question
    enough = ceil(min(least_ranks(case.workload, topology), MOST_RANKS + 1) / most)
    first = max(topology.num_nodes, enough, _least_nodes(case))

    def sizes(nodes: int) -> range:
        least = -(-topology.world_size // nodes)
        return range(least + (nodes == topology.num_nodes), most + 1)

    def on_nodes(nodes: int, per_node: Sequence[int]) -> Scale:
        return Scale(steps=len(per_node), make=lambda step: _machine(nodes * per_node[step], nodes))

    last = min(MOST_TIMES * topology.num_nodes, MOST_RANKS // most)
    first = min(first, max(last, topology.num_nodes))
    numbers = [each for each in range(first, last + 1) if sizes(each)]
    return Scale(
        steps=len(numbers),
        make=lambda step: _machine(numbers[step] * most, numbers[step]),
        grows=False,
        finer=lambda step: on_nodes(numbers[step], sizes(numbers[step])),
    )


def more_nodes(case: Case) -> Scale:
    """Return the scale of ever more nodes with as many GPUs in all."""
    gpus, nodes = case.topology.world_size, case.topology.num_nodes
    if case.topology.replicas is not None or least_ranks(case.workload, case.topology) > gpus:
        return _NOTHING
    first = max(nodes + 1, min(_least_nodes(case), gpus))
    numbers = [each for each in range(first, gpus + 1) if gpus % each == 0]
    return Scale(steps=len(numbers), make=lambda step: _machine(gpus, numbers[step]), grows=False)


def _least_nodes(case: Case) -> int:
    """Return how many full nodes have the memory for what can only be in hosts'."""
    nodes = case.topology.num_nodes
    full = case.on(node_size(case.topology) * nodes, nodes).topology
    return ceil(host_bytes_needed(case.workload) / max(1.0, host_bytes_usable(full)))


def _machine(gpus: int, nodes: int) -> Variant:
    several = f" --nodes {nodes}" if nodes > 1 else ""
    return Variant(name=f"--gpus {gpus}{several}", apply=lambda case: case.on(gpus, nodes))


def splitting_pipeline(case: Case) -> Scale:
    """Return the scale of one change: a pipeline that may split tables."""

    def apply(given: Case) -> Case:
        return given.of(replace(given.workload, pipeline=Pipeline.SPARSE_DIST))

    change = Variant(name="pipeline: sparse_dist", apply=apply, label="pipeline sparse_dist")
    return Scale(steps=int(case.workload.pipeline is Pipeline.DLRM), make=lambda _: change)


def free_ranks(case: Case) -> Scale:
    """Return the scale of tables that may be on any rank."""
    return _table_scale(
        case,
        "ranks: []",
        "on any rank",
        lambda table: replace(table, ranks=()) if table.ranks else table,
    )


def free_types(case: Case) -> Scale:
    """Return the scale of tables that may have any sharding type."""

    def change(table: EmbeddingTable) -> EmbeddingTable:
        return replace(table, sharding_types=()) if table.sharding_types else table

    return _table_scale(case, "sharding_types: []", "of any type", change)


def usual_caches(case: Case) -> Scale:
    """Return the scale of tables whose caches are at most of the usual size."""

    def change(table: EmbeddingTable) -> EmbeddingTable:
        usual = replace(table, cache_load_factor=None)
        return usual if usual.cache_share < table.cache_share else table

    return _table_scale(case, "cache_load_factor: null", "less cached", change)


def host_memory(case: Case) -> Scale:
    """Return the scale of tables that may be in host memory, unless their memory is given."""

    def change(table: EmbeddingTable) -> EmbeddingTable:
        copied = table.sharding_types == (ShardingType.DATA_PARALLEL,)
        is_told = bool(table.compute_kernels) or copied
        return table if is_told else replace(table, compute_kernels=_KERNELS)

    name = f"compute_kernels: [{', '.join(_KERNELS)}]"
    if case.topology.hardware.device is Device.CPU:
        return _table_scale(case, name, "", lambda table: table)
    return _table_scale(case, name, "cached", change)


def half_precision(case: Case) -> Scale:
    """Return the scale of FP32 tables that become FP16."""

    def change(table: EmbeddingTable) -> EmbeddingTable:
        is_whole = table.data_type is DataType.FP32
        return replace(table, data_type=DataType.FP16) if is_whole else table

    return _table_scale(case, "data_type: fp16", "in fp16", change)


def smaller_batch(case: Case) -> Scale:
    """Return the scale of smaller batches, with two significant digits."""
    batch = case.workload.local_batch_size
    sizes = [
        digits * 10**zeros
        for zeros in range(len(str(batch)))
        for digits in range(10 if zeros else 1, 100)
        if max(1, batch * LEAST_SHARE) <= digits * 10**zeros < batch
    ][::-1]

    def make(step: int) -> Variant:
        size = sizes[step]

        def apply(given: Case) -> Case:
            return given.of(replace(given.workload, local_batch_size=size))

        return Variant(name=f"local_batch_size: {size}", apply=apply)

    return Scale(steps=len(sizes), make=make)


TABLE_KINDS: Sequence[Kind] = (
    splitting_pipeline,
    free_ranks,
    free_types,
    usual_caches,
    host_memory,
    half_precision,
)
"""Kinds that change neither machine nor batch."""
WORKLOAD_KINDS: Sequence[Kind] = (*TABLE_KINDS, smaller_batch)
KINDS: Sequence[Kind] = (larger_machine, more_nodes, *WORKLOAD_KINDS)


def _table_scale(
    case: Case, name: str, label: str, change: Callable[[EmbeddingTable], EmbeddingTable]
) -> Scale:
    """Return the scale of a change of one table, of two, and so on, those of most bytes first.

    Finer changes leave out one table or another again.
    """
    workload, topology = case.workload, case.topology
    changed = [each for each in workload.tables if change(each) != each]
    num_others = len(workload.tables) - len(changed)

    @cache
    def by_size() -> list[str]:
        sizes = [least_table_bytes(workload, topology, each, Place.BOTH) for each in changed]
        order = sorted(range(len(changed)), key=lambda each: -sizes[each])
        return [changed[each].name for each in order]

    def of(names: Sequence[str]) -> Variant:
        some, order = frozenset(names), by_size()

        def apply(given: Case) -> Case:
            tables = (change(each) if each.name in some else each for each in given.workload.tables)
            return given.of(replace(given.workload, tables=tuple(tables)))

        tables = _named([each for each in order if each in some], order, num_others)
        changed = f"{count(len(some), 'table')} {label}"
        return Variant(name=name, apply=apply, tables=tables, label=changed)

    def fewer(needed: Sequence[str], others: Sequence[str]) -> Scale | None:
        """Return the changes without one of the other tables, and last with all.

        None where no others.
        """
        if not others:
            return None
        first, *rest = others
        return Scale(
            steps=2,
            make=lambda step: of([*needed, first, *rest] if step else [*needed, *rest]),
            finer=lambda step: fewer([*needed, first] if step else needed, rest),
        )

    def without_some(step: int) -> Scale | None:
        return fewer([by_size()[step]], by_size()[:step] if step < MOST_DROPPED else ())

    return Scale(
        steps=len(changed), make=lambda step: of(by_size()[: step + 1]), finer=without_some
    )


def _named(names: Sequence[str], order: Sequence[str], num_others: int) -> str:
    """Return table names as ``for a and b``; of many largest ones, their number."""
    if len(names) > MOST_NAMED and len(names) == len(order):
        return f"for all {len(names)} {'that it changes' if num_others else 'tables'}"
    if len(names) > MOST_NAMED and list(names) == list(order[: len(names)]):
        listed = names if len(names) <= MOST_LISTED else (f"{names[0]} to {names[-1]}",)
        return f"for the {len(names)} largest that it changes ({', '.join(listed)})"
    return f"for {' and '.join((', '.join(names[:-1]), names[-1])) if len(names) > 1 else names[0]}"
