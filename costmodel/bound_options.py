"""What every way of sharding one table puts into a step's formulas, as a mean over ranks.

The features are those of ``execution.template``: what the durations of a step are formulas of.
They are exact but for two things that only lower them: a UVM cache has every row for its speed,
and none for its size.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import product
from typing import TypeAlias

import numpy as np

from costmodel.distribution import is_hashed
from costmodel.execution.groups import GroupKey, KernelKey, group_key
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES
from costmodel.hardware import Topology
from costmodel.kernels.embedding import Caches, LookupShard, Traffic, gpu_caches, shard_traffic
from costmodel.plan import ComputeKernel, ShardingType, column_counts, row_block_sizes, row_blocks
from costmodel.storage import shard_bytes, shard_factors
from costmodel.units import Bytes, Seconds
from costmodel.validity import allowed_kernels, allowed_types, fixed_homes
from costmodel.workload import EmbeddingTable, Workload


class Part(IntEnum):
    """A lookup kernel's time in seconds, by what bounds it."""

    FORWARD_HBM = 0
    FORWARD_L2 = 1
    FORWARD_OTHER = 2
    """Beside the longer one of the two above."""
    BACKWARD_HBM = 3
    BACKWARD_L2 = 4
    BACKWARD_OTHER = 5
    HERE = 6
    """Not a time: 1 where the kernel has work on a rank that holds a shard of the first table, for
    that table."""


Way: TypeAlias = tuple[ShardingType, ComputeKernel, int]
"""How a table is sharded: type, kernel, column blocks."""
GROUP_FEATURES = (*RANK_FEATURES, *PLAN_FEATURES)
"""As in templates, but for ``present``: the share of a module's tables that are in the group, which
is at most whether the group is there."""
WIDTH = len(GROUP_FEATURES) + len(Part)
"""Numbers that describe an option."""
_NO_CACHE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOption:
    """One type, kernel and split of one table."""

    group: GroupKey
    kernel: KernelKey
    num_column_shards: int
    values: tuple[float, ...]
    """``GROUP_FEATURES``, then ``Part``: means over ranks where they have a value on each."""
    memory: Bytes
    """HBM over all ranks."""
    alone: Seconds
    """Forward and backward of the largest shard on the rank that has it, were it alone."""


