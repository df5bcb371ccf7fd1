"""The legal options of one table, and the sharding that each makes on given ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from costmodel.base.errors import InputError, Problem
from costmodel.domain.blocks import num_row_blocks
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.validity import (
    WIDEST_ON_GPU,
    allowed_kernels,
    allowed_types,
    block_counts,
    fixed_block_ranks,
    is_refused_by_codecs,
    is_refused_by_kernel,
    widest_shard,
)
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.problem.cache_shares import OWN_SHARE, CacheShares, cache_shares


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOption:
    """A sharding type, kernel and split of a table; only its ranks are left to choose."""

    sharding_type: ShardingType
    compute_kernel: ComputeKernel = ComputeKernel.FUSED
    num_column_shards: int = 1
    """Number of equal column blocks."""
    cache_load_factor: float | None = None
    """``fused_uvm_caching``: share of the rows cached; None: the table's own."""
    ranks: tuple[int, ...] = ()
    """Given ranks of the column blocks; empty: to be chosen."""

    @property
    def num_ranks(self) -> int:
        """Return the number of ranks to choose: one for each column block, or none.

        Where row blocks lie within a node (``table_row_wise``, ``grid_shard``), a rank stands for
        its node. ``data_parallel`` and ``row_wise`` use all ranks, and ``ranks`` leave no choice.
        """
        return 0 if self.ranks or self.sharding_type.everywhere else self.num_column_shards

    def num_shards(self, topology: Topology) -> int:
        """Return how many shards the option makes."""
        return self.num_column_shards * num_row_blocks(topology, self.sharding_type)


def options_by_name(
    workload: Workload, topology: Topology, *, one_block: bool = False
) -> Mapping[str, tuple[TableOption, ...]]:
    """Return every table's options, by name, each in the order of ``ShardingType``.

    Constraints of the tables, pooling and pipeline are honoured: where a table says which ranks it
    is to be on, options have them, and no ranks to choose. Kernels: ``dense`` for
    data_parallel; otherwise what the table lists, without a list ``fused``. ``dense`` is not
    offered for sharded tables, as in TorchRec's own enumerator; ``fused_uvm_caching`` comes with
    several sizes of the cache (``cache_shares``). Columns are split over at most
    as many blocks as there are ranks (``table_column_wise``: in a node; ``grid_shard``: nodes).

    With ``one_block``, tables that may be whole may be so in ``column_wise``, too: as one block,
    which shares the collectives of tables that are split.

    Tables that differ in nothing that counts share their options: one by one, those of 5,000 tables
    on 1,024 GPUs take 0.2 CPU seconds.

    Raises
    ------
    InputError
        A table's constraints leave nothing.

    """
    shared: dict[tuple[object, ...], tuple[TableOption, ...]] = {}
    options: dict[str, tuple[TableOption, ...]] = {}
    shares = cache_shares(workload, topology, workload.tables)
    for table, own in zip(workload.tables, shares, strict=True):
        kind = _kind(topology, table, own)
        if kind not in shared:
            shared[kind] = _checked(workload, topology, table, own)
            if one_block:
                shared[kind] = (*shared[kind], *_one_block(shared[kind]))
        options[table.name] = shared[kind]
    return options


def _one_block(options: Sequence[TableOption]) -> Iterator[TableOption]:
    """Yield a table's whole options, if any, as ``column_wise`` if it may be that."""
    column_wise = ShardingType.COLUMN_WISE
    if any(option.sharding_type is column_wise for option in options):
        for option in options:
            if option.sharding_type is ShardingType.TABLE_WISE:
                yield replace(option, sharding_type=column_wise)


def _checked(
    workload: Workload, topology: Topology, table: EmbeddingTable, shares: CacheShares
) -> tuple[TableOption, ...]:
    """Return a table's options; InputError if there are none."""
    options = tuple(_options(workload, topology, table, shares))
    if not options:
        problem = _refusal(workload, topology, table).problem
        raise InputError(source=workload.name, problems=(problem,))
    return options


