"""The features that every option of one table adds to a step's formulas, as a mean over ranks.

The features are those of ``step.template``: what the durations of a step are formulas of. They are
exact but for two things that only lower them: a UVM cache has every row for its speed, and none for
its size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from itertools import product
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Mask
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import (
    allowed_kernels,
    allowed_types,
    block_counts,
    fixed_block_ranks,
)
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.engine.timer import Signature
from costmodel.kernels.embedding import lookup_rates
from costmodel.kernels.lookup_shards import KERNELS
from costmodel.kernels.traffic import LINEAR_BAG_RATIO, WEIGHT_GRADIENT_RATIO, Traffic
from costmodel.memory.storage import shard_bytes
from costmodel.step.cuts import (
    KINDS,
    TYPES,
    Cuts,
    GroupKernel,
    OptionCodes,
    cuts_of,
    factors_of,
    kernels_of,
)
from costmodel.step.groups import GroupKey, KernelKey, group_key
from costmodel.step.loads import shard_loads
from costmodel.step.template import KERNEL_FEATURES, PLAN_FEATURES, RANK_FEATURES


class Part(IntEnum):
    """Parts of a lookup kernel's seconds, by what bounds it.

    HBM's and L2's each contain the time of the other that is not hidden behind it.
    """

    FORWARD_HBM = 0
    FORWARD_L2 = 1
    FORWARD_OTHER = 2
    """Besides the longer one of the two above."""
    BACKWARD_HBM = 3
    BACKWARD_L2 = 4
    BACKWARD_IDS = 5
    """Adding up every id's gradient."""
    BACKWARD_OTHER = 6
    """Besides the longest one of the three above."""
    HERE = 7
    """Not a time: 1 if the kernel has work on the rank with a shard of the first table."""


