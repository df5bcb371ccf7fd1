"""What every option of one table puts into a step's formulas, as a mean over ranks.

The features are those of ``step.template``: what the durations of a step are formulas of.
They are exact but for two things that only lower them: a UVM cache has every row for its speed,
and none for its size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes
from costmodel.domain.blocks import like_row_blocks, num_row_blocks
from costmodel.domain.hardware import Topology
from costmodel.domain.lengths import fullest_batch
from costmodel.domain.plan import ComputeKernel, ShardingType, column_counts
from costmodel.domain.validity import allowed_kernels, allowed_types, fixed_block_ranks
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.engine.timer import Signature
from costmodel.kernels.embedding import lookup_rates
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.traffic import WEIGHT_GRADIENT_RATIO, Traffic
from costmodel.memory.storage import ShardFactors, shard_bytes, shard_factors, stacked_factors
from costmodel.step.groups import GroupKey, KernelKey, group_key, kernel_key
from costmodel.step.loads import shard_loads
from costmodel.step.template import KERNEL_FEATURES, PLAN_FEATURES, RANK_FEATURES


class Part(IntEnum):
    """A lookup kernel's time in seconds, by what bounds it."""

    FORWARD_HBM = 0
    FORWARD_L2 = 1
    FORWARD_OTHER = 2
    """Beside the longer one of the two above."""
    BACKWARD_HBM = 3
    BACKWARD_L2 = 4
    BACKWARD_IDS = 5
    """What adding up every id's gradient takes."""
    BACKWARD_OTHER = 6
    """Beside the longest one of the three above."""
    HERE = 7
    """Not a time: 1 where the kernel has work on a rank that holds a shard of the first table, for
    that table."""


Floats: TypeAlias = NDArray[np.float64]
GroupKernel: TypeAlias = tuple[GroupKey, KernelKey]
OptionKey: TypeAlias = tuple[ShardingType, ComputeKernel, int]
"""How a table is sharded: type, kernel, column blocks."""
GROUP_FEATURES = (*RANK_FEATURES, *PLAN_FEATURES)
"""As in templates, but for ``present``: the share of a module's tables that are in the group, which
is at most whether the group is there."""
KERNEL_VALUES = (*KERNEL_FEATURES, *Part)
"""What a lookup kernel has of an option."""
WIDTH = len(GROUP_FEATURES) + len(KERNEL_VALUES)
"""Numbers that describe an option."""
_NO_CACHE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundOptions:
    """Ways of sharding tables, table by table; arrays have a row for every one of them."""

    table: NDArray[np.intp]
    """Its table's number."""
    kernels: tuple[GroupKernel, ...]
    """Groups and kernels that any of them has."""
    kernel: NDArray[np.intp]
    """Its group and kernel, by their place there."""
    values: Floats
    """``GROUP_FEATURES``, ``KERNEL_VALUES``: means over ranks where they have a value on each."""
    memory: Floats
    """HBM over all ranks."""
    largest: Floats
    """HBM of the largest shard."""
    alone: Floats
    """Forward and backward of the largest shard on the rank that has it, were it alone."""
    busy: Floats
    """Share of the ranks that look anything up, at least: those with one column block; 0 where a
    shard has nothing to look up."""

    def signature(self, some: NDArray[np.intp] | None = None) -> Signature:
        """Return every sharding group of some of them (all) and its lookup kernels, in order."""
        used = np.unique(self.kernel if some is None else self.kernel[some])
        kernels: dict[GroupKey, set[KernelKey]] = {}
        for group, kernel in (self.kernels[place] for place in used):
            kernels.setdefault(group, set()).add(kernel)
        return tuple((key, tuple(sorted(kernels[key]))) for key in sorted(kernels))

    def busy_shares(self, groups: Iterable[GroupKey]) -> dict[GroupKey, float]:
        """Return on what share of the ranks groups have work at least, in plans that have them."""
        members = {group: [group == own for own, _ in self.kernels] for group in groups}
        return {
            group: float(self.busy[np.array(member)[self.kernel]].min(initial=1.0))
            for group, member in members.items()
        }

    def some(self, kept: NDArray[np.bool_]) -> "BoundOptions | None":
        """Return those that are kept; None where a table loses all."""
        if not np.bincount(self.table[kept], minlength=self.table[-1] + 1).all():
            return None
        arrays = {
            each.name: getattr(self, each.name)[kept]
            for each in fields(self)
            if each.name != "kernels"
        }
        return BoundOptions(kernels=self.kernels, **arrays)