def _kind(topology: Topology, table: EmbeddingTable, shares: CacheShares) -> tuple[object, ...]:
    """Return all properties of a table that its options depend on, with sizes worth caching."""
    rows = table.num_embeddings if topology.hardware.device is Device.CPU else None
    is_refused = is_refused_by_kernel(table, ComputeKernel.DENSE)
    kinds = table.pooling, table.sharding_types, table.compute_kernels, table.ranks, is_refused
    return *kinds, table.embedding_dim, table.min_shard_dim, rows, shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A table whose constraints leave nothing to choose from."""

    table: str
    field: str
    """The constraint that should change."""
    problem: Problem


def refusals(workload: Workload, topology: Topology) -> tuple[Refusal, ...]:
    """Return every table of a workload that cannot be sharded, with the reason."""
    return tuple(
        _refusal(workload, topology, table)
        for table in workload.tables
        if not _is_shardable(workload, topology, table)
    )


def _is_shardable(workload: Workload, topology: Topology, table: EmbeddingTable) -> bool:
    return any(True for _ in _options(workload, topology, table, OWN_SHARE))


def _refusal(workload: Workload, topology: Topology, table: EmbeddingTable) -> Refusal:
    """Return why a table cannot be sharded at all, and what would help."""
    if table.ranks and _is_shardable(workload, topology, replace(table, ranks=())):
        problem = _misplaced(workload, topology, table)
        return Refusal(table=table.name, field="ranks", problem=problem)
    message = (
        f"table `{table.name}` cannot be sharded: nothing is left of its sharding types "
        f"({', '.join(table.sharding_types) or 'all'}) and compute kernels "
        f"({', '.join(table.compute_kernels) or 'default'}) with pipeline `{workload.pipeline}`, "
        f"pooling `{table.pooling}` and {topology.world_size} ranks"
    )
    field = "sharding_types" if table.sharding_types else "compute_kernels"
    few = any(_refused_by_fbgemm(topology, table, kind) for kind in allowed_types(workload, table))
    hint = _kernel_hint(topology, table)
    if few:
        hint = "on CPU, FBGEMM takes no shards without rows: allow `table_wise`"
    if table.embedding_dim > widest_shard(topology):
        field = field if table.sharding_types else "embedding_dim"
        hint = _how_to_narrow(topology, table)
    if any(is_refused_by_codecs(workload, table, kind) for kind in table.sharding_types):
        hint = "int8 communication cannot sum row shards: use fp16, or allow `table_wise`"
    return Refusal(table=table.name, field=field, problem=Problem(message=message, hint=hint))


def _kernel_hint(topology: Topology, table: EmbeddingTable) -> str | None:
    """Return which kernels a table's types have, if none of them is allowed; else None."""
    unaveraged = table.compute_kernels and ComputeKernel.FUSED not in table.compute_kernels
    if topology.replicas is not None and unaveraged:
        return "groups of ranks average `fused` weights alone: allow them, or plan one group"
    dense, replicated = (ComputeKernel.DENSE,), (ShardingType.DATA_PARALLEL,)
    if table.compute_kernels != dense and table.sharding_types != replicated:
        return None
    if is_refused_by_kernel(table, ComputeKernel.DENSE):
        held = "`dense`, the only kernel of `data_parallel`, cannot hold"
        return f"{held} {table.data_type}: allow `fused` shards"
    if table.compute_kernels == dense:
        return "`dense` is planned for `data_parallel` alone: allow that, or `fused`"
    return "`data_parallel` has no kernel but `dense`: allow that, or `table_wise`"


def _how_to_narrow(topology: Topology, table: EmbeddingTable) -> str:
    """Return how a table too wide for kernels gets narrower shards, as text."""
    counts = block_counts(topology, table, ShardingType.COLUMN_WISE)
    way = f"over {counts[0]} ranks or more" if counts else "with a lower `min_shard_dim`"
    return (
        f"FBGEMM's GPU kernels take shards of at most {WIDEST_ON_GPU:,} columns: "
        f"split these by `column_wise` {way}"
    )


