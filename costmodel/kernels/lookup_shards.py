"""Shards of tables as a lookup kernel sees them: one by one, and many at once as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import EmbeddingTable, Pooling
from costmodel.inputs.distribution import is_hashed, lookup_share, unique_curve
from costmodel.inputs.unique_curves import UniqueCurve, UniqueCurves

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SECTOR_BYTES = 32
"""Smallest unit DRAM and L2 move (NVIDIA, CUDA C++ best practices: 32-byte sectors)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupShard:
    """What a TBE kernel needs to know about one shard of a table."""

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
    def is_stashed(self) -> bool:
        """Whether its weights leave HBM between lookup and backward."""
        return self.table.stash_weights and self.compute_kernel is ComputeKernel.FUSED

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
        tables = [shard.table for shard in shards]

        def array(values: Sequence[Any]) -> Array:
            return np.array(values, dtype=np.float64)

        whole = [
            shard.num_rows == table.num_embeddings
            for shard, table in zip(shards, tables, strict=True)
        ]
        mean = [table.pooling is Pooling.MEAN for table in tables]
        return cls(
            num_rows=array([shard.num_rows for shard in shards]),
            num_columns=array([shard.num_columns for shard in shards]),
            num_samples=array([shard.num_samples for shard in shards]),
            id_share=array([shard.id_share for shard in shards]),
            cache_load_factor=array([shard.cache_load_factor for shard in shards]),
            batches_in_cache=array([shard.batches_in_cache for shard in shards]),
            fullness=array([shard.fullness for shard in shards]),
            pooling_factor=array([table.pooling_factor for table in tables]),
            longest_bag=array([table.longest_bag for table in tables]),
            table_bags=array([table.num_bags for table in tables]),
            element_bytes=array([table.data_type.num_bytes for table in tables]),
            is_weighted=array([table.weighted for table in tables]),
            is_unpooled=np.array([table.pooling is Pooling.NONE for table in tables], dtype=bool),
            is_mean=np.array(mean, dtype=bool) & np.array(whole, dtype=bool),
            kernel=np.array([KERNELS[shard.compute_kernel] for shard in shards], dtype=np.intp),
            optimizer=np.array([table.optimizer for table in tables], dtype=object),
            is_stashed=np.array([shard.is_stashed for shard in shards], dtype=bool),
            curves=_curves(shards),
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
        whole: Array = sectors(self.num_columns * self.element_bytes)
        return whole

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
        return self.is_stashed * self.num_rows * self.num_columns * self.element_bytes

    @property
    def num_bags(self) -> Array:
        """Output rows: one per sample and feature, or one per id without pooling."""
        pooled = self.num_samples * self.table_bags
        return np.where(self.is_unpooled, self.num_lookups, pooled)


def _curves(shards: Sequence[LookupShard]) -> UniqueCurves:
    """Return the curve of every shard; those of a table with hashed ids differ by their share."""
    curves: list[UniqueCurve] = []
    last: EmbeddingTable | None = None
    for shard in shards:
        table, rows = shard.table, shard.num_rows
        if table is not last:
            last, hashed = table, is_hashed(table.inputs)
            whole = unique_curve(table.inputs, table.num_embeddings)
        if not hashed:
            curves.append(unique_curve(table.inputs, table.num_embeddings, shard.first_row, rows))
        elif rows in (0, table.num_embeddings):
            curves.append(whole)
        else:
            curves.append(UniqueCurve(unique=whole.unique, share=rows / table.num_embeddings))
    return UniqueCurves.of(curves)


_SHARD_ARRAYS = [name for name in LookupShards.__dataclass_fields__ if name != "curves"]
KERNELS = {kernel: place for place, kernel in enumerate(ComputeKernel)}


def sectors(num_bytes: Array | Bytes) -> Any:  # noqa: ANN401 -- as the argument
    """Return the bytes that DRAM moves for so many."""
    return np.ceil(num_bytes / SECTOR_BYTES) * SECTOR_BYTES