@dataclass(frozen=True)
class OptionFeatures:
    """Describes options of a workload's tables."""

    workload: Workload
    topology: Topology

    def all(self, go_on: Callable[[], bool]) -> BoundOptions:
        """Describe every valid option, offered by sharders or not, but for hopeless ones.

        Table by table, those that move most bytes first, for as long as ``go_on`` is true.
        """
        busiest = sorted(self.workload.tables, key=_work, reverse=True)
        return self._described((table, tuple(self._keys(table))) for table in busiest if go_on())

    def some(self, keys: Sequence[Sequence[OptionKey]]) -> BoundOptions:
        """Describe some options of every table."""
        return self._described(zip(self.workload.tables, keys, strict=True))

    def _described(
        self, keys: Iterable[tuple[EmbeddingTable, Sequence[OptionKey]]]
    ) -> BoundOptions:
        cuts = _Cuts(self.workload, self.topology)
        kernels: dict[GroupKernel, int] = {}
        cut, kernel, counts = [], [], []
        for table, own in keys:
            cuts.begin(table)
            counts.append(len(own))
            for kind, compute_kernel, count in own:
                pair = group_key(table, kind), kernel_key(table, compute_kernel)
                kernel.append(kernels.setdefault(pair, len(kernels)))
                cut.append(cuts.number(kind, compute_kernel, count))
        described, which = cuts.described(), np.array(cut, dtype=np.intp)
        return BoundOptions(
            table=np.repeat(np.arange(len(counts)), counts),
            kernels=tuple(kernels),
            kernel=np.array(kernel, dtype=np.intp),
            values=described.values[which],
            memory=described.memory[which],
            largest=described.largest[which],
            alone=described.alone[which],
            busy=described.busy[which],
        )

    def _keys(self, table: EmbeddingTable) -> Iterator[OptionKey]:
        """Yield types, kernels and splits that are valid, but for hopeless ones."""
        for kind in allowed_types(self.workload, table):
            counts = self._column_counts(table, kind)
            for kernel, count in product(allowed_kernels(table, kind), counts):
                if not self._is_hopeless(table, kind, kernel, table.embedding_dim // count):
                    yield kind, kernel, count

    def _column_counts(self, table: EmbeddingTable, kind: ShardingType) -> tuple[int, ...]:
        """Return numbers of column blocks; where the ranks are given, the one number they leave."""
        if table.ranks:
            block_ranks = fixed_block_ranks(self.workload, self.topology, table, kind)
            return () if block_ranks is None else (len(block_ranks) or 1,)
        if kind.splits_columns:
            return column_counts(table.embedding_dim, table.min_shard_dim)
        return (1,)

    def _is_hopeless(
        self, table: EmbeddingTable, kind: ShardingType, kernel: ComputeKernel, width: int
    ) -> bool:
        """Return whether ``fused`` is allowed, too, and ``dense`` moves and keeps more than it.

        ``dense`` writes a gradient of the whole shard, at least 4 bytes for each element hit, where
        ``fused`` reads and writes rows and their state (``kernels.shard_traffic``).
        """
        fused = ComputeKernel.FUSED in allowed_kernels(table, kind)
        if kernel is not ComputeKernel.DENSE or not fused:
            return False
        state = self.workload.optimizer_of(table).state_bytes_per_row(width)
        whole = 32.0 * (-(-width * table.data_type.num_bytes // 32) + -(-state // 32))
        if 2.0 * whole > 12.0 * width:
            return False
        one, other = (
            self._memory(table, kind, each, width) for each in (ComputeKernel.FUSED, kernel)
        )
        return one <= other

    def _memory(
        self, table: EmbeddingTable, kind: ShardingType, kernel: ComputeKernel, width: int
    ) -> Bytes:
        """Return the HBM of one column block."""
        factors = shard_factors(self.workload, self.topology, table, kind, kernel, _NO_CACHE)
        _, lengths, repeats = np.array(
            like_row_blocks(self.topology, table, kind), dtype=np.float64
        ).T
        sizes = shard_bytes(factors, lengths, float(width), lengths / table.num_embeddings)
        return float(repeats @ sizes.total)


class _Described(NamedTuple):
    values: Floats
    memory: Floats
    largest: Floats
    alone: Floats
    busy: Floats


class _Cuts:
    """Ways of cutting tables: types that cut alike differ by their groups only."""

    def __init__(self, workload: Workload, topology: Topology) -> None:
        self.workload, self.topology = workload, topology
        self.modules = Counter(_module(table) for table in workload.tables)
        self.fullest = fullest_batch(workload, topology.world_size)
        self.known: dict[object, int] = {}
        self.of_table: dict[tuple[ShardingType, ComputeKernel], int] = {}
        self.same: dict[ShardFactors, int] = {}
        self.cuts: list[tuple[float, ...]] = []
        """What all shards of a cut have in common, for every cut."""
        self.firsts: list[int] = []
        """And its first shard."""
        self.shards: list[LookupShard] = []
        """The different shards of every cut."""
        self.copies: list[int] = []
        """How many are alike."""
        self.factors: list[ShardFactors] = []
        self.factor: list[int] = []
        """The place in ``factors`` of every shard's."""

    def begin(self, table: EmbeddingTable) -> None:
        """Cut this table next."""
        self.table = table
        self.known, self.of_table, self.same = {}, {}, {}

    def number(self, kind: ShardingType, kernel: ComputeKernel, count: int) -> int:
        """Return the number of a cut of the present table."""
        replicated = kind is ShardingType.DATA_PARALLEL
        blocks, factor = num_row_blocks(self.topology, kind), self._factor(kind, kernel)
        key = (replicated, kind.splits_rows, blocks, kernel, count, factor)
        if key not in self.known:
            self.known[key] = len(self.firsts)
            self._add(kind, kernel, count, factor)
        return self.known[key]

    def _add(self, kind: ShardingType, kernel: ComputeKernel, count: int, factor: int) -> None:
        table, replicated = self.table, kind is ShardingType.DATA_PARALLEL
        samples = self.workload.local_batch_size * (1 if replicated else self.topology.world_size)
        width = table.embedding_dim // count
        self.cuts.append((
            1.0 / self.modules[_module(table)],
            table.num_bags,
            table.embedding_dim * table.output_rows_per_sample,
            replicated * table.weight_bytes,
            float(table is self.workload.tables[0]),
            count,
        ))
        self.firsts.append(len(self.shards))
        caching = kernel is ComputeKernel.FUSED_UVM_CACHING
        for first, length, repeats in like_row_blocks(self.topology, table, kind):
            self.shards.append(LookupShard(
                table=table, first_row=first, num_rows=length, num_columns=width,
                num_samples=samples, compute_kernel=kernel,
                cache_load_factor=1.0 if caching else table.cache_share,
                fullness=self.fullest if replicated else 1.0,
                batches_in_cache=self.workload.pipeline.batches_in_cache,
            ))  # fmt: skip
            self.copies.append(count * repeats)
            self.factor.append(factor)

    def _factor(self, kind: ShardingType, kernel: ComputeKernel) -> int:
        """Return the place of what memory needs; the same for types that need the same."""
        if (kind, kernel) not in self.of_table:
            made = shard_factors(self.workload, self.topology, self.table, kind, kernel, _NO_CACHE)
            if made not in self.same:
                self.same[made] = len(self.factors)
                self.factors.append(made)
            self.of_table[kind, kernel] = self.same[made]
        return self.of_table[kind, kernel]

    def described(self) -> _Described:
        """Return all cuts as arrays."""
        if not self.shards:
            return _Described(np.zeros((0, WIDTH)), *[np.zeros(0)] * 4)
        world = self.topology.world_size
        copies, shards = np.array(self.copies, dtype=np.float64), LookupShards.of(self.shards)
        present, per_shard, table_columns, parameters, here, columns = np.array(self.cuts).T

        def total(of_shards: Floats) -> Floats:
            sums: Floats = np.add.reduceat((of_shards.T * copies).T, self.firsts)
            return sums

        features = total(np.ones(len(copies))) * per_shard
        loads = shard_loads(self.workload, self.topology, shards)
        ids = total(loads.ids) / world
        values = {
            "present": present,
            "features": features / world,
            "ids": ids,
            "columns": total(loads.columns) / world,
            "fetch_time": total(loads.fetch_time) / world,
            "stashed_bytes": total(loads.stashed_bytes) / world,
            "table_columns": table_columns,
            "sent_ids": ids,
            "sent_features": features,
            "tables": np.ones(len(present)),
        }
        parts, alone = self._lookups(loads.traffic.T, shards.is_weighted)
        factors = stacked_factors(self.factors, [1] * len(self.factors))
        sizes = shard_bytes(
            factors.taken(np.array(self.factor)),
            shards.num_rows,
            shards.num_columns,
            shards.num_rows / np.array([shard.table.num_embeddings for shard in self.shards]),
        )
        return _Described(
            values=np.column_stack((
                *(values[name] for name in GROUP_FEATURES),
                parameters,
                total(parts) / world,
                here,
            )),
            memory=total(np.asarray(sizes.total)),
            largest=np.maximum.reduceat(np.asarray(sizes.total), self.firsts),
            alone=np.maximum.reduceat(alone, self.firsts),
            busy=np.where(
                np.minimum.reduceat(loads.traffic[:, Traffic.LOOKUPS], self.firsts) > 0,
                total(np.ones(len(copies))) / (columns * world),
                0.0,
            ),
        )

    def _lookups(self, traffic: Floats, weighted: Floats) -> tuple[Floats, Floats]:
        """Return the parts of every shard's lookup, and what it takes alone."""
        rates, gpu = lookup_rates(self.topology.hardware), self.topology.hardware.gpu
        update = gpu.backward_correction.least_factor
        read = min(1.0, gpu.forward_correction.least_factor)  # gradients of weights have none
        sort = update * traffic[Traffic.KEYS] / rates.sort_rate
        parts = (
            read * traffic[Traffic.FORWARD_HBM] / rates.lookup_bandwidth,
            read * traffic[Traffic.FORWARD_L2] / rates.gather_bandwidth,
            traffic[Traffic.FORWARD_UVM] / rates.uvm_bandwidth,
            update * traffic[Traffic.BACKWARD_HBM] / rates.update_bandwidth,
            update * traffic[Traffic.BACKWARD_L2] / rates.gather_bandwidth,
            update * traffic[Traffic.LOOKUPS] * rates.gradient_time,
            sort + traffic[Traffic.BACKWARD_UVM] / rates.uvm_bandwidth,
        )
        longest = read * traffic[Traffic.CHAIN]
        forward = np.maximum.reduce([parts[0], parts[1], longest]) + parts[2]
        gathered = forward * (1.0 + WEIGHT_GRADIENT_RATIO * weighted)
        return np.column_stack(parts), gathered + np.maximum.reduce(parts[3:6]) + parts[6]


def _module(table: EmbeddingTable) -> tuple[bool, bool]:
    """Return what decides which tables can be in one group."""
    return group_key(table, ShardingType.TABLE_WISE)[:2]


def _work(table: EmbeddingTable) -> float:
    """Return what decides how much of a step a table is: the elements looked up per sample."""
    return table.pooling_factor * table.embedding_dim * table.num_features