def _misplaced(workload: Workload, topology: Topology, table: EmbeddingTable) -> Problem:
    """Return why no shards can be on just the given ranks of a table."""
    given = ", ".join(map(str, table.ranks))
    beyond = [str(rank) for rank in table.ranks if rank >= topology.world_size]
    if beyond:
        return Problem(
            message=f"table `{table.name}` cannot be on rank {', '.join(beyond)}: there is none",
            hint=f"there are ranks 0 to {topology.world_size - 1}",
        )
    counts: dict[ShardingType, dict[int, None]] = {}
    for option in _options(workload, topology, replace(table, ranks=()), OWN_SHARE):
        counts.setdefault(option.sharding_type, {})[option.num_shards(topology)] = None
    takes = (f"{kind} {_places(topology, kind, list(some))}" for kind, some in counts.items())
    return Problem(
        message=f"table `{table.name}` cannot be on ranks [{given}] and no others",
        hint=f"ranks that types take: {'; '.join(takes)}",
    )


def _places(topology: Topology, kind: ShardingType, counts: Sequence[int]) -> str:
    """Return which numbers of ranks, and which ranks, a sharding type takes, as text."""
    if kind.everywhere:
        return f"all {topology.world_size}"
    numbers = " or ".join(map(str, counts))
    if kind.within_node:
        return f"{numbers}, all of a node"
    return f"{numbers} of a node" if kind is ShardingType.TABLE_COLUMN_WISE else numbers


def _options(
    workload: Workload, topology: Topology, table: EmbeddingTable, shares: CacheShares
) -> Iterator[TableOption]:
    """Yield a table's options; ``shares`` are shares of its rows worth caching."""
    types = allowed_types(workload, table)
    for sharding_type in types:
        if not _is_another_name(topology, sharding_type, types):
            yield from _options_of_type(workload, topology, table, sharding_type, shares)


def _is_another_name(topology: Topology, kind: ShardingType, types: Sequence[ShardingType]) -> bool:
    """Return whether a type makes the shards of a plainer one: on one node, columns of a node.

    So do rows within nodes of one rank, but their collectives are their own, and overlap the
    lookups of others: without them, 856 tables on 256 H100 in groups of 32 take 120 ms, not 108.
    """
    within = kind is ShardingType.TABLE_COLUMN_WISE and topology.num_nodes == 1
    return within and ShardingType.COLUMN_WISE in types


def make_sharding(
    table: EmbeddingTable, topology: Topology, option: TableOption, ranks: Sequence[int] = ()
) -> TableSharding:
    """Return the sharding that an option makes on given ranks.

    Parameters
    ----------
    table, topology
        What is sharded, and over what.
    option
        One of ``table_options``.
    ranks
        ``option.num_ranks`` ranks, in the order of the column blocks.

    """
    if len(ranks) != option.num_ranks:
        raise ValueError(f"{option.sharding_type} needs {option.num_ranks} ranks, got {len(ranks)}")
    return TableSharding(
        table=table.name,
        sharding_type=option.sharding_type,
        compute_kernel=option.compute_kernel,
        shards=make_shards(
            option.sharding_type,
            table.num_embeddings,
            table.embedding_dim,
            ranks=option.ranks or ranks,
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
        ),
        cache_load_factor=option.cache_load_factor,
    )


