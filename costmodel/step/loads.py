"""Loads of a plan on every rank: lookups, columns to exchange, ids to receive.

A *sharding group* is what TorchRec runs as one unit: the tables of one module (pooled, weighted or
unpooled) that share a sharding type. It has one set of collectives, and one lookup kernel per
(fused or dense, data type, pooling) on every rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array
from costmodel.domain.hardware import Topology
from costmodel.domain.lengths import fullest_batch
from costmodel.domain.plan import (
    ComputeKernel,
    Shard,
    ShardingPlan,
    ShardingType,
    TableSharding,
)
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.inputs.distribution import is_hashed
from costmodel.kernels.embedding import combine, lookup_rates
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.shard_traffic import (
    fetch_times,
    gpu_caches,
    replica_bytes,
    shard_traffics,
)
from costmodel.kernels.traffic import NUM_TRAFFIC
from costmodel.step.groups import GroupKey, KernelKey, group_key, kernel_key


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupLoad:
    """One sharding group, per rank: arrays have shape (world_size,)."""

    key: GroupKey
    traffic: Mapping[KernelKey, Array]
    """Traffic of every lookup kernel, shape (world_size, NUM_TRAFFIC)."""
    features: Array
    """Features whose ids a rank receives."""
    ids: Array
    """Ids a rank receives per step, from all ranks."""
    columns: Array
    """Output columns a rank produces per sample of the global batch."""
    fetch_time: Array
    """Seconds in which a batch's rows come into UVM caches, if that is apart from lookups."""
    stashed_bytes: Array
    """Weights in HBM that are moved to host memory after their lookup."""
    replica_bytes: Array
    """Weights and optimizer state that other groups of ranks have replicas of."""
    table_columns: float
    """Output columns of the whole tables per sample."""
    sent_ids: float
    """Ids a rank sends per step, over all destinations."""
    sent_features: float
    """Features a rank sends, over all destinations: once per shard that needs its ids."""
    parameter_bytes: Mapping[KernelKey, float]
    """Bytes of the tables of every lookup kernel that are replicated (data_parallel only)."""
    tables: float
    """Tables in the group."""
    present: float = 1.0
    """1; templates have a formula for it, as a plan may lack the group."""


class Sharded(Protocol):
    """A sharding of one table: an option, or a plan's sharding."""

    @property
    def sharding_type(self) -> ShardingType:
        """Type of all shards."""
        ...

    @property
    def compute_kernel(self) -> ComputeKernel:
        """Kernel that looks them up."""
        ...

    @property
    def cache_load_factor(self) -> float | None:
        """Share of the rows that a UVM cache holds; None: the table's own."""
        ...


class ShardRow(NamedTuple):
    """Loads that each of several like shards of a table adds to its group."""

    ranks: Sequence[int]
    traffic: Sequence[float]
    features: float
    ids: float
    columns: float
    fetch_time: float
    stashed_bytes: float
    replica_bytes: float


_Member: TypeAlias = tuple[EmbeddingTable, TableSharding, list[ShardRow]]
_Key: TypeAlias = tuple[object, ...]
"""Table, kernel and place of a shard, which determine its loads."""
_Alike: TypeAlias = dict[_Key, tuple[Shard, list[int]]]
"""A shard, and the ranks that hold it or one like it."""


