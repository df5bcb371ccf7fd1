"""A sharding plan: which part of every table lives on which rank, in TorchRec's terms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice
from math import inf, isqrt
from operator import eq
from typing import TypeAlias, overload


class ShardingType(StrEnum):
    """TorchRec's sharding types, by its strings."""

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    ROW_WISE = "row_wise"
    COLUMN_WISE = "column_wise"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID_SHARD = "grid_shard"

    @property
    def splits_rows(self) -> bool:
        """Whether the ids of a batch are spread over several row shards."""
        return self in _SPLITS_ROWS

    @property
    def splits_columns(self) -> bool:
        """Whether there may be several column blocks."""
        return self in _SPLITS_COLUMNS

    @property
    def everywhere(self) -> bool:
        """Whether all ranks have a shard, always the same, so that no ranks are chosen."""
        return self in _EVERYWHERE

    @property
    def within_node(self) -> bool:
        """Whether the row shards of a column block lie on the ranks of one node."""
        return self in _WITHIN_NODE

    @property
    def alike_in_memory(self) -> "ShardingType":
        """The type whose shards of as many rows and columns take the same memory.

        Row shards add their outputs up, each type in its own way; column blocks are tables of fewer
        columns.
        """
        replicated = self is ShardingType.DATA_PARALLEL
        return self if replicated or self.splits_rows else ShardingType.TABLE_WISE

    @property
    def divides_after_exchange(self) -> bool:
        """Whether mean pooling is a division of the module's outputs: lookups of row shards add up.

        TorchRec does so for these two (1.9.2, embeddingbag.py 663-676, 766), not for grid_shard.
        """
        return self in _DIVIDES_AFTER_EXCHANGE


_SPLITS_ROWS = {ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD}
_SPLITS_COLUMNS = {
    ShardingType.COLUMN_WISE,
    ShardingType.TABLE_COLUMN_WISE,
    ShardingType.GRID_SHARD,
}
_EVERYWHERE = {ShardingType.DATA_PARALLEL, ShardingType.ROW_WISE}
_WITHIN_NODE = {ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD}
_DIVIDES_AFTER_EXCHANGE = {ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE}


class ComputeKernel(StrEnum):
    """TorchRec's embedding compute kernels, by its strings."""

    DENSE = "dense"
    """Plain autograd lookup; the kernel of data_parallel tables."""
    FUSED = "fused"
    """Table-batched lookup in HBM, optimizer fused into the backward."""
    FUSED_UVM = "fused_uvm"
    """As fused, the weights in host memory."""
    FUSED_UVM_CACHING = "fused_uvm_caching"
    """As fused, the weights in host memory behind a cache in HBM."""


HASHED_SHARDS = 8
"""Number of shards that a sharding's hash is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A block of a table, and the rank that holds it."""

    rank: int
    row_offset: int
    num_rows: int
    column_offset: int
    num_columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas(Sequence[Shard]):
    """Shards that differ in rank alone, on consecutive ranks; each is made when asked for."""

    first: Shard
    num_ranks: int

    def __len__(self) -> int:
        """Return the number of shards, one for every rank."""
        return self.num_ranks

    @overload
    def __getitem__(self, index: int) -> Shard: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Shard, ...]: ...
    def __getitem__(self, index: int | slice) -> Shard | tuple[Shard, ...]:
        """Return a shard, or several."""
        if isinstance(index, slice):
            return tuple(replace(self.first, rank=rank) for rank in self.ranks[index])
        return replace(self.first, rank=self.ranks[index])

    @property
    def ranks(self) -> range:
        """Ranks in order."""
        return range(self.first.rank, self.first.rank + self.num_ranks)