def places(
    topology: Topology, option: TableOption, order: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield the sets of distinct ranks for an option, those first in ``order`` first.

    Options on one node have all sets of the first rank's node before those of another. For options
    within nodes a node's first rank stands for it, and has the node's first place.
    """
    local = topology.local_world_size
    if not option.num_ranks:
        yield ()
        return
    if option.sharding_type.within_node:
        order = list(dict.fromkeys(rank - rank % local for rank in order))
    if option.sharding_type is not ShardingType.TABLE_COLUMN_WISE:
        yield from combinations(order, option.num_ranks)
        return
    for node in dict.fromkeys(rank // local for rank in order):
        mates = [rank for rank in order if rank // local == node]
        yield from combinations(mates, option.num_ranks)


def option_of(sharding: TableSharding, table: EmbeddingTable) -> TableOption:
    """Return the option of a table's sharding."""
    block_ranks = (
        sharding.block_ranks if sharding.sharding_type.splits_columns or table.ranks else ()
    )
    fixed = table.ranks and not sharding.sharding_type.everywhere
    return TableOption(
        sharding_type=sharding.sharding_type,
        compute_kernel=sharding.compute_kernel,
        num_column_shards=max(1, len(block_ranks)),
        cache_load_factor=sharding.cache_load_factor,
        ranks=block_ranks if fixed else (),
    )


def make_plan(topology: Topology, shardings: Sequence[TableSharding]) -> ShardingPlan:
    """Return the plan of these tables on a topology."""
    return ShardingPlan(
        tables=tuple(shardings),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )


def _options_of_type(
    workload: Workload,
    topology: Topology,
    table: EmbeddingTable,
    sharding_type: ShardingType,
    shares: CacheShares,
) -> Iterator[TableOption]:
    """Yield a table's options of one sharding type: by kernel, cache share and number of shards."""
    if _refused_by_fbgemm(topology, table, sharding_type):
        return
    counts = _offered_counts(topology, table, sharding_type)
    ranks: tuple[int, ...] = ()
    if table.ranks:
        block_ranks = fixed_block_ranks(workload, topology, table, sharding_type)
        if block_ranks is None:
            return
        counts, ranks = (len(block_ranks) or 1,), block_ranks
    for kernel in _offered_kernels(topology, table, sharding_type):
        caching = kernel is ComputeKernel.FUSED_UVM_CACHING
        for share in shares if caching else (None,):
            for count in counts:
                yield TableOption(
                    sharding_type=sharding_type,
                    compute_kernel=kernel,
                    num_column_shards=count,
                    cache_load_factor=share,
                    ranks=ranks,
                )


def _refused_by_fbgemm(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> bool:
    """Return whether some rank would get a shard without rows, which FBGEMM refuses on CPU.

    A fused lookup there whose tables have no rows at all on a rank fails at the first step, or
    corrupts memory (fbgemm-gpu-cpu 1.8.0, two gloo ranks: a table of one row, alone or beside one
    of another sharding type). It trains where a table with rows shares the lookup, for which it
    must have the same type, and be in the same module: a table alone does not tell.
    """
    if topology.hardware.device is not Device.CPU or not sharding_type.splits_rows:
        return False
    blocks = num_row_blocks(topology, sharding_type)
    length = -(-table.num_embeddings // blocks)
    return length * (blocks - 1) >= table.num_embeddings


def _offered_kernels(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> tuple[ComputeKernel, ...]:
    """Return a table's kernels; ``dense`` is only for copies on all ranks."""
    kernels = allowed_kernels(topology, table, sharding_type)
    if sharding_type is ShardingType.DATA_PARALLEL:
        return kernels
    return tuple(kernel for kernel in kernels if kernel is not ComputeKernel.DENSE)


def _offered_counts(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> tuple[int, ...]:
    """Return numbers of column blocks; one block, which splits nothing, only if asked for."""
    counts = block_counts(topology, table, sharding_type)
    if not sharding_type.splits_columns:
        return counts
    most = {
        ShardingType.COLUMN_WISE: topology.world_size,
        ShardingType.TABLE_COLUMN_WISE: topology.local_world_size,
        ShardingType.GRID_SHARD: topology.num_nodes,
    }[sharding_type]
    possible = tuple(count for count in counts if count <= most)
    splits = tuple(count for count in possible if count > 1)
    return splits or (possible if sharding_type in table.sharding_types else ())
