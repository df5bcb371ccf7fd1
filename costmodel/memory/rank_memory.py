"""Memory of every rank under a plan, compared with the GPU's."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import chain
from math import inf
from typing import TypeAlias

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Bytes, size_text, size_texts
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.validity import allowed_types
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.sort_buffers import most_at_hand_bytes
from costmodel.memory.storage import (
    RESERVE_SHARE,
    ShardBytes,
    dense_peak_bytes,
    fixed_bytes,
    plan_shard_bytes,
    shard_bytes,
    shard_factors,
)

_HBM = frozenset({ComputeKernel.FUSED, ComputeKernel.DENSE})
_ROUNDING = 1e-9
"""Share by which sums of the same shards in another order may differ."""


class Place(Enum):
    """Kinds of memory for tables."""

    DEVICE = "device"
    HOST = "host"
    BOTH = "both"

    def bytes_of(self, size: ShardBytes) -> Bytes:
        """Return the bytes of shards in this memory."""
        on_device = 0.0 if self is Place.HOST else float(size.total)
        return on_device + (0.0 if self is Place.DEVICE else float(size.host))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes of HBM on one rank, and of host memory on its behalf."""

    weights: Bytes = 0.0
    optimizer_state: Bytes = 0.0
    gradients: Bytes = 0.0
    """Gradients of dense kernels, and the sort buffers of the fused backward."""
    inputs: Bytes = 0.0
    """Ids and lengths that the rank looks up, all batches in flight."""
    outputs: Bytes = 0.0
    """Looked-up embeddings before they are sent."""
    dense_model: Bytes = 0.0
    activations: Bytes = 0.0
    """Activations of the dense model for the local batch, and the local batch itself; on a CPU the
    sort of the table at hand."""
    host: Bytes = 0.0
    """Weights and state in the node's host memory, also for a time; not part of ``total``."""
    stashed: Bytes = 0.0
    """The part of ``weights`` that is in the host's memory instead of HBM during the dense part."""

    @property
    def tables(self) -> Bytes:
        """Bytes that the plan decides: everything of the tables' shards in HBM."""
        return self.weights + self.optimizer_state + self.gradients + self.inputs + self.outputs

    @property
    def total(self) -> Bytes:
        """Bytes of HBM at the peak, without the reserve."""
        return self.tables + self.dense_model + self.activations


def memory_per_rank(
    workload: Workload, topology: Topology, plan: ShardingPlan
) -> tuple[RankMemory, ...]:
    """Return every rank's memory under a plan: the sum of its shards and a fixed part.

    On a CPU the sort of the table at hand is added; the reserve is enough for any table's.

    Parameters
    ----------
    workload, topology
        The plan must be valid for them (``costmodel.domain.validity``).
    plan
        Every table's shards.

    References
    ----------
    The equations, with sources: ``costmodel.memory.storage``.

    """
    import numpy as np

    ranks = np.fromiter(chain.from_iterable(table.ranks for table in plan.tables), dtype=np.intp)
    parts = plan_shard_bytes(workload, topology, plan)
    sums = {
        name: np.bincount(ranks, getattr(parts, name), topology.world_size).tolist()
        for name in ShardBytes.__slots__
        if name != "at_hand"
    }
    at_hand = np.zeros(topology.world_size)
    np.maximum.at(at_hand, ranks, parts.at_hand)
    dense_model, activations = fixed_bytes(workload, topology)
    activations -= most_at_hand_bytes(workload, topology)
    peak = dense_peak_bytes(workload, topology)
    return tuple(
        RankMemory(
            **{name: values[rank] for name, values in sums.items()},
            dense_model=dense_model,
            activations=(
                activations + float(at_hand[rank]) + max(0.0, peak - sums["stashed"][rank])
            ),
        )
        for rank in range(topology.world_size)
    )


def usable_bytes(workload: Workload, topology: Topology) -> Bytes:
    """Return a rank's bytes for tables: HBM less dense model, activations and reserve.

    Where ranks differ, those of the rank that has most.
    """
    return max(rank_rooms(workload, topology))


