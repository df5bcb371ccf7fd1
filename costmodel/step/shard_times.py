"""Seconds that one shard adds to its rank, whatever else is there: a separable stand-in for a step.

Lookups count at the marginal cost of their traffic, exchanges at the slope of the collective's
curve around the size a balanced plan would have. There are no launch or link latencies: tables of a
group share them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from costmodel.base.arrays import Array, Places
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import CollectiveOp, Topology
from costmodel.domain.plan import Shard, ShardingType, TableSharding
from costmodel.domain.workload import Workload
from costmodel.inputs.distribution import is_hashed
from costmodel.kernels.collectives import RankGroup, collective_time
from costmodel.kernels.embedding import forward_time, lookup_time
from costmodel.kernels.lookup_shards import LookupShards
from costmodel.kernels.traffic import BACKWARD_KERNELS
from costmodel.step.cuts import KINDS, TYPES
from costmodel.step.input_dist import WEIGHT_BYTES
from costmodel.step.loads import lookup_shard, shard_loads
from costmodel.step.optimizer import replica_update_time

USUAL_BUCKET_BYTES = 25e6
"""Size of DDP's bucket, to which a replicated table's gradients are added."""
_Key: TypeAlias = tuple[object, ...]


class ColumnTimes(NamedTuple):
    """Seconds of an exchange per output column of a shard."""

    forward: Seconds = 0.0
    both: Seconds = 0.0
    """The outputs' and their gradients' exchanges together."""


class ReplicaTimes(NamedTuple):
    """Seconds of replicated tables that go with their weights, shape (tables,)."""

    update: Array
    """By the dense optimizer."""
    all_reduce: Array

    @property
    def total(self) -> Array:
        """Seconds of both."""
        return self.update + self.all_reduce


class ShardTime(NamedTuple):
    """Seconds that a shard adds to its rank."""

    forward: Seconds
    """Its lookup."""
    forward_exchange: Seconds
    backward: Seconds
    """Gradients and the optimizer's update."""
    backward_exchange: Seconds
    prefetch: Seconds
    """Rows that come into a UVM cache apart from lookups."""
    input_exchange: Seconds
    """Ids and their weights."""

    @property
    def load(self) -> Seconds:
        """The sum of both passes, without what pipelines do beforehand."""
        return self.forward + self.forward_exchange + self.backward + self.backward_exchange