@dataclass(frozen=True)
class OptionFeatures:
    """Lists the options of a workload's tables: all that are valid, offered by sharders or not."""

    workload: Workload
    topology: Topology

    @cached_property
    def _module_sizes(self) -> Counter[tuple[bool, bool]]:
        return Counter(_module(table) for table in self.workload.tables)

    @cached_property
    def _caches(self) -> Caches:
        return gpu_caches(self.topology.hardware.gpu)

    def of(self, table: EmbeddingTable) -> list[BoundOption]:
        """Return every option of a table."""
        return self.some(table, self._ways(table))

    def some(self, table: EmbeddingTable, ways: Iterable[Way]) -> list[BoundOption]:
        """Return some options of a table."""
        known: dict[object, BoundOption] = {}
        options = []
        for kind, kernel, count in ways:
            replicated = kind is ShardingType.DATA_PARALLEL
            # types that cut alike differ by their group only
            key = (replicated, kind.splits_rows, self._copies(kind), kernel, count)
            if key not in known:
                known[key] = self._option(table, kind, kernel, count)
            options.append(replace(known[key], group=group_key(table, kind)))
        return options

    def _ways(self, table: EmbeddingTable) -> Iterator[Way]:
        """Yield types, kernels and splits that are valid, but for hopeless ones."""
        for kind in allowed_types(self.workload, table):
            counts = self._column_counts(table, kind)
            for kernel, count in product(allowed_kernels(table, kind), counts):
                if not self._is_hopeless(table, kind, kernel, table.embedding_dim // count):
                    yield kind, kernel, count

    def _column_counts(self, table: EmbeddingTable, kind: ShardingType) -> tuple[int, ...]:
        """Return numbers of column blocks; where the ranks are given, the one number they leave."""
        if table.ranks:
            homes = fixed_homes(self.workload, self.topology, table, kind)
            return () if homes is None else (len(homes) or 1,)
        if kind.splits_columns:
            return column_counts(table.embedding_dim, table.min_shard_dim)
        return (1,)

    def _is_hopeless(
        self, table: EmbeddingTable, kind: ShardingType, kernel: ComputeKernel, width: int
    ) -> bool:
        """Return whether ``fused`` is allowed, too, and ``dense`` moves and keeps more than it.

        ``dense`` writes a gradient of the whole shard, at least 4 bytes for each element hit, where
        ``fused`` reads and writes rows and their state (``embedding.shard_traffic``).
        """
        fused = ComputeKernel.FUSED in allowed_kernels(table, kind)
        if kernel is not ComputeKernel.DENSE or not fused:
            return False
        state = self.workload.optimizer.state_bytes_per_row(width)
        whole = 32.0 * (-(-width * table.data_type.num_bytes // 32) + -(-state // 32))
        if 2.0 * whole > 12.0 * width:
            return False
        memory = (self._memory(table, kind, each, width) for each in (ComputeKernel.FUSED, kernel))
        return next(memory) <= next(memory)

    def _option(
        self, table: EmbeddingTable, kind: ShardingType, kernel: ComputeKernel, count: int
    ) -> BoundOption:
        world = self.topology.world_size
        width, alone = table.embedding_dim // count, 0.0
        ids = columns = features = 0.0
        parts = [0.0] * Part.HERE
        for shard, repeats in self._shards(table, kind, kernel, width):
            copies = repeats * count
            times, busy = self._lookup(shard)
            parts = [
                sum_ + time * (copies / world) for sum_, time in zip(parts, times, strict=True)
            ]
            alone = max(alone, busy)
            ids += copies * shard.num_lookups
            columns += copies * width * shard.num_bags / shard.num_samples
            features += copies * table.num_features
        replicated = kind is ShardingType.DATA_PARALLEL
        values = {
            "present": 1.0 / self._module_sizes[_module(table)],
            "features": features / world,
            "ids": ids / world,
            "columns": columns / world,
            "table_columns": table.embedding_dim * table.output_rows_per_sample,
            "sent_ids": ids / world,
            "sent_features": features,
            "parameter_bytes": replicated * 4.0 * table.num_embeddings * table.embedding_dim,
        }
        return BoundOption(
            group=group_key(table, kind),
            kernel=KernelKey(kernel, table.data_type),
            num_column_shards=count,
            values=(
                *(values[name] for name in GROUP_FEATURES),
                *parts,
                float(table is self.workload.tables[0]),
            ),
            memory=count * self._memory(table, kind, kernel, width),
            alone=alone,
        )

    def _shards(
        self, table: EmbeddingTable, kind: ShardingType, kernel: ComputeKernel, width: int
    ) -> Iterator[tuple[LookupShard, int]]:
        """Yield the different shards of one column block, and how many there are of each."""
        replicated = kind is ShardingType.DATA_PARALLEL
        samples = self.workload.local_batch_size * (1 if replicated else self.topology.world_size)
        caching = kernel is ComputeKernel.FUSED_UVM_CACHING
        for first, length, repeats in self._row_blocks(table, kind):
            yield LookupShard(
                table=table, first_row=first, num_rows=length, num_columns=width,
                num_samples=samples, compute_kernel=kernel,
                cache_load_factor=1.0 if caching else table.cache_load_factor,
            ), repeats  # fmt: skip

    def _row_blocks(
        self, table: EmbeddingTable, kind: ShardingType
    ) -> Sequence[tuple[int, int, int]]:
        """Return first row (0 where all rows are alike), length and number of like row blocks."""
        if not kind.splits_rows:
            return ((0, table.num_embeddings, self._copies(kind)),)
        rows, count = table.num_embeddings, self._copies(kind)
        if is_hashed(table.inputs):
            return [(0, *block) for block in row_block_sizes(rows, count)]
        return [(*block, 1) for block in row_blocks(rows, count)]

    def _copies(self, kind: ShardingType) -> int:
        """Return the shards of one column block."""
        if kind in {ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL}:
            return self.topology.world_size
        return self.topology.local_world_size if kind.within_node else 1

    def _lookup(self, shard: LookupShard) -> tuple[tuple[Seconds, ...], Seconds]:
        """Return the parts of a shard's lookup, and what it takes alone."""
        gpu, host = self.topology.hardware.gpu, self.topology.hardware.host
        traffic = shard_traffic(
            shard,
            optimizer=self.workload.optimizer,
            output_type=self.workload.output_type,
            caches=self._caches,
        )
        sort = traffic[Traffic.LOOKUPS] / gpu.sort_rate
        parts = (
            traffic[Traffic.FORWARD_HBM] / (gpu.memory_bandwidth * gpu.lookup_efficiency),
            traffic[Traffic.FORWARD_L2] / gpu.l2_bandwidth,
            traffic[Traffic.FORWARD_UVM] / host.uvm_bandwidth,
            traffic[Traffic.BACKWARD_HBM] / (gpu.memory_bandwidth * gpu.update_efficiency),
            traffic[Traffic.BACKWARD_L2] / gpu.l2_bandwidth,
            sort + traffic[Traffic.BACKWARD_UVM] / host.uvm_bandwidth,
        )
        alone = max(parts[0], parts[1], traffic[Traffic.CHAIN]) + parts[2]
        return parts, alone + max(parts[3], parts[4]) + parts[5]

    def _memory(
        self, table: EmbeddingTable, kind: ShardingType, kernel: ComputeKernel, width: int
    ) -> Bytes:
        """Return the HBM of one column block."""
        factors = shard_factors(self.workload, self.topology, table, kind, kernel, _NO_CACHE)
        _, lengths, repeats = np.array(self._row_blocks(table, kind), dtype=np.float64).T
        sizes = shard_bytes(factors, lengths, float(width), lengths / table.num_embeddings)
        return float(repeats @ sizes.total)


def _module(table: EmbeddingTable) -> tuple[bool, bool]:
    """Return what decides which tables can be in one group."""
    return group_key(table, ShardingType.TABLE_WISE)[:2]


def group_kernels(
    options: Sequence[Sequence[BoundOption]],
) -> tuple[tuple[GroupKey, tuple[KernelKey, ...]], ...]:
    """Return every sharding group and its lookup kernels, in the order of a step."""
    kernels: dict[GroupKey, set[KernelKey]] = {}
    for table in options:
        for option in table:
            kernels.setdefault(option.group, set()).add(option.kernel)
    return tuple((key, tuple(sorted(kernels[key]))) for key in sorted(kernels))