def rank_rooms(workload: Workload, topology: Topology) -> tuple[Bytes, ...]:
    """Return the bytes that every rank has for tables.

    The reserve is a share of the bytes that are not withheld. Stashed weights make room for the
    bytes of the dense part beyond the rest of the step; where there would not be enough even
    without any table, there is none at all.
    """
    capacity, fixed = topology.hardware.gpu.memory_bytes, sum(fixed_bytes(workload, topology))
    peak = dense_peak_bytes(workload, topology)
    withheld = topology.withheld_bytes or (0.0,)
    rooms = [(capacity - each) * (1 - RESERVE_SHARE) - fixed for each in withheld]
    rooms = [room if room > peak else 0.0 for room in rooms]
    return tuple(rooms) if topology.withheld_bytes else tuple(rooms) * topology.world_size


def dense_part_ratio(workload: Workload, topology: Topology) -> float:
    """Return the weight of a byte that stays in HBM, relative to one that is stashed.

    Tables fit a rank if all of them do at their lookup, and what is not stashed does in the dense
    part, which needs P bytes more (``dense_peak_bytes``) of the rank's room C:

        sum of t <= C    and    sum of (t - s) <= C - P

    Both hold if the sum of max(t, (t - s) C / (C - P)) is at most C: one number for a shard, as
    searches want it. That is t wherever the weights of a table are most of it and stashed, and then
    this is the first condition; if all are, stashing is P bytes of reserve less. Where large tables
    are not stashed it asks for more than is needed, never for less.
    """
    peak = dense_peak_bytes(workload, topology)
    return max(
        (room / (room - peak) for room in rank_rooms(workload, topology) if room > peak),
        default=1.0,
    )


def host_bytes_usable(topology: Topology) -> Bytes:
    """Return the bytes of a node's host memory for tables: nine tenths, the rest for the system."""
    return topology.host_memory_bytes * (1 - RESERVE_SHARE)


def host_reserve_text(topology: Topology, num_hosts: int = 1) -> str:
    """Return the host memory, and the part of it that is not for tables, in brackets."""
    whole = num_hosts * topology.host_memory_bytes
    return f" (of {size_text(whole)}, of which a tenth is kept for the system)"


def could_hold(workload: Workload, topology: Topology) -> bool:
    """Return whether all tables, each whole, take no more than all HBM and host memory."""
    needed = sum(least_table_bytes(workload, topology, table) for table in workload.tables)
    has_room = needed <= sum(rank_rooms(workload, topology))
    return has_room and host_bytes_spare(workload, topology) >= 0


def least_ranks(workload: Workload, topology: Topology) -> float:
    """Return how many ranks like the roomiest the tables need at least, by the sum of bytes.

    Replicated tables take of each; infinite where they leave nothing.
    """
    copied = whole = 0.0
    for table in workload.tables:
        size = least_table_bytes(workload, topology, table)
        if _is_replicated(workload, table):
            copied += size / topology.world_size
        else:
            whole += size
    room = usable_bytes(workload, topology) - copied
    return whole / room if room > 0 else inf


def host_bytes_spare(workload: Workload, topology: Topology) -> Bytes:
    """Return the bytes of all host memory left by tables that must be there; negative: no room."""
    return topology.num_nodes * host_bytes_usable(topology) - host_bytes_needed(workload)


def host_bytes_needed(workload: Workload) -> Bytes:
    """Return the bytes of weights of all tables whose kernels keep them in host memory."""
    return sum(
        table.weight_bytes
        for table in workload.tables
        if table.compute_kernels and not _HBM & set(table.compute_kernels)
    )