OptionKey: TypeAlias = tuple[ShardingType, ComputeKernel, int]
"""Sharding type, kernel and number of column blocks of a table."""
GROUP_FEATURES = (*RANK_FEATURES, *PLAN_FEATURES)
"""Features of groups as in templates; ``present`` is the share of a module's tables in the group,
which is at most whether the group is there."""
KERNEL_VALUES = (*KERNEL_FEATURES, *Part)
"""Values of an option for its lookup kernel."""
EXCHANGED = ("features", "ids", "columns")
"""Rank features whose amounts collectives send."""
WIDTH = len(GROUP_FEATURES) + len(KERNEL_VALUES)
"""Number of values that describe an option."""
_NO_CACHE = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundOptions:
    """Options of tables, table by table; arrays have a row for each option."""

    table: NDArray[np.intp]
    """Number of the option's table."""
    kernels: tuple[GroupKernel, ...]
    """All (group, kernel) pairs of the options."""
    kernel: NDArray[np.intp]
    """Place of the option's pair in ``kernels``."""
    values: Array
    """``GROUP_FEATURES`` and ``KERNEL_VALUES``; means over ranks if they have a value on each."""
    exchanged: Array
    """``EXCHANGED`` of the largest shard, the largest of each."""
    memory: Array
    """Bytes of HBM over all ranks."""
    largest: Array
    """Bytes of HBM of the largest shard."""
    alone: Array
    """Seconds of forward and backward of the largest shard, if alone on its rank."""
    busy: Array
    """Smallest share of the ranks that look anything up: those with one column block; 0 where a
    shard has nothing to look up."""
    rank: NDArray[np.intp]
    """The rank given to the table if it is a single one; else -1."""
    number: NDArray[np.intp]
    """Place among all options that were described."""

    def signature(self) -> Signature:
        """Return every sharding group and its lookup kernels, in order."""
        used = np.unique(self.kernel)
        kernels: dict[GroupKey, set[KernelKey]] = {}
        for group, kernel in (self.kernels[place] for place in used):
            kernels.setdefault(group, set()).add(kernel)
        return tuple((key, tuple(sorted(kernels[key]))) for key in sorted(kernels))

    @cached_property
    def of_kernels(self) -> list[tuple[GroupKernel, NDArray[np.intp]]]:
        """(group, kernel) pairs, each with the numbers of its options, in order."""
        order = np.argsort(self.kernel.astype(np.int16), kind="stable")
        numbers = np.split(order, np.cumsum(np.bincount(self.kernel, minlength=len(self.kernels))))
        pairs = zip(self.kernels, numbers[:-1], strict=True)
        return [(kernel, rows) for kernel, rows in pairs if len(rows)]

    def largest_of_tables(self, values: Array, groups: Sequence[GroupKey]) -> NDArray[np.float64]:
        """Return the largest values of every table's options in each group; 0 if there are none.

        Parameters
        ----------
        values
            Those of every option, none less than 0, (options, values).
        groups
            All groups, in the order of the result.

        Returns
        -------
            Shape (tables, groups, values).

        """
        largest = np.zeros((self.table[-1] + 1, len(groups), values.shape[1]))
        place = {group: place for place, group in enumerate(groups)}
        for (group, _), rows in self.of_kernels:
            table = self.table[rows]
            first = np.flatnonzero(is_first(table))
            at = table[first], place[group]
            largest[at] = np.maximum(largest[at], np.maximum.reduceat(values[rows], first))
        return largest

    def busy_shares(self, groups: Iterable[GroupKey]) -> dict[GroupKey, float]:
        """Return the smallest share of the ranks with work for each group, if plans have it."""
        members = {group: [group == own for own, _ in self.kernels] for group in groups}
        return {
            group: float(self.busy[np.array(member)[self.kernel]].min(initial=1.0))
            for group, member in members.items()
        }

    def some(self, kept: NDArray[np.bool_]) -> "BoundOptions | None":
        """Return the options kept; None if a table loses all."""
        has_some = np.bincount(self.table[kept], minlength=self.table[-1] + 1).all()
        return self.taken(kept) if has_some else None

    def taken(self, kept: NDArray[np.bool_]) -> "BoundOptions":
        """Return the options kept, which are at least one of every table."""
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
        """Return every valid option, offered by sharders or not, without hopeless ones.

        Tables are described one by one, those that move most bytes first, as long as ``go_on`` is
        true.
        """
        tables = self.workload.tables
        keys = [
            (place, *key)
            for place in sorted(range(len(tables)), key=lambda place: -_work(tables[place]))
            if go_on()
            for key in self._keys(tables[place])
        ]
        codes = OptionCodes.of(keys)
        options = self.some(codes)
        kept = options.taken(~self._is_hopeless(codes, options.memory))
        return replace(kept, number=np.arange(len(kept.table)))

    def some(self, codes: OptionCodes) -> BoundOptions:
        """Return the options of some ways, table by table; sizes of their caches do not count."""
        kernels, kernel = kernels_of(self.workload.tables, codes)
        every_row = codes._replace(cache_load_factor=np.ones(len(codes.table)))
        cuts = cuts_of(self.workload, self.topology, every_row)
        described = _Cuts(self.workload, self.topology, cuts).described()
        which = cuts.of_option
        return BoundOptions(
            table=np.cumsum(is_first(codes.table)) - 1,
            kernels=kernels,
            kernel=kernel,
            values=described.values[which],
            exchanged=described.exchanged[which],
            memory=described.memory[which],
            largest=described.largest[which],
            alone=described.alone[which],
            busy=described.busy[which],
            rank=self._ranks(codes),
            number=np.arange(len(which)),
        )

    def _ranks(self, codes: OptionCodes) -> NDArray[np.intp]:
        """Return the rank given to each option's table if it is a single one; else -1."""
        given = [table.ranks for table in self.workload.tables]
        of_table = np.array([ranks[0] if len(ranks) == 1 else -1 for ranks in given], dtype=np.intp)
        spread = np.array([kind.within_node or kind.everywhere for kind in TYPES])
        return np.where(spread[codes.kind], -1, of_table[codes.table])

    def _keys(self, table: EmbeddingTable) -> Iterator[OptionKey]:
        """Yield valid types, kernels and splits of a table."""
        for kind in allowed_types(self.workload, table):
            counts = self._column_counts(table, kind)
            for kernel, count in product(allowed_kernels(self.topology, table, kind), counts):
                yield kind, kernel, count

    def _column_counts(self, table: EmbeddingTable, kind: ShardingType) -> tuple[int, ...]:
        """Return numbers of column blocks; the one number that given ranks leave."""
        if table.ranks:
            block_ranks = fixed_block_ranks(self.workload, self.topology, table, kind)
            return () if block_ranks is None else (len(block_ranks) or 1,)
        return block_counts(self.topology, table, kind)

    def _is_hopeless(self, codes: OptionCodes, memory: Array) -> Mask:
        """Return for which options ``fused``, also allowed, moves and keeps less than ``dense``.

        ``dense`` writes a gradient of the whole shard, at least 4 bytes for each element hit, where
        ``fused`` reads and writes rows and their state (``kernels.shard_traffic``).

        Parameters
        ----------
        codes
            Options of tables.
        memory
            Bytes of HBM of each.

        """
        if self.topology.hardware.gpu.update_costs:
            return np.zeros(len(memory), dtype=bool)  # a core's backwards have times of their own
        blocks = codes.num_column_shards
        ways = (codes.table * len(TYPES) + codes.kind) * (1 + blocks.max(initial=0)) + blocks
        fused = np.flatnonzero(codes.kernel == KERNELS[ComputeKernel.FUSED])
        least = dict(zip(ways[fused].tolist(), memory[fused].tolist(), strict=True))
        hopeless = np.zeros(len(memory), dtype=bool)
        for place in np.flatnonzero(codes.kernel == KERNELS[ComputeKernel.DENSE]).tolist():
            table = self.workload.tables[codes.table[place]]
            width = table.embedding_dim // int(blocks[place])
            state = self.workload.optimizer_of(table).state_bytes_per_row(width)
            whole = 32.0 * (-(-width * table.data_type.num_bytes // 32) + -(-state // 32))
            moves_less = 2.0 * whole <= 12.0 * width
            hopeless[place] = moves_less and least.get(int(ways[place]), inf) <= memory[place]
        return hopeless


class _Described(NamedTuple):
    values: Array
    exchanged: Array
    memory: Array
    largest: Array
    alone: Array
    busy: Array


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Describes how tables are cut."""

    workload: Workload
    topology: Topology
    cuts: Cuts

    def described(self) -> _Described:
        """Return the features of all cuts, a row per cut in every array."""
        tables, cuts, shards = self.workload.tables, self.cuts, self.cuts.shards
        world, firsts = self.topology.world_size, self.cuts.first[:-1]
        if not len(firsts):
            no_shards = np.zeros((0, WIDTH)), np.zeros((0, len(EXCHANGED)))
            return _Described(*no_shards, *[np.zeros(0)] * 4)
        dims = np.array([float(table.embedding_dim) for table in tables])[cuts.table]
        blocks = dims // shards.num_columns
        copies, columns = blocks * cuts.copies, blocks[firsts]

        def total(of_shards: Array) -> Array:
            sums: Array = np.add.reduceat((of_shards.T * copies).T, firsts)
            return sums

        features = total(shards.table_bags)
        loads = shard_loads(self.workload, self.topology, shards)
        ids = total(loads.ids) / world
        modules = Counter(map(_module, tables))
        table, replicated = cuts.table[firsts], cuts.kind == KINDS[ShardingType.DATA_PARALLEL]
        weights = np.array([each.weight_bytes for each in tables])[table]
        outputs = np.array([each.embedding_dim * each.output_rows_per_sample for each in tables])
        values = {
            "present": np.array([1.0 / modules[_module(each)] for each in tables])[table],
            "features": features / world,
            "ids": ids,
            "columns": total(loads.columns) / world,
            "fetch_time": total(loads.fetch_time) / world,
            "stashed_bytes": total(loads.stashed_bytes) / world,
            "replica_bytes": total(loads.replica_bytes) / world,
            "table_columns": outputs[table],
            "sent_ids": ids,
            "sent_features": features,
            "tables": np.ones(len(table)),
        }
        parts, alone = self._lookups(loads.traffic.T, shards.is_weighted)
        rows = np.array([float(each.num_embeddings) for each in tables])[cuts.table]
        no_cache = np.full(len(rows), _NO_CACHE)
        factors = factors_of(self.workload, self.topology, cuts, no_cache)
        sizes = shard_bytes(factors, shards.num_rows, shards.num_columns, shards.num_rows / rows)
        return _Described(
            values=np.column_stack((
                *(values[name] for name in GROUP_FEATURES),
                replicated[firsts] * weights,
                total(parts) / world,
                (table == 0).astype(np.float64),
            )),
            exchanged=np.maximum.reduceat(
                np.column_stack((shards.table_bags, loads.ids, loads.columns)), firsts
            ),
            memory=total(np.asarray(sizes.total)),
            largest=np.maximum.reduceat(np.asarray(sizes.total), firsts),
            alone=np.maximum.reduceat(alone, firsts),
            busy=np.where(
                np.minimum.reduceat(loads.traffic[:, Traffic.LOOKUPS], firsts) > 0,
                total(np.ones(len(copies))) / (columns * world),
                0.0,
            ),
        )

    def _lookups(self, traffic: Array, weighted: Array) -> tuple[Array, Array]:
        """Return the parts of every shard's lookup, and the seconds that it takes alone."""
        rates, gpu = lookup_rates(self.topology.hardware), self.topology.hardware.gpu
        update = gpu.backward_correction.least_factor
        read = min(1.0, gpu.forward_correction.least_factor)  # gradients of weights have none
        sort = update * traffic[Traffic.KEYS] / rates.sort_rate
        bags = traffic[Traffic.BAGS] * rates.bag_time
        checked = read * bags * (1.0 - weighted)  # gradients of weights are made without a check
        rows = update * traffic[Traffic.UPDATES] * rates.row_update_time
        linear = update * LINEAR_BAG_RATIO * bags
        # what is not hidden of the shorter time, HBM's or the chip's, adds to the longer
        shown = 1.0 - rates.overlap
        hbm = read * traffic[Traffic.FORWARD_HBM] / rates.lookup_bandwidth
        on_chip = read * traffic[Traffic.FORWARD_L2] / rates.gather_bandwidth
        updated = update * traffic[Traffic.BACKWARD_HBM] / rates.update_bandwidth
        added = update * traffic[Traffic.BACKWARD_L2] / rates.gather_bandwidth
        parts = (
            hbm + shown * on_chip,
            on_chip + shown * hbm,
            checked + traffic[Traffic.FORWARD_UVM] / rates.uvm_bandwidth,
            updated + shown * added,
            added + shown * updated,
            update * traffic[Traffic.LOOKUPS] * rates.gradient_time,
            sort + linear + rows + traffic[Traffic.BACKWARD_UVM] / rates.uvm_bandwidth,
        )
        longest = read * traffic[Traffic.CHAIN]
        forward = np.maximum.reduce([parts[0], parts[1], longest]) + parts[2]
        gathered = forward * (1.0 + WEIGHT_GRADIENT_RATIO * weighted)
        return np.column_stack(parts), gathered + np.maximum.reduce(parts[3:6]) + parts[6]


def is_first(numbers: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which numbers differ from the one before; all are at least 0.

    These are the first options of tables, if ``numbers`` are tables in order.
    """
    differs: NDArray[np.bool_] = np.diff(numbers, prepend=-1) != 0
    return differs


def _module(table: EmbeddingTable) -> tuple[bool, bool]:
    """Return the properties that tables must share to be in one group."""
    return group_key(table, ShardingType.TABLE_WISE)[:2]


def _work(table: EmbeddingTable) -> float:
    """Return the elements looked up per sample, a measure of a table's part of a step."""
    return table.pooling_factor * table.embedding_dim * table.num_features
