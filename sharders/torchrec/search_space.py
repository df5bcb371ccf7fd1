"""The options that TorchRec's enumerator offers for a workload's tables, with their costs.

References
----------
torchrec 1.9.2, distributed/planner/enumerators.py (``EmbeddingEnumerator``),
distributed/sharding_plan.py (``calculate_shard_sizes_and_offsets``), distributed/embedding_types.py
and distributed/embedding.py (what the sharders of collections offer on GPUs).

"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costmodel.domain.plan import ComputeKernel, ShardingType, row_block_sizes
from costmodel.domain.workload import EmbeddingTable, Pooling
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import ShardingProblem
from sharders.torchrec.costs import Perf, RankCounts, SeenTable, Storage, shard_perf, shard_storage

MIN_COLUMNS = 128
"""``MIN_CW_DIM`` of constants.py: narrowest column shards if no width is given."""
_POOLED_TYPES = (
    ShardingType.DATA_PARALLEL,
    ShardingType.TABLE_WISE,
    ShardingType.COLUMN_WISE,
    ShardingType.TABLE_COLUMN_WISE,
    ShardingType.ROW_WISE,
    ShardingType.TABLE_ROW_WISE,
    ShardingType.GRID_SHARD,
)
"""Sharding types in the order in which the sharder of ``EmbeddingBagCollection`` offers them."""
_UNPOOLED_TYPES = (
    ShardingType.DATA_PARALLEL,
    ShardingType.TABLE_WISE,
    ShardingType.COLUMN_WISE,
    ShardingType.ROW_WISE,
)
_KERNELS = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to shard a table: TorchRec's ``ShardingOption`` with its estimates."""

    option: TableOption
    perf: Perf
    """Costs of every shard: all are equally wide, and rows do not matter."""
    storages: tuple[tuple[Storage, int], ...]
    """(bytes, number) of the row shards of a column block, in order."""
    num_blocks: int
    """Number of column blocks, or copies."""

    @property
    def num_shards(self) -> int:
        """Number of shards, including copies and empty ones."""
        return self.num_blocks * self.num_rows

    @property
    def num_rows(self) -> int:
        """Number of row shards of a column block."""
        return sum(repeats for _, repeats in self.storages)

    def storage_of(self, row: int) -> Storage:
        """Return the bytes of a row shard of a column block."""
        last = 0
        for storage, repeats in self.storages:
            last += repeats
            if row < last:
                return storage
        raise IndexError(row)

    @property
    def total_storage(self) -> Storage:
        """Bytes of all shards."""
        return Storage(
            self.num_blocks * sum(each.hbm * repeats for each, repeats in self.storages),
            self.num_blocks * sum(each.host * repeats for each, repeats in self.storages),
        )

    @property
    def largest_storage(self) -> Storage:
        """Largest bytes of a shard in HBM and in host memory, maybe of different shards."""
        return Storage(
            max(each.hbm for each, _ in self.storages), max(each.host for each, _ in self.storages)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Tables in the order in which TorchRec lists them, each with its candidates."""

    tables: tuple[EmbeddingTable, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    ranks: RankCounts


def search_space(problem: ShardingProblem) -> SearchSpace:
    """Return the candidates of TorchRec, of the types and kernels that a problem allows.

    Tables that look the same to it share their candidates.
    """
    ranks = RankCounts(
        world_size=problem.topology.world_size, local_world_size=problem.topology.local_world_size
    )
    tables = in_module_order(problem.workload.tables)
    known: dict[object, tuple[Candidate, ...]] = {}
    found = []
    for table in tables:
        seen, choices = SeenTable.of(table, problem.workload), allowed(problem, table)
        key = seen, choices, min_partition(table)
        if key not in known:
            kinds = _offered(table, *choices)
            known[key] = tuple(
                _candidate(seen, *each, min_partition(table), ranks) for each in kinds
            )
        found.append(known[key])
    return SearchSpace(tables=tables, candidates=tuple(found), ranks=ranks)


def collection(table: EmbeddingTable) -> str:
    """Return the name of a table's module: unpooled ones have one width each."""
    if table.pooling is Pooling.NONE:
        return f"unpooled_{table.embedding_dim}"
    return "weighted" if table.weighted else "pooled"


def in_module_order(tables: Sequence[EmbeddingTable]) -> tuple[EmbeddingTable, ...]:
    """Return tables by collection, the last one first: the enumerator's queue is a stack."""
    groups: dict[str, list[EmbeddingTable]] = {}
    for table in tables:
        groups.setdefault(collection(table), []).append(table)
    return tuple(table for group in reversed(groups.values()) for table in group)


def allowed(
    problem: ShardingProblem, table: EmbeddingTable
) -> tuple[tuple[ShardingType, ...], tuple[ComputeKernel, ...]]:
    """Return the sharding types and kernels that TorchRec may choose among.

    Those of the table's options; ``grid_shard`` only where the table asks for it, as by default the
    enumerator leaves it out.
    """
    options = problem.options[table.name]
    kinds = dict.fromkeys(option.sharding_type for option in options)
    if ShardingType.GRID_SHARD not in table.sharding_types:
        kinds.pop(ShardingType.GRID_SHARD, None)
    return tuple(kinds), tuple(dict.fromkeys(option.compute_kernel for option in options))


def min_partition(table: EmbeddingTable) -> int | None:
    """Return the narrowest column shards of a table; None: TorchRec's default."""
    return table.min_shard_dim if table.min_shard_dim > 4 else None


def num_column_blocks(embedding_dim: int, min_columns: int | None) -> int:
    """Return the number of column blocks, of the narrowest width that divides the columns.

    From ``min_columns`` on, and a multiple of 4; one block where there is none.
    """
    narrowest = range(min_columns or MIN_COLUMNS, embedding_dim)
    width = next((w for w in narrowest if w % 4 == 0 and embedding_dim % w == 0), embedding_dim)
    return embedding_dim // width


def _offered(
    table: EmbeddingTable, kinds: Sequence[ShardingType], kernels: Sequence[ComputeKernel]
) -> Iterator[tuple[ShardingType, ComputeKernel]]:
    """Yield the allowed sharding types and kernels that sharders offer, in their order."""
    for kind in _UNPOOLED_TYPES if table.pooling is Pooling.NONE else _POOLED_TYPES:
        replicated = kind is ShardingType.DATA_PARALLEL
        for kernel in (ComputeKernel.DENSE,) if replicated else _KERNELS:
            if kind in kinds and kernel in kernels:
                yield kind, kernel


def _candidate(
    seen: SeenTable,
    kind: ShardingType,
    kernel: ComputeKernel,
    min_columns: int | None,
    ranks: RankCounts,
) -> Candidate:
    """Return an option as TorchRec's enumerator rates it, with the storage of its shards."""
    blocks = num_column_blocks(seen.embedding_dim, min_columns) if kind.splits_columns else 1
    columns = seen.embedding_dim // blocks
    rows = row_block_sizes(seen.num_embeddings, ranks.rows_over(kind))
    return Candidate(
        option=TableOption(sharding_type=kind, compute_kernel=kernel, num_column_shards=blocks),
        perf=shard_perf(seen, kind, kernel, columns, ranks),
        storages=tuple(
            (shard_storage(seen, kind, kernel, (size, columns), ranks), repeats)
            for size, repeats in rows
        ),
        num_blocks=ranks.world_size if kind is ShardingType.DATA_PARALLEL else blocks,
    )
