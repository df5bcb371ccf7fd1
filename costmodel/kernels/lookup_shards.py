"""Shards of tables as a lookup kernel sees them, one by one, and many at once as arrays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Mask, Places
from costmodel.base.units import Bytes
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import EmbeddingTable, Pooling
from costmodel.inputs.distribution import (
    RowRange,
    is_hashed,
    lookup_share,
    unique_curve,
    unique_curves,
)
from costmodel.inputs.unique_curves import UniqueCurve, UniqueCurves

SECTOR_BYTES = 32
"""Smallest unit DRAM and L2 move (NVIDIA, CUDA C++ best practices: 32-byte sectors)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupShard:
    """Properties of one shard of a table that its lookup's time depends on."""

    table: EmbeddingTable
    first_row: int
    num_rows: int
    num_columns: int
    num_samples: float
    """Samples looked up per step on this rank: the global batch, or the local one if
    data_parallel."""
    compute_kernel: ComputeKernel
    cache_load_factor: float
    fullness: float = 1.0
    """Ids that fall on the table over those of so many samples on average: more than 1 where a rank
    looks its own samples up, and others wait for the rank that has most ids."""
    batches_in_cache: int = 1
    """Batches whose rows a UVM cache must hold at once (``Pipeline.batches_in_cache``)."""

    @classmethod
    def whole(
        cls,
        table: EmbeddingTable,
        num_samples: float,
        compute_kernel: ComputeKernel,
        cache_load_factor: float | None = None,
    ) -> "LookupShard":
        """Return a table that nothing splits; a cache takes the table's share if none is given."""
        return cls(
            table=table,
            first_row=0,
            num_rows=table.num_embeddings,
            num_columns=table.embedding_dim,
            num_samples=num_samples,
            compute_kernel=compute_kernel,
            cache_load_factor=cache_load_factor or table.cache_share,
        )

    @property
    def id_share(self) -> float:
        """Share of the table's ids that fall on the shard."""
        table = self.table
        if self.num_rows == table.num_embeddings:
            return 1.0
        return lookup_share(table.inputs, table.num_embeddings, self.first_row, self.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookupShards:
    """Some shards as arrays, shape (shards,)."""

    num_rows: Array
    num_columns: Array
    num_samples: Array
    id_share: Array
    cache_load_factor: Array
    batches_in_cache: Array
    fullness: Array
    pooling_factor: Array
    longest_bag: Array
    """Ids of the table's longest bag; 0: not known."""
    table_bags: Array
    """Lengths of ids that a table has per sample."""
    element_bytes: Array
    scale_bytes: Array
    """Scale and offset of a row, beside its elements."""
    is_weighted: Array
    """1 where ids have weights."""
    is_unpooled: Mask
    is_mean: Mask
    """Whether the kernel itself divides by the lengths; of row shards the module does.

    Its backward first writes a scaled copy of the gradients (FBGEMM,
    embedding_backward_split_template.cu 1037-1063)."""
    kernel: NDArray[np.intp]
    """The place of the compute kernel in ``ComputeKernel``."""
    optimizer: NDArray[np.object_]
    """The table's own; None: the workload's."""
    is_stashed: Mask
    """Whether weights in HBM leave it between lookup and backward."""
    curves: UniqueCurves

    @classmethod
    def of(cls, shards: Sequence[LookupShard]) -> "LookupShards":
        """Return some shards as arrays."""
        places: dict[int, int] = {}
        tables: list[EmbeddingTable] = []
        for shard in shards:
            if id(shard.table) not in places:
                places[id(shard.table)] = len(tables)
                tables.append(shard.table)

        def array(values: Iterable[float]) -> Array:
            return np.array(list(values), dtype=np.float64)

        return cls.cut(
            tables,
            np.array([places[id(shard.table)] for shard in shards], dtype=np.intp),
            first_row=array(shard.first_row for shard in shards),
            num_rows=array(shard.num_rows for shard in shards),
            num_columns=array(shard.num_columns for shard in shards),
            num_samples=array(shard.num_samples for shard in shards),
            cache_load_factor=array(shard.cache_load_factor for shard in shards),
            batches_in_cache=array(shard.batches_in_cache for shard in shards),
            fullness=array(shard.fullness for shard in shards),
            kernel=np.array([KERNELS[shard.compute_kernel] for shard in shards], dtype=np.intp),
        )

    @classmethod
    def cut(
        cls,
        tables: Sequence[EmbeddingTable],
        table: Places,
        *,
        first_row: Array,
        **arrays: Any,  # noqa: ANN401 -- floats, and the numbers of kernels
    ) -> "LookupShards":
        """Return shards of some tables as arrays.

        Parameters
        ----------
        tables, table
            Some tables, and the place of every shard's table among them, shape (shards,).
        first_row
            Where the shards of tables begin whose ids are not hashed.
        arrays
            Those of the other fields that a table alone does not decide.

        """

        def of_table(values: Iterable[Any], dtype: Any = np.float64) -> Any:  # noqa: ANN401
            return np.array(list(values), dtype=dtype)[table]

        num_rows: Array = arrays["num_rows"]
        rows = of_table(each.num_embeddings for each in tables)
        share, curves = _shares_and_curves(tables, table, first_row, num_rows)
        return cls(
            id_share=share,
            pooling_factor=of_table(each.pooling_factor for each in tables),
            longest_bag=of_table(each.longest_bag for each in tables),
            table_bags=of_table(each.num_bags for each in tables),
            element_bytes=of_table(each.data_type.num_bytes for each in tables),
            scale_bytes=of_table(each.data_type.scale_bytes for each in tables),
            is_weighted=of_table(each.weighted for each in tables),
            is_unpooled=of_table((each.pooling is Pooling.NONE for each in tables), bool),
            is_mean=of_table((each.pooling is Pooling.MEAN for each in tables), bool)
            & (num_rows == rows),
            optimizer=of_table((each.optimizer for each in tables), object),
            is_stashed=of_table((each.stash_weights for each in tables), bool)
            & (arrays["kernel"] == KERNELS[ComputeKernel.FUSED]),
            curves=curves,
            **arrays,
        )

    def taken(self, places: NDArray[np.intp]) -> "LookupShards":
        """Return the shards at some places."""
        curves = replace(
            self.curves, curve=self.curves.curve[places], share=self.curves.share[places]
        )
        arrays = {name: getattr(self, name)[places] for name in _SHARD_ARRAYS}
        return LookupShards(**arrays, curves=curves)

    @property
    def row_bytes(self) -> Array:
        """Bytes one row of a shard occupies in DRAM traffic: whole sectors."""
        whole: Array = sectors(self.held_row_bytes)
        return whole

    @property
    def held_row_bytes(self) -> Array:
        """Bytes one row of a shard takes in memory."""
        return self.num_columns * self.element_bytes + self.scale_bytes

    @property
    def table_lookups(self) -> Array:
        """Ids of a step that fall on the table."""
        return self.num_samples * self.pooling_factor * self.fullness

    @property
    def num_lookups(self) -> Array:
        """Ids of a step that fall on a shard."""
        return self.table_lookups * self.id_share

    @property
    def stashed_bytes(self) -> Array:
        """Bytes of weights that leave HBM between lookup and backward."""
        return self.is_stashed * self.num_rows * self.held_row_bytes

    @property
    def num_bags(self) -> Array:
        """Output rows: one per sample and feature, or one per id without pooling."""
        pooled = self.num_samples * self.table_bags
        return np.where(self.is_unpooled, self.num_lookups, pooled)


def table_curves(tables: Sequence[EmbeddingTable]) -> list[UniqueCurve]:
    """Return U(n) of whole tables."""
    lengths = [each.num_embeddings for each in tables]
    return unique_curves([
        RowRange(each.inputs, length, 0, length)
        for each, length in zip(tables, lengths, strict=True)
    ])


def _shares_and_curves(
    tables: Sequence[EmbeddingTable], table: Places, first_row: Array, num_rows: Array
) -> tuple[Array, UniqueCurves]:
    """Return every shard's share of its table's ids, and its curve.

    The curves of a table with hashed ids differ by the share of its rows alone.
    """
    curves = table_curves(tables)
    rows = np.array([each.num_embeddings for each in tables], dtype=np.float64)[table]
    hashed = np.array([is_hashed(each.inputs) for each in tables], dtype=bool)[table]
    id_share, which = num_rows / rows, table.copy()
    share = np.where(hashed & (num_rows > 0), id_share, 1.0)
    known: dict[tuple[int, int, int], int] = {}
    for place in np.flatnonzero(~hashed & (num_rows < rows)).tolist():
        own, first, count = int(table[place]), int(first_row[place]), int(num_rows[place])
        inputs, length = tables[own].inputs, tables[own].num_embeddings
        id_share[place] = lookup_share(inputs, length, first, count) if count else 0.0
        if (own, first, count) not in known:
            known[own, first, count] = len(curves)
            curves.append(unique_curve(inputs, length, first, count))
        which[place] = known[own, first, count]
    every = UniqueCurves.of(curves)
    return id_share, replace(every, curve=every.curve[which], share=share)


_SHARD_ARRAYS = [name for name in LookupShards.__dataclass_fields__ if name != "curves"]
KERNELS = {kernel: place for place, kernel in enumerate(ComputeKernel)}


def sectors(num_bytes: Array | Bytes) -> Any:  # noqa: ANN401 -- as the argument
    """Return the bytes that DRAM moves for so many."""
    return np.ceil(num_bytes / SECTOR_BYTES) * SECTOR_BYTES