def check_memory(workload: Workload, topology: Topology, plan: ShardingPlan) -> None:
    """Raise InfeasibleError, saying by how much and what would help, unless the plan fits."""
    per_rank = memory_per_rank(workload, topology, plan)
    peak = dense_peak_bytes(workload, topology)
    rooms = [
        room - max(0.0, peak - memory.stashed)
        for room, memory in zip(rank_rooms(workload, topology), per_rank, strict=True)
    ]
    fullest = max(range(len(per_rank)), key=lambda rank: per_rank[rank].tables - rooms[rank])
    needed, usable = per_rank[fullest].tables, rooms[fullest]
    if needed > usable * (1 + _ROUNDING):
        taken, left = _texts(needed, usable)
        raise infeasible(
            workload,
            topology,
            f"the plan does not fit: rank {fullest} needs {taken} for its tables, "
            f"and {topology.hardware.name} leaves {left} for them",
        )
    local = topology.local_world_size
    for node in range(topology.num_nodes):
        host = sum(memory.host for memory in per_rank[node * local : (node + 1) * local])
        if host > host_bytes_usable(topology):
            taken, left = size_texts(host, host_bytes_usable(topology))
            raise InfeasibleError(
                f"the plan does not fit: node {node} needs {taken} of host memory for "
                f"tables, and {left} is there for them{host_reserve_text(topology)}",
                hint="more nodes, or fewer tables with fused_uvm kernels or stash_weights",
            )


def fits(workload: Workload, topology: Topology, plan: ShardingPlan) -> bool:
    """Return whether a plan needs no more memory than there is."""
    try:
        check_memory(workload, topology, plan)
    except InfeasibleError:
        return False
    return True


def infeasible(
    workload: Workload,
    topology: Topology,
    message: str | None = None,
    place: Place = Place.DEVICE,
) -> InfeasibleError:
    """Return the error that no plan fits, with the sum of bytes and the largest tables.

    ``place`` is the memory that is short. ``planner.verbs.remedies`` finds out what would help.
    """
    details = _details(workload, _Apart(topology), place)
    return InfeasibleError(message or _too_much(workload, topology), details=details)


def _too_much(workload: Workload, topology: Topology) -> str:
    """Return the message that tables need more memory than there is."""
    room = sum(rank_rooms(workload, topology))
    if usable_bytes(workload, replace(topology, withheld_bytes=())) <= 0:
        return _no_room_at_all(workload, topology)
    needed = sum(least_table_bytes(workload, topology, table) for table in workload.tables)
    places = f"{topology.world_size} × {topology.hardware.name}"
    taken, left = _texts(needed, room)
    return (
        f"no plan fits: the tables need {taken}, and {places} "
        f"leave{'s' if topology.world_size == 1 else ''} {left} for them"
    )


def _no_room_at_all(workload: Workload, topology: Topology) -> str:
    """Return that what every rank holds besides tables does not fit one."""
    dense, activations = fixed_bytes(workload, topology)
    rest = activations + dense_peak_bytes(workload, topology)
    return (
        f"no plan fits, even without any table: the dense model needs {size_text(dense)} and its "
        f"activations {size_text(rest)} of each {topology.hardware.name}"
    )


def _texts(needed: Bytes, left: Bytes) -> tuple[str, str]:
    """Return needed and left bytes as text."""
    return size_texts(needed, left) if left > 0 else (size_text(needed), "nothing")


@dataclass(frozen=True, slots=True, eq=False)
class _Apart:
    """A topology compared by identity, as it cannot be hashed."""

    topology: Topology

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Apart) and other.topology is self.topology

    def __hash__(self) -> int:
        return id(self.topology)


Lines: TypeAlias = tuple[tuple[str, str], ...]


@lru_cache(maxsize=8)
def _details(workload: Workload, apart: _Apart, place: Place) -> Lines:
    """Return lines on where the memory goes; searches that fail ask for them often."""
    topology = apart.topology
    device = (f"per {topology.hardware.device.unit}", _per_rank_line(workload, topology))
    return (
        *([] if place is Place.HOST else [device]),
        *([] if place is Place.DEVICE else [("per host", _per_host_line(topology))]),
        ("largest", _largest_line(workload, topology, place)),
    )


