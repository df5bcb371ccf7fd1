"""What one option of one table adds to the step, in seconds, were it alone.

A separable stand-in for the objective, to choose options and balance ranks by before the plan is
whole: lookups at the marginal cost of their traffic, exchanges at the slope of the collective's
curve around the size a balanced plan would have. No launch or link latencies: tables of a group
share them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from costmodel.base.units import Seconds
from costmodel.domain.blocks import num_row_blocks
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable
from costmodel.kernels.collectives import RankGroup, collective_time
from costmodel.kernels.embedding import lookup_time
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.traffic import BACKWARD_KERNELS
from costmodel.step.loads import lookup_shard, shard_loads
from costmodel.step.optimizer import replica_update_time
from sharders.problem.options import TableOption, first_shard
from sharders.problem.sharding_problem import ShardingProblem


@dataclass(frozen=True, kw_only=True)
class OptionCost:
    """Cost of an option, per shard and in all."""

    option: TableOption
    shard_load: Seconds
    """Lookup and exchange that the largest shard adds to its rank."""
    total_load: Seconds
    """The same over all shards and ranks."""


class Costs(Protocol):
    """Gives every option of every table a cost."""

    def cost(self, table: EmbeddingTable, option: TableOption) -> OptionCost:
        """Return the cost of one option of one table."""
        ...


@dataclass(frozen=True)
class OptionCosts:
    """Costs of every option of every table of a problem, computed when first asked for."""

    problem: ShardingProblem

    def cost(self, table: EmbeddingTable, option: TableOption) -> OptionCost:
        """Return the cost of one option of one table."""
        known, key = self.problem.known_costs, (table.name, option)
        if key not in known:
            self.some(table, (*self.problem.options[table.name], option))
        return known[key]

    def some(self, table: EmbeddingTable, options: Sequence[TableOption]) -> list[OptionCost]:
        """Return the costs of some options of one table; no others are computed."""
        self._add([(table, option) for option in dict.fromkeys(options)])
        return [self.problem.known_costs[table.name, option] for option in options]

    def of(self, tables: Sequence[EmbeddingTable]) -> int:
        """Compute the costs of all options of some tables, together; return how many these are."""
        options = self.problem.options
        pairs = [(table, option) for table in tables for option in options[table.name]]
        self._add(pairs)
        return len(pairs)

    def all(self) -> Iterator[Sequence[OptionCost]]:
        """Yield the costs of every table's options; computed together, a tenth of the time."""
        tables, options = self.problem.workload.tables, self.problem.options
        self.of(tables)
        for table in tables:
            yield [self.problem.known_costs[table.name, option] for option in options[table.name]]

    def _add(self, pairs: Sequence[tuple[EmbeddingTable, TableOption]]) -> None:
        """Compute the costs of options that are not known yet."""
        known, topology = self.problem.known_costs, self.problem.topology
        missing = [(table, o) for table, o in pairs if (table.name, o) not in known]
        if not missing:
            return
        shards, which = self._first_shards(missing)
        loads = shard_loads(self.problem.workload, topology, LookupShards.of(shards))
        weighted = np.array([shard.table.weighted for shard in shards])
        kernels = 1 + BACKWARD_KERNELS + weighted
        seconds = lookup_time(loads.traffic, topology.hardware, weighted=weighted)
        lookups = np.maximum(0.0, seconds - kernels * topology.hardware.gpu.kernel_latency).tolist()
        columns = loads.columns.tolist()
        for (table, option), place in zip(missing, which, strict=True):
            load = lookups[place] + columns[place] * self._column_time(option.sharding_type)
            load += self._replica_time(table, option)
            total = load * option.num_shards(topology)
            known[table.name, option] = OptionCost(option=option, shard_load=load, total_load=total)

    def _first_shards(
        self, pairs: Sequence[tuple[EmbeddingTable, TableOption]]
    ) -> tuple[list[LookupShard], list[int]]:
        """Return options' first shards, and which each has; types that cut alike share it."""
        problem, topology = self.problem, self.problem.topology
        shards: list[LookupShard] = []
        which: list[int] = []
        known: dict[tuple[object, ...], int] = {}
        row_blocks = {kind: num_row_blocks(topology, kind) for kind in ShardingType}
        for table, option in pairs:
            kind, count = option.sharding_type, option.num_column_shards
            cut = table.name, row_blocks[kind], count, kind is ShardingType.DATA_PARALLEL
            alike = *cut, option.compute_kernel, option.cache_load_factor
            if alike not in known:
                known[alike] = len(shards)
                first = first_shard(table, topology, option)
                shards.append(lookup_shard(problem.workload, topology, table, option, first))
            which.append(known[alike])
        return shards, which

    def _column_time(self, sharding_type: ShardingType) -> Seconds:
        """Seconds of the forward and backward exchange per output column of a shard."""
        return self._column_times.get(sharding_type, 0.0)

    @cached_property
    def _column_times(self) -> dict[ShardingType, Seconds]:
        world = self.problem.topology.world_size
        local = self.problem.topology.local_world_size
        everyone = RankGroup(num_ranks=world, ranks_per_node=local)
        node = RankGroup(num_ranks=local, ranks_per_node=local)
        across = RankGroup(num_ranks=world // local, ranks_per_node=1)
        exchange = 2 * self._slope(CollectiveOp.ALL_TO_ALL, everyone)
        reduce = self._slope(CollectiveOp.REDUCE_SCATTER, everyone)
        reduce += self._slope(CollectiveOp.ALL_GATHER, everyone)
        inside = self._slope(CollectiveOp.REDUCE_SCATTER, node)
        inside += self._slope(CollectiveOp.ALL_GATHER, node)
        inside += 2 * self._slope(CollectiveOp.ALL_TO_ALL, across) / local
        return {
            ShardingType.TABLE_WISE: exchange,
            ShardingType.COLUMN_WISE: exchange,
            ShardingType.TABLE_COLUMN_WISE: exchange,
            ShardingType.ROW_WISE: reduce,
            ShardingType.TABLE_ROW_WISE: inside,
            ShardingType.GRID_SHARD: inside,
        }

    def _slope(self, op: CollectiveOp, group: RankGroup) -> Seconds:
        """Seconds per output column of one rank, where the collective has its usual size."""
        workload, topology = self.problem.workload, self.problem.topology
        if group.num_ranks == 1:
            return 0.0
        column = workload.local_batch_size * topology.world_size * workload.output_type.num_bytes
        columns = sum(table.embedding_dim * table.num_features for table in workload.tables)
        usual = max(1.0, column * columns / topology.world_size)
        time = collective_time(op, np.array([usual, 2 * usual]), group, topology.hardware)
        return float(time[1] - time[0]) / usual * column

    def _replica_time(self, table: EmbeddingTable, option: TableOption) -> Seconds:
        """All-reduce and dense update of a table replicated on every rank."""
        if option.sharding_type is not ShardingType.DATA_PARALLEL:
            return 0.0
        topology = self.problem.topology
        size = table.weight_bytes
        everyone = RankGroup(
            num_ranks=topology.world_size, ranks_per_node=topology.local_world_size
        )
        update_time = replica_update_time(self.problem.workload, topology.hardware, size)
        if topology.world_size == 1:
            return update_time
        sizes = np.array([25e6, 25e6 + size])
        time = collective_time(CollectiveOp.ALL_REDUCE, sizes, everyone, topology.hardware)
        return update_time + float(time[1] - time[0])
