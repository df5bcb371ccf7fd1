"""The different shards of many ways to shard tables, as arrays.

A search looks at tens of thousands of ways before its first plan. Sharding types that cut alike
share their shards, and most shards of a way are alike: only different ones are described.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeAlias

import numpy as np

from costmodel.base.arrays import Array, Places
from costmodel.base.ranges import within
from costmodel.domain.blocks import num_row_blocks
from costmodel.domain.hardware import Topology
from costmodel.domain.lengths import fullest_batch
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload, lookup_kernel
from costmodel.inputs.distribution import is_hashed
from costmodel.kernels.lookup_shards import KERNELS, LookupShards
from costmodel.memory.storage import ShardFactors, TableReads, shard_factors
from costmodel.step.groups import GroupKey, KernelKey, group_key, kernel_key

TYPES = tuple(ShardingType)
KINDS = {kind: place for place, kind in enumerate(TYPES)}
_KERNELS = tuple(KERNELS)
GroupKernel: TypeAlias = tuple[GroupKey, KernelKey]
"""A sharding group, and a lookup kernel in it."""
_DIFFERENT_LENGTHS = 3
"""Number of different row blocks of a table with hashed ids: the long ones, the rest, empty
ones."""


class OptionCodes(NamedTuple):
    """Options of tables, by numbers; arrays have an entry for each."""

    table: Places
    """Its table's place in the workload."""
    kind: Places
    """Its sharding type, by place in ``TYPES``."""
    kernel: Places
    """Its compute kernel, by place in ``ComputeKernel``."""
    num_column_shards: Places
    cache_load_factor: Array
    """Share of the rows that a cache holds."""

    @classmethod
    def of(cls, options: Sequence[tuple[int, ShardingType, ComputeKernel, int]]) -> "OptionCodes":
        """Return options from table, type, kernel and column blocks; caches hold every row."""
        numbers = [(table, KINDS[kind], KERNELS[kernel], n) for table, kind, kernel, n in options]
        table, kind, kernel, count = np.array(numbers, dtype=np.intp).reshape(len(options), 4).T
        return cls(table, kind, kernel, count, np.ones(len(options)))

    def taken(self, places: Places) -> "OptionCodes":
        """Return the options at some places."""
        return OptionCodes(
            self.table[places],
            self.kind[places],
            self.kernel[places],
            self.num_column_shards[places],
            self.cache_load_factor[places],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """The different shards of some ways; types that take the same memory have the same cut."""

    of_option: Places
    """Every option's cut."""
    first: Places
    """Where the different shards of every cut begin, shape (cuts + 1,)."""
    copies: Places
    """Number of shards of a column block that are like each different one."""
    table: Places
    """Table of each different shard."""
    kind: Places
    shards: LookupShards


def cuts_of(workload: Workload, topology: Topology, codes: OptionCodes) -> Cuts:
    """Return the different shards of some options."""
    alike = np.array([KINDS[kind.alike_in_memory] for kind in TYPES])
    _, caches = np.unique(codes.cache_load_factor, return_inverse=True)
    keys = codes.table, alike[codes.kind], codes.kernel, caches, codes.num_column_shards
    sizes = [int(key.max(initial=0)) + 1 for key in keys]
    _, chosen, of_option = np.unique(
        np.ravel_multi_index(keys, sizes), return_index=True, return_inverse=True
    )
    table, kind = codes.table[chosen], alike[codes.kind[chosen]]
    cut, first_row, num_rows, copies = _row_blocks(workload, topology, table, kind)
    option, table, kind = chosen[cut], table[cut], kind[cut]
    replicated = kind == KINDS[ShardingType.DATA_PARALLEL]
    dims = np.array([each.embedding_dim for each in workload.tables])
    samples = float(workload.local_batch_size)
    shards = LookupShards.cut(
        workload.tables,
        table,
        first_row=first_row.astype(np.float64),
        num_rows=num_rows.astype(np.float64),
        num_columns=(dims[table] // codes.num_column_shards[option]).astype(np.float64),
        num_samples=np.where(replicated, samples, samples * topology.world_size),
        cache_load_factor=codes.cache_load_factor[option],
        batches_in_cache=np.full(len(option), float(workload.pipeline.batches_in_cache)),
        fullness=np.where(replicated, fullest_batch(workload, topology.world_size), 1.0),
        kernel=codes.kernel[option],
    )
    return Cuts(
        of_option=of_option,
        first=np.searchsorted(cut, np.arange(len(chosen) + 1)),
        copies=copies,
        table=table,
        kind=kind,
        shards=shards,
    )


def _row_blocks(
    workload: Workload, topology: Topology, table: Places, kind: Places
) -> tuple[Places, Places, Places, Places]:
    """Return cut, first row, length and number of the different row blocks of some cuts.

    As ``blocks.like_row_blocks`` has them, for the table and type of every cut.
    """
    splits = np.array([each.splits_rows for each in TYPES])[kind]
    blocks = np.array([num_row_blocks(topology, each) for each in TYPES])[kind]
    hashed = np.array([is_hashed(each.inputs) for each in workload.tables])[table]
    rows = np.array([each.num_embeddings for each in workload.tables])[table]
    counts = np.where(splits, np.where(hashed, _DIFFERENT_LENGTHS, blocks), 1)
    cut = np.repeat(np.arange(len(table)), counts)
    block = within(counts)
    splits, blocks, hashed, rows = splits[cut], blocks[cut], hashed[cut], rows[cut]
    length = -(-rows // blocks)
    full, rest = rows // length, rows % length
    lengths = [length, rest, np.zeros_like(rows)]
    numbers = [full, (rest > 0).astype(np.intp), blocks - full - (rest > 0)]
    offset = np.minimum(block * length, rows)
    ranged = [splits & hashed, splits]
    which = np.minimum(block, _DIFFERENT_LENGTHS - 1)
    first_row = np.where(splits & ~hashed, offset, 0)
    num_rows = np.select(
        ranged, [np.choose(which, lengths), np.minimum(length, rows - offset)], rows
    )
    copies = np.select(ranged, [np.choose(which, numbers), np.ones_like(blocks)], blocks)
    there = copies > 0
    return cut[there], first_row[there], num_rows[there], copies[there]


def factors_of(
    workload: Workload, topology: Topology, cuts: Cuts, cache_load_factor: Array
) -> ShardFactors:
    """Return the factors of the bytes of every different shard, as arrays.

    ``cache_load_factor`` is the share of rows in each one's cache, if it has one.
    """
    nature, examples = natures(workload.tables)
    sizes = len(examples), len(TYPES), len(_KERNELS)
    key = np.ravel_multi_index((nature[cuts.table], cuts.kind, cuts.shards.kernel), sizes)
    each = [TableReads.of(table) for table in workload.tables]
    reads = {
        field.name: np.array([getattr(one, field.name) for one in each])[cuts.table]
        for field in fields(TableReads)
    }
    names = [field.name for field in fields(ShardFactors)]
    values = np.zeros((len(names), len(key)))
    for one in np.unique(key).tolist():
        places = np.flatnonzero(key == one)
        example, kind, kernel = np.unravel_index(one, sizes)
        made = shard_factors(
            workload, topology, examples[example], TYPES[kind], _KERNELS[kernel],
            cache_load_factor[places],
            TableReads(**{name: array[places] for name, array in reads.items()}),
        )  # fmt: skip
        for row, name in enumerate(names):
            values[row, places] = getattr(made, name)
    return ShardFactors(**dict(zip(names, values, strict=True)))


def kernels_of(
    tables: Sequence[EmbeddingTable], codes: OptionCodes
) -> tuple[tuple[GroupKernel, ...], Places]:
    """Return the (group, kernel) pairs of some ways, in order, and the place of each way's pair."""
    nature, examples = natures(tables)
    sizes = len(examples), len(TYPES), len(_KERNELS)
    every, which = np.unique(
        np.ravel_multi_index((nature[codes.table], codes.kind, codes.kernel), sizes),
        return_inverse=True,
    )
    pairs: list[GroupKernel] = []
    for example, kind, kernel in zip(*np.unravel_index(every, sizes), strict=True):
        table = examples[example]
        pairs.append((group_key(table, TYPES[kind]), kernel_key(table, _KERNELS[kernel])))
    different = sorted(set(pairs))
    places = {pair: place for place, pair in enumerate(different)}
    return tuple(different), np.array([places[pair] for pair in pairs], dtype=np.intp)[which]


def natures(tables: Sequence[EmbeddingTable]) -> tuple[Places, list[EmbeddingTable]]:
    """Return a number for the nature of every table, and one table of each nature.

    The nature decides the groups and kernels that a table may be in, and everything that a shard's
    bytes depend on but ``TableReads``, its shape and the size of its cache.
    """
    known: dict[object, int] = {}
    examples: list[EmbeddingTable] = []
    of_table = []
    for table in tables:
        nature = *lookup_kernel(table), table.stash_weights
        if nature not in known:
            known[nature] = len(examples)
            examples.append(table)
        of_table.append(known[nature])
    return np.array(of_table, dtype=np.intp), examples