def least_table_bytes(
    workload: Workload, topology: Topology, table: EmbeddingTable, place: Place = Place.DEVICE
) -> Bytes:
    """Return the smallest number of bytes of one table over all ranks, with its allowed kernels.

    The table is whole, as splits add buffers; if only data_parallel is allowed, a copy is on every
    rank.
    """
    if _is_replicated(workload, table):
        kind, kernel = ShardingType.DATA_PARALLEL, ComputeKernel.DENSE
        factors = shard_factors(workload, topology, table, kind, kernel)
        copy = shard_bytes(factors, table.num_embeddings, table.embedding_dim, 1.0)
        return topology.world_size * place.bytes_of(copy)
    kernels = set(table.compute_kernels) - {ComputeKernel.DENSE} or {ComputeKernel.FUSED}
    sizes = (_whole_table(workload, topology, table, kernel) for kernel in kernels)
    return min(map(place.bytes_of, sizes))


def _is_replicated(workload: Workload, table: EmbeddingTable) -> bool:
    """Return whether a table can only be data parallel."""
    constrained = bool(table.sharding_types)
    return constrained and allowed_types(workload, table) == (ShardingType.DATA_PARALLEL,)


def whole_table_bytes(workload: Workload, topology: Topology, table: EmbeddingTable) -> Bytes:
    """Return the bytes of HBM of one whole table on one rank, with fused kernels."""
    return float(_whole_table(workload, topology, table, ComputeKernel.FUSED).total)


def _whole_table(
    workload: Workload, topology: Topology, table: EmbeddingTable, kernel: ComputeKernel
) -> ShardBytes:
    factors = shard_factors(workload, topology, table, ShardingType.TABLE_WISE, kernel)
    return shard_bytes(factors, table.num_embeddings, table.embedding_dim, 1.0)


def _per_rank_line(workload: Workload, topology: Topology) -> str:
    """Return as text what is taken off a rank's memory before tables have the rest."""
    capacity, memory = topology.hardware.gpu.memory_bytes, topology.hardware.device.memory
    dense_model, activations = fixed_bytes(workload, topology)
    withheld = min(topology.withheld_bytes, default=0.0)
    reserve = (capacity - withheld) * RESERVE_SHARE
    taken = f"  -  {size_text(withheld)} withheld" if withheld else ""
    return (
        f"{size_text(capacity)} {memory}{taken}  -  {size_text(dense_model)} dense  -  "
        f"{size_text(activations)} activations  -  {size_text(reserve)} reserve (a tenth)  =  "
        f"{size_text(usable_bytes(workload, topology))}"
    )


def _per_host_line(topology: Topology) -> str:
    there = topology.host_memory_bytes
    return (
        f"{size_text(there)} host memory  -  {size_text(there * RESERVE_SHARE)} for the system "
        f"(a tenth)  =  {size_text(host_bytes_usable(topology))}"
    )


def _largest_line(workload: Workload, topology: Topology, place: Place) -> str:
    """Return as text the three largest tables in a memory, and the bytes of all others."""
    sizes = _sizes(workload, topology, place)
    shown = [f"{name} {size_text(size)}" for name, size in sizes[:3]]
    if len(sizes) > len(shown):
        rest = sum(size for _, size in sizes[3:])
        shown.append(f"{len(sizes) - 3} more {size_text(rest)}")
    memory = topology.hardware.device.memory
    where = {
        Place.DEVICE: f"in {memory}, with buffers",
        Place.HOST: "in host memory",
        Place.BOTH: f"in {memory} and host memory, with buffers",
    }
    return "    ".join([*shown, f"({where[place]})"])


def _sizes(workload: Workload, topology: Topology, place: Place) -> list[tuple[str, Bytes]]:
    """Return (name, bytes) of every table that takes bytes in a memory, largest first."""
    tables = workload.tables
    copies = f" in {topology.world_size} copies" if topology.world_size > 1 else ""
    names = (f"{each.name}{copies if _is_replicated(workload, each) else ''}" for each in tables)
    sizes = (least_table_bytes(workload, topology, each, place) for each in tables)
    named = zip(names, sizes, strict=True)
    return sorted((size for size in named if size[1]), key=lambda size: -size[1])
