"""What a plan asks of every rank: lookups, columns to exchange, ids to receive.

A *sharding group* is what TorchRec runs as one unit: the tables of one module (pooled, weighted
or unpooled) that share a sharding type. It has one set of collectives, and one lookup kernel per
(fused or dense, data type, pooling) on every rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import Shard, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Workload
from costmodel.inputs.distribution import is_hashed
from costmodel.kernels.embedding import Caches, LookupShard, combine, gpu_caches, shard_traffic
from costmodel.kernels.traffic import NUM_TRAFFIC
from costmodel.step.groups import GroupKey, KernelKey, group_key, kernel_key

Array = NDArray[np.float64]


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
    table_columns: float
    """Output columns of the whole tables per sample."""
    sent_ids: float
    """Ids a rank sends per step, over all destinations."""
    sent_features: float
    """Features a rank sends, over all destinations: once per shard that needs its ids."""
    parameter_bytes: float
    """Bytes of the tables replicated on every rank (data_parallel only)."""
    tables: float
    """Tables in the group."""
    present: float = 1.0
    """1; templates have a formula for it, as a plan may lack the group."""


class ShardRow(NamedTuple):
    """What each of some like shards of a table contributes to its group."""

    ranks: tuple[int, ...]
    traffic: tuple[float, ...]
    features: float
    ids: float
    columns: float


def group_loads(
    workload: Workload, topology: Topology, plan: ShardingPlan
) -> tuple[GroupLoad, ...]:
    """Return the sharding groups of a plan: unpooled before pooled, then by name of the type.

    TorchRec orders a module's groups by the first table that needs each. Here the order is the
    same for all plans, so that it is not one more thing that a search moves.
    """
    members: dict[GroupKey, list[tuple[EmbeddingTable, TableSharding]]] = {}
    for table in workload.tables:
        sharding = plan.table(table.name)
        members.setdefault(group_key(table, sharding.sharding_type), []).append((table, sharding))
    return tuple(_group_load(workload, topology, key, members[key]) for key in sorted(members))


def _group_load(
    workload: Workload,
    topology: Topology,
    key: GroupKey,
    pairs: list[tuple[EmbeddingTable, TableSharding]],
) -> GroupLoad:
    rows: list[ShardRow] = []
    kernel_rows: dict[KernelKey, list[ShardRow]] = {}
    for table, sharding in pairs:
        new = table_rows(workload, topology, table, sharding)
        rows += new
        kernel_rows.setdefault(kernel_key(table, sharding.compute_kernel), []).extend(new)
    ranks, counts = _ranks(rows)

    def per_rank(values: list[float]) -> NDArray[np.float64]:
        each = np.repeat(values, counts)
        return np.bincount(ranks, each, topology.world_size).astype(np.float64)

    ids = per_rank([row.ids for row in rows])
    features = per_rank([row.features for row in rows])
    replicated = key.sharding_type is ShardingType.DATA_PARALLEL
    return GroupLoad(
        key=key,
        traffic={
            name: _traffic(kernel_rows[name], topology.world_size) for name in sorted(kernel_rows)
        },
        features=features,
        ids=ids,
        columns=per_rank([row.columns for row in rows]),
        table_columns=sum(t.embedding_dim * t.output_rows_per_sample for t, _ in pairs),
        sent_ids=float(ids.sum()) / topology.world_size,
        sent_features=float(features.sum()),
        parameter_bytes=sum(t.weight_bytes for t, _ in pairs) if replicated else 0.0,
        tables=float(len(pairs)),
    )


def _ranks(rows: list[ShardRow]) -> tuple[NDArray[np.intp], list[int]]:
    """Return the ranks of all rows' shards, one after the other, and how many each row has."""
    flat = [rank for row in rows for rank in row.ranks]
    return np.array(flat, dtype=np.intp), [len(row.ranks) for row in rows]


def _traffic(rows: list[ShardRow], world_size: int) -> NDArray[np.float64]:
    ranks, counts = _ranks(rows)
    values = np.array([row.traffic for row in rows]).reshape(len(rows), NUM_TRAFFIC)
    return combine(np.repeat(values, counts, axis=0), ranks, world_size)


def table_rows(
    workload: Workload, topology: Topology, table: EmbeddingTable, sharding: TableSharding
) -> list[ShardRow]:
    """Return a row for every different shard of a table: most are alike but for their rank."""
    hashed = is_hashed(table.inputs)
    alike: dict[tuple[int, int, int], list[Shard]] = {}
    for shard in sharding.shards:
        place = 0 if hashed else shard.row_offset
        alike.setdefault((place, shard.num_rows, shard.num_columns), []).append(shard)
    return [shard_row(workload, topology, table, sharding, shards) for shards in alike.values()]


def shard_row(
    workload: Workload,
    topology: Topology,
    table: EmbeddingTable,
    sharding: TableSharding,
    shards: Sequence[Shard],
) -> ShardRow:
    """Return what each of some shards of a table, alike but for their rank, adds to it."""
    shard = shards[0]
    replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
    samples = workload.local_batch_size * (1 if replicated else topology.world_size)
    cached = sharding.cache_load_factor
    part = LookupShard(
        table=table,
        first_row=0 if is_hashed(table.inputs) else shard.row_offset,
        num_rows=shard.num_rows,
        num_columns=shard.num_columns,
        num_samples=samples,
        compute_kernel=sharding.compute_kernel,
        cache_load_factor=table.cache_share if cached is None else cached,
        batches_in_cache=workload.pipeline.batches_in_cache,
    )
    caches = gpu_caches(topology.hardware.gpu)
    traffic, ids, bags = _cached_row(
        part, workload.optimizer_of(table), workload.output_type, caches
    )
    return ShardRow(
        ranks=tuple(each.rank for each in shards),
        traffic=traffic,
        features=float(table.num_features),
        ids=ids,
        columns=shard.num_columns * bags / samples,
    )


@lru_cache(maxsize=262144)
def _cached_row(
    part: LookupShard, optimizer: Optimizer, output_type: DataType, caches: Caches
) -> tuple[tuple[float, ...], float, float]:
    traffic = shard_traffic(part, optimizer=optimizer, output_type=output_type, caches=caches)
    return traffic, part.num_lookups, part.num_bags