Shards: TypeAlias = tuple[Shard, ...] | Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSharding:
    """How one table is sharded."""

    table: str
    sharding_type: ShardingType
    compute_kernel: ComputeKernel = ComputeKernel.FUSED
    shards: Shards
    """Ordered by column, then row, as TorchRec's ``EnumerableShardingSpec`` has them. Copies on
    consecutive ranks are ``Replicas``, also where they are given one by one."""
    cache_load_factor: float | None = None
    """``fused_uvm_caching``: share of the rows cached; None stands for the table's own."""

    def __post_init__(self) -> None:
        if self.sharding_type is ShardingType.DATA_PARALLEL and isinstance(self.shards, tuple):
            object.__setattr__(self, "shards", _joined(self.shards))

    def __hash__(self) -> int:
        """Hash the first shards alone: there may be thousands, and shardings mostly differ here."""
        first = tuple(ranks[0] for _, ranks in islice(self.distinct_shards(), HASHED_SHARDS))
        return hash((self.table, self.sharding_type, self.compute_kernel, first))

    def distinct_shards(self) -> Iterator[tuple[Shard, Sequence[int]]]:
        """Yield shards in order with the ranks that hold them: ``Replicas`` as one."""
        if isinstance(self.shards, Replicas):
            yield self.shards.first, self.shards.ranks
        else:
            yield from ((shard, (shard.rank,)) for shard in self.shards)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks in shard order; a rank may repeat."""
        return tuple(chain.from_iterable(ranks for _, ranks in self.distinct_shards()))

    @property
    def block_ranks(self) -> tuple[int, ...]:
        """The rank of every column block; where its rows are split, that of its first shard."""
        shards = [shard for shard, _ in self.distinct_shards()]
        return tuple(
            shard.rank
            for index, shard in enumerate(shards)
            if index == 0 or shards[index - 1].column_offset != shard.column_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingPlan:
    """How every table of a workload is sharded."""

    tables: tuple[TableSharding, ...]
    world_size: int
    local_world_size: int
    """Ranks per node."""
    _by_name: Mapping[str, TableSharding] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {table.table: table for table in self.tables})

    def table(self, name: str) -> TableSharding:
        """Return the sharding of one table (KeyError if there is none)."""
        return self._by_name[name]


def make_shards(
    sharding_type: ShardingType,
    num_embeddings: int,
    embedding_dim: int,
    *,
    ranks: Sequence[int],
    world_size: int,
    local_world_size: int,
) -> Shards:
    """Return the shards TorchRec makes of a table.

    Every type is a grid of column blocks times row blocks, but for ``data_parallel``, which is
    a full copy on every rank:

    * columns: as many equal blocks as ``ranks`` for the three types that split columns;
    * rows: ``row_wise`` W blocks, block i on rank i; ``table_row_wise`` and ``grid_shard`` one
      block for every rank of a node.

    Parameters
    ----------
    sharding_type, num_embeddings, embedding_dim
        What is sharded, and how.
    ranks
        One for each column block: the rank that holds it, or any rank of the node that holds it
        (``table_row_wise``, ``grid_shard``). Ignored where the type leaves no choice
        (``data_parallel``, ``row_wise``).
    world_size, local_world_size
        Ranks in all, and on a node.

    References
    ----------
    torchrec, distributed/sharding_plan.py, ``calculate_shard_sizes_and_offsets``.

    """
    return _shards(
        sharding_type, num_embeddings, embedding_dim, tuple(ranks), world_size, local_world_size
    )


@lru_cache(maxsize=65536)
def _shards(
    sharding_type: ShardingType,
    num_embeddings: int,
    embedding_dim: int,
    ranks: tuple[int, ...],
    world_size: int,
    local_world_size: int,
) -> Shards:
    """Return the shards of ``make_shards``, which are kept for equal arguments."""
    if sharding_type is ShardingType.DATA_PARALLEL:
        whole = Shard(
            rank=0,
            row_offset=0,
            num_rows=num_embeddings,
            column_offset=0,
            num_columns=embedding_dim,
        )
        return Replicas(first=whole, num_ranks=world_size)
    shards: list[Shard] = []
    block_ranks = (0,) if sharding_type is ShardingType.ROW_WISE else ranks
    width = embedding_dim // len(block_ranks)
    for block, first_rank in enumerate(block_ranks):
        owners = _row_owners(sharding_type, first_rank, world_size, local_world_size)
        rows = row_blocks(num_embeddings, len(owners))
        shards.extend(
            Shard(
                rank=rank,
                row_offset=row_offset,
                num_rows=num_rows,
                column_offset=block * width,
                num_columns=width,
            )
            for rank, (row_offset, num_rows) in zip(owners, rows, strict=True)
        )
    return tuple(shards)


def row_blocks(num_embeddings: int, num_blocks: int) -> tuple[tuple[int, int], ...]:
    """Return offset and length of every row block: ceil(rows / blocks) each while rows last.

    With few rows the trailing blocks are empty, as in TorchRec.
    """
    length = -(-num_embeddings // num_blocks)
    offsets = (min(block * length, num_embeddings) for block in range(num_blocks))
    return tuple((offset, min(length, num_embeddings - offset)) for offset in offsets)


def row_block_sizes(num_embeddings: int, num_blocks: int) -> tuple[tuple[int, int], ...]:
    """Return (length, number) of ``row_blocks``, in order."""
    length = -(-num_embeddings // num_blocks)
    full, rest = divmod(num_embeddings, length)
    empty = num_blocks - full - (rest > 0)
    sizes = ((length, full), (rest, int(rest > 0)), (0, empty))
    return tuple((size, repeats) for size, repeats in sizes if repeats)


def column_counts(
    embedding_dim: int, min_shard_dim: int = 4, max_shard_dim: float = inf
) -> tuple[int, ...]:
    """Return every number of equal column blocks, 1 included, with legal widths.

    Widths are multiples of 4, as FBGEMM needs, and from ``min_shard_dim`` to ``max_shard_dim``.
    """
    quarter, rest = divmod(embedding_dim, 4)
    if rest:
        return (1,)
    low = [count for count in range(1, isqrt(quarter) + 1) if quarter % count == 0]
    counts = dict.fromkeys([*low, *(quarter // count for count in reversed(low))])
    least = min(min_shard_dim, embedding_dim)
    return tuple(count for count in counts if least <= embedding_dim // count <= max_shard_dim)


def _joined(shards: tuple[Shard, ...]) -> Shards:
    """Return shards as ``Replicas`` if they are copies on consecutive ranks, else unchanged."""
    blocks = {(s.row_offset, s.num_rows, s.column_offset, s.num_columns) for s in shards}
    if len(blocks) != 1:
        return shards
    found = Replicas(first=shards[0], num_ranks=len(shards))
    return found if all(map(eq, found.ranks, (s.rank for s in shards))) else shards


def _row_owners(
    sharding_type: ShardingType, first_rank: int, world_size: int, local_world_size: int
) -> Sequence[int]:
    """Return the rank of every row block of one column block."""
    if sharding_type is ShardingType.ROW_WISE:
        return range(world_size)
    if sharding_type.within_node:
        first = first_rank - first_rank % local_world_size
        return range(first, first + local_world_size)
    return (first_rank,)