@dataclass(frozen=True)
class PlanLoads:
    """The loads of a workload's plans on a topology; those of a shard are computed once."""

    workload: Workload
    topology: Topology
    _known: dict[_Key, tuple[Any, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """All of a row except its ranks."""

    def groups(self, plan: ShardingPlan) -> tuple[GroupLoad, ...]:
        """Return the sharding groups of a plan: unpooled before pooled, then by name of the type.

        TorchRec orders a module's groups by the first table that needs each. Here the order is the
        same for all plans, so that it is not one more thing that a search moves.
        """
        members: dict[GroupKey, list[_Member]] = {}
        for table, rows in zip(self.workload.tables, self.rows(plan), strict=True):
            sharding = plan.table(table.name)
            key = group_key(table, sharding.sharding_type)
            members.setdefault(key, []).append((table, sharding, rows))
        return tuple(_group_load(self.topology, key, members[key]) for key in sorted(members))

    def rows(self, plan: ShardingPlan) -> list[list[ShardRow]]:
        """Return, for every table, a row for every different shard: most differ in rank alone."""
        of_tables: list[_Alike] = []
        new: dict[_Key, LookupShard] = {}
        for table in self.workload.tables:
            sharding = plan.table(table.name)
            of_tables.append(_alike(table, sharding))
            for key, (shard, _) in of_tables[-1].items():
                if key not in self._known:
                    new[key] = lookup_shard(self.workload, self.topology, table, sharding, shard)
        if new:
            every = shard_loads(self.workload, self.topology, LookupShards.of([*new.values()]))
            columns = (each.tolist() for each in every)
            self._known.update(zip(new, zip(*columns, strict=True), strict=True))
        return [
            [ShardRow(ranks, *self._known[key]) for key, (_, ranks) in own.items()]
            for own in of_tables
        ]


def _alike(table: EmbeddingTable, sharding: TableSharding) -> _Alike:
    """Return the shards of a table that differ in rank alone, by table, kernel and place."""
    hashed = is_hashed(table.inputs)
    alike: _Alike = {}
    for shard, ranks in sharding.distinct_shards():
        place = 0 if hashed else shard.row_offset
        alike.setdefault((place, shard.num_rows, shard.num_columns), (shard, []))[1].extend(ranks)
    replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
    kind = table.name, replicated, sharding.compute_kernel, sharding.cache_load_factor
    return {(*kind, *cut): like for cut, like in alike.items()}


def _group_load(topology: Topology, key: GroupKey, members: Sequence["_Member"]) -> GroupLoad:
    """Return what the members of a group load every rank with."""
    pairs = [(table, sharding) for table, sharding, _ in members]
    replicated = key.sharding_type is ShardingType.DATA_PARALLEL  # all ranks have what one has
    copies = topology.world_size if replicated else 1
    places = topology.world_size // copies
    rows: list[ShardRow] = []
    kernel_rows: dict[KernelKey, list[ShardRow]] = {}
    for table, sharding, own in members:
        new = [row._replace(ranks=(0,)) for row in own] if replicated else own
        rows += new
        kernel_rows.setdefault(kernel_key(table, sharding.compute_kernel), []).extend(new)
    ranks, counts = _ranks(rows)
    each = np.repeat([row[2:] for row in rows], counts, axis=0).T
    totals = [np.repeat(np.bincount(ranks, one, places), copies).astype(np.float64) for one in each]
    features, ids, columns, fetch_time, stashed_bytes, replica_bytes = totals
    return GroupLoad(
        key=key,
        traffic={
            name: np.repeat(_traffic(kernel_rows[name], places), copies, axis=0)
            for name in sorted(kernel_rows)
        },
        features=features,
        ids=ids,
        columns=columns,
        fetch_time=fetch_time,
        stashed_bytes=stashed_bytes,
        replica_bytes=replica_bytes,
        table_columns=sum(t.embedding_dim * t.output_rows_per_sample for t, _ in pairs),
        sent_ids=float(ids.sum()) / topology.world_size,
        sent_features=float(features.sum()),
        parameter_bytes=_replicated_bytes(pairs),
        tables=float(len(pairs)),
    )


def _replicated_bytes(
    pairs: Sequence[tuple[EmbeddingTable, TableSharding]],
) -> Mapping[KernelKey, float]:
    """Return the weights that all ranks hold copies of, by kernel: 0 where no table is copied."""
    total: dict[KernelKey, float] = {}
    for table, sharding in pairs:
        kernel = kernel_key(table, sharding.compute_kernel)
        replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
        total[kernel] = total.get(kernel, 0.0) + replicated * table.weight_bytes
    return total


def _ranks(rows: list[ShardRow]) -> tuple[NDArray[np.intp], list[int]]:
    """Return the ranks of all rows' shards in one array, and the number of each row's."""
    flat = chain.from_iterable(row.ranks for row in rows)
    return np.fromiter(flat, dtype=np.intp), [len(row.ranks) for row in rows]


def _traffic(rows: list[ShardRow], world_size: int) -> NDArray[np.float64]:
    """Return the traffic of the rows on every rank, of shape (world_size, NUM_TRAFFIC)."""
    ranks, counts = _ranks(rows)
    values = np.array([row.traffic for row in rows]).reshape(len(rows), NUM_TRAFFIC)
    return combine(np.repeat(values, counts, axis=0), ranks, world_size)


def lookup_shard(
    workload: Workload,
    topology: Topology,
    table: EmbeddingTable,
    sharding: Sharded,
    shard: Shard,
) -> LookupShard:
    """Return the properties of one shard that its traffic depends on."""
    replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
    cached = sharding.cache_load_factor
    return LookupShard(
        table=table,
        first_row=0 if is_hashed(table.inputs) else shard.row_offset,
        num_rows=shard.num_rows,
        num_columns=shard.num_columns,
        num_samples=workload.local_batch_size * (1 if replicated else topology.world_size),
        compute_kernel=sharding.compute_kernel,
        cache_load_factor=table.cache_share if cached is None else cached,
        fullness=fullest_batch(workload, topology.world_size) if replicated else 1.0,
        batches_in_cache=workload.pipeline.batches_in_cache,
    )


class ShardLoads(NamedTuple):
    """Loads that each of several shards adds to its rank."""

    traffic: Array
    """Shape (shards, NUM_TRAFFIC); the others: (shards,)."""
    features: Array
    ids: Array
    columns: Array
    fetch_time: Array
    stashed_bytes: Array
    replica_bytes: Array


def shard_loads(workload: Workload, topology: Topology, shards: LookupShards) -> ShardLoads:
    """Return the loads that each of several shards adds to its rank."""
    caches = gpu_caches(topology.hardware.gpu)
    traffic = shard_traffics(
        shards, optimizer=workload.optimizer, output_type=workload.output_type, caches=caches
    )
    columns = shards.num_columns * shards.num_bags / shards.num_samples
    fetch_time = fetch_times(shards, caches, lookup_rates(topology.hardware))
    replicas = np.zeros(len(columns))
    if topology.replicas is not None:
        weights_alone = topology.replicas.is_fully_sharded
        replicas = replica_bytes(shards, None if weights_alone else workload.optimizer)
    return ShardLoads(
        traffic, shards.table_bags, shards.num_lookups, columns, fetch_time,
        shards.stashed_bytes, replicas,
    )  # fmt: skip