@dataclass(frozen=True, eq=False)
class ShardTimer:
    """The seconds of shards of a workload's tables on a topology."""

    workload: Workload
    topology: Topology

    def lookups(self, traffic: Array, weighted: Array) -> Array:
        """Return seconds of both passes beyond the kernels' latencies, shape (shards,).

        ``traffic`` has shape (shards, NUM_TRAFFIC), ``weighted`` is 1 where ids have weights.
        """
        hardware, has_weights = self.topology.hardware, weighted > 0
        kernels = 1 + BACKWARD_KERNELS + has_weights
        seconds = lookup_time(traffic, hardware, weighted=has_weights)
        beyond: Array = np.maximum(0.0, seconds - kernels * hardware.gpu.kernel_latency)
        return beyond

    @cached_property
    def exchanges(self) -> Mapping[ShardingType, ColumnTimes]:
        """Seconds per output column, by sharding type; types that are left out exchange nothing."""
        world, local = self.topology.world_size, self.topology.local_world_size
        everyone = self._everyone
        node = RankGroup(num_ranks=local, ranks_per_node=local)
        across = RankGroup(num_ranks=world // local, ranks_per_node=1)
        column = self._column_bytes
        sent = self._slope(CollectiveOp.ALL_TO_ALL, everyone) * column
        exchange = ColumnTimes(sent, 2 * sent)
        scatter = self._slope(CollectiveOp.REDUCE_SCATTER, everyone) * column
        gather = self._slope(CollectiveOp.ALL_GATHER, everyone) * column
        reduce = ColumnTimes(scatter, scatter + gather)
        inner = self._slope(CollectiveOp.REDUCE_SCATTER, node) * column
        outer = self._slope(CollectiveOp.ALL_TO_ALL, across) * column
        both = inner + self._slope(CollectiveOp.ALL_GATHER, node) * column + 2 * outer / local
        inside = ColumnTimes(inner + outer / local, both)
        return {
            ShardingType.TABLE_WISE: exchange,
            ShardingType.COLUMN_WISE: exchange,
            ShardingType.TABLE_COLUMN_WISE: exchange,
            ShardingType.ROW_WISE: reduce,
            ShardingType.TABLE_ROW_WISE: inside,
            ShardingType.GRID_SHARD: inside,
        }

    @cached_property
    def _everyone(self) -> RankGroup:
        return RankGroup(
            num_ranks=self.topology.world_size, ranks_per_node=self.topology.local_world_size
        )

    @cached_property
    def _column_bytes(self) -> Bytes:
        """Bytes of an output column of all samples."""
        workload = self.workload
        samples = workload.local_batch_size * self.topology.world_size
        return samples * workload.output_type.num_bytes

    def _slope(self, op: CollectiveOp, group: RankGroup) -> Seconds:
        """Return seconds per byte that a rank sends, at the usual size of a step's outputs."""
        if group.num_ranks == 1:
            return 0.0
        columns = sum(each.embedding_dim * each.num_features for each in self.workload.tables)
        usual = max(1.0, self._column_bytes * columns / self.topology.world_size)
        time = collective_time(op, np.array([usual, 2 * usual]), group, self.topology.hardware)
        return float(time[1] - time[0]) / usual

    @cached_property
    def replicas(self) -> ReplicaTimes:
        """Seconds of every table's dense update and all-reduce, if it were replicated."""
        workload, topology = self.workload, self.topology
        sizes = [table.weight_bytes for table in workload.tables]
        updates = np.array([
            replica_update_time(workload, topology.hardware, size) for size in sizes
        ])
        if topology.world_size == 1:
            return ReplicaTimes(updates, np.zeros(len(sizes)))
        summed = USUAL_BUCKET_BYTES + np.array([0.0, *sizes])
        time = collective_time(CollectiveOp.ALL_REDUCE, summed, self._everyone, topology.hardware)
        return ReplicaTimes(updates, time[1:] - time[0])

    def of(self, shardings: Sequence[TableSharding]) -> list[list[ShardTime]]:
        """Return the seconds of all shards of some shardings, in their order; ranks do not count.

        Several may be of one table.
        """
        places = {table.name: place for place, table in enumerate(self.workload.tables)}
        keys = [list(self._keys(each)) for each in shardings]
        distinct: dict[_Key, tuple[TableSharding, Shard]] = {}
        for sharding, own in zip(shardings, keys, strict=True):
            for key, shard in own:
                distinct.setdefault(key, (sharding, shard))
        if not distinct:
            return []
        times = self._times(
            LookupShards.of([
                lookup_shard(
                    self.workload, self.topology, self.workload.table(each.table), each, shard
                )
                for each, shard in distinct.values()
            ]),
            kind=np.array([KINDS[each.sharding_type] for each, _ in distinct.values()]),
            table=np.array([places[each.table] for each, _ in distinct.values()]),
        )
        known = dict(zip(distinct, times, strict=True))
        return [[known[key] for key, _ in own] for own in keys]

    def _keys(self, sharding: TableSharding) -> Iterator[tuple[_Key, Shard]]:
        """Yield every shard, and what its seconds depend on."""
        hashed = is_hashed(self.workload.table(sharding.table).inputs)
        kind = sharding.sharding_type, sharding.compute_kernel, sharding.cache_load_factor
        for shard in sharding.shards:
            place = 0 if hashed else shard.row_offset
            yield (sharding.table, *kind, place, shard.num_rows, shard.num_columns), shard

    def _times(self, shards: LookupShards, *, kind: Places, table: Places) -> list[ShardTime]:
        """Return the seconds of shards with types, by place in ``TYPES``, and tables, by place.

        The passes of a lookup share its seconds as they share those of its kernels.
        """
        hardware = self.topology.hardware
        loads = shard_loads(self.workload, self.topology, shards)
        whole = lookup_time(loads.traffic, hardware, weighted=shards.is_weighted > 0)
        share = forward_time(loads.traffic, hardware) / np.maximum(whole, np.finfo(float).tiny)
        lookups = self.lookups(loads.traffic, shards.is_weighted)
        per_column = np.array([self.exchanges.get(each, ColumnTimes()) for each in TYPES])[kind]
        sent, both = loads.columns * per_column.T
        replicated = kind == KINDS[ShardingType.DATA_PARALLEL]
        id_bytes = self.workload.index_bytes + WEIGHT_BYTES * shards.is_weighted
        sent_ids = ~replicated * loads.ids * id_bytes
        columns = (
            share * lookups,
            sent,
            (1.0 - share) * lookups + replicated * self.replicas.update[table],
            both - sent + replicated * self.replicas.all_reduce[table],
            loads.fetch_time,
            sent_ids * self._slope(CollectiveOp.ALL_TO_ALL, self._everyone),
        )
        return [ShardTime(*each) for each in np.array(columns).T.tolist()]
