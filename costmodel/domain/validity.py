"""Whether a plan shards exactly this workload's tables, legally, on this many ranks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import (
    ComputeKernel,
    Shard,
    ShardingPlan,
    ShardingType,
    Shards,
    TableSharding,
    column_counts,
    make_shards,
)
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Pooling, Workload

_UNPOOLED_TYPES = (
    ShardingType.DATA_PARALLEL,
    ShardingType.TABLE_WISE,
    ShardingType.ROW_WISE,
    ShardingType.COLUMN_WISE,
)
"""Sharding types of TorchRec's ``EmbeddingCollection`` (torchrec 1.9.2,
distributed/embedding.py)."""

WIDEST_ON_GPU = 2048
"""Columns of the widest shard that FBGEMM's GPU kernels take, fused ones and dense: they check
that ``max_D`` is no more (binaries of fbgemm-gpu 1.6.0 for CUDA). Those for CPUs take any."""
_MOST_SHOWN = 12
"""Most problems quoted in a message; the others are counted."""


def check_plan(workload: Workload, topology: Topology, plan: ShardingPlan) -> None:
    """Raise PlanMismatchError, with everything that is wrong, unless the plan is valid."""
    problems = plan_problems(workload, topology, plan)
    if not problems:
        return
    shown = list(problems[:_MOST_SHOWN])
    if len(problems) > _MOST_SHOWN:
        shown.append(f"and {len(problems) - _MOST_SHOWN} more problems")
    raise PlanMismatchError(
        "; ".join(shown), hint=f"plan again for `{workload.name}` on {topology.world_size} ranks"
    )


def plan_problems(workload: Workload, topology: Topology, plan: ShardingPlan) -> tuple[str, ...]:
    """Return every reason why the plan cannot be used; none means it is valid."""
    known = {table.name for table in workload.tables}
    return (
        *_topology_problems(topology, plan),
        *_name_problems(known, plan),
        *(
            f"table `{sharding.table}`: {problem}"
            for sharding in plan.tables
            if sharding.table in known
            for problem in _table_problems(workload, topology, sharding)
        ),
    )


def is_refused_by_codecs(
    workload: Workload, table: EmbeddingTable, sharding_type: ShardingType
) -> bool:
    """Return whether TorchRec cannot run a sharding type with the workload's codecs.

    INT8 makes bytes with a scale for every 32 elements, flat and 1.25 times as many: nothing that a
    reduce-scatter of the outputs could add up (fbgemm_gpu 1.8.0, quantize_comm.py; for FP8 torchrec
    replaces the codec, for INT8 it does not).
    """
    int8 = DataType.INT8 in {workload.comms_forward, workload.comms_backward}
    return int8 and table.pooling is not Pooling.NONE and sharding_type.splits_rows


def allowed_types(workload: Workload, table: EmbeddingTable) -> tuple[ShardingType, ...]:
    """Return the sharding types that pipeline, pooling, codecs and the table's own list allow."""
    suited: tuple[ShardingType, ...] = tuple(ShardingType)
    if table.pooling is Pooling.NONE:
        suited = _UNPOOLED_TYPES
    suited = tuple(kind for kind in suited if not is_refused_by_codecs(workload, table, kind))
    if workload.pipeline is Pipeline.DLRM:
        suited = (ShardingType.TABLE_WISE,)
    return tuple(
        kind for kind in suited if not table.sharding_types or kind in table.sharding_types
    )


def allowed_kernels(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> tuple[ComputeKernel, ...]:
    """Return the kernels a plan may use: ``dense`` alone for data_parallel, else any listed.

    Without a list that is ``fused``, and ``dense``, which TorchRec runs for sharded tables too;
    none that cannot hold the table's type. Where groups of ranks have replicas, ``fused`` alone:
    ``DMPCollection`` averages no ``dense`` shards, and of a UVM cache the rows in host memory, not
    those that were updated in HBM (torchrec 1.9.2, ``_group_sharded_modules``; fbgemm_gpu 1.8.0,
    ``split_embedding_weights``).
    """
    kernels = table.compute_kernels or (ComputeKernel.FUSED, ComputeKernel.DENSE)
    if sharding_type is ShardingType.DATA_PARALLEL:
        kernels = (ComputeKernel.DENSE,) if ComputeKernel.DENSE in kernels else ()
    elif topology.replicas is not None:
        kernels = (ComputeKernel.FUSED,) if ComputeKernel.FUSED in kernels else ()
    return tuple(kernel for kernel in kernels if not is_refused_by_kernel(table, kernel))


def is_refused_by_kernel(table: EmbeddingTable, kernel: ComputeKernel) -> bool:
    """Return whether a kernel cannot hold a table's data type.

    Weights of ``dense`` are a parameter, which torch draws at random and gives gradients: neither
    can be done with numbers of one byte (fbgemm_gpu 1.8.0,
    ``DenseTableBatchedEmbeddingBagsCodegen`` cannot be made of INT8, FP8 or NFP8).
    """
    return kernel is ComputeKernel.DENSE and table.data_type.num_bytes == 1


def fixed_block_ranks(
    workload: Workload, topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> tuple[int, ...] | None:
    """Return the ranks of the column blocks of a table with given ``ranks``.

    Exactly these ranks have shards: for ``table_wise`` there is one, for ``column_wise`` and
    ``table_column_wise`` one for each block, in order; ``table_row_wise`` and ``grid_shard`` have
    all ranks of one or more nodes, ``row_wise`` and ``data_parallel`` all there are. Where only
    ``table_row_wise`` or ``grid_shard`` is allowed, one rank of a node may stand for the node.

    None: the type has no shards on just these ranks. Empty: they are all ranks, and the type always
    uses all. A node's first rank stands for the node.
    """
    ranks, local = table.ranks, topology.local_world_size
    counts = block_counts(topology, table, sharding_type)
    if max(ranks, default=-1) >= topology.world_size or not counts:
        return None
    if sharding_type.everywhere:
        return () if len(ranks) == topology.world_size else None
    block_ranks = ranks
    if sharding_type.within_node:
        block_ranks = tuple(dict.fromkeys(rank - rank % local for rank in ranks))
        named = all(kind.within_node for kind in allowed_types(workload, table))
        if len(ranks) != len(block_ranks) * local and not (
            named and len(ranks) == len(block_ranks)
        ):
            return None
    nodes = {rank // local for rank in block_ranks}
    if sharding_type is ShardingType.TABLE_COLUMN_WISE and len(nodes) > 1:
        return None
    if sharding_type.splits_columns and sharding_type not in table.sharding_types:
        counts = tuple(count for count in counts if count > 1)
    return block_ranks if len(block_ranks) in counts else None


def block_counts(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> tuple[int, ...]:
    """Return every number of equal column blocks that a type can make, narrow enough for kernels.

    1 for types that split no columns; none where shards would be wider than ``WIDEST_ON_GPU``.
    """
    if sharding_type.splits_columns:
        return column_counts(table.embedding_dim, table.min_shard_dim, widest_shard(topology))
    return (1,) if table.embedding_dim <= widest_shard(topology) else ()


def widest_shard(topology: Topology) -> float:
    """Return the most columns of a shard that the device's kernels take."""
    return inf if topology.hardware.device is Device.CPU else WIDEST_ON_GPU


def _ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text."""
    distinct = list(dict.fromkeys(ranks))
    return f"rank{'s' if len(distinct) > 1 else ''} {', '.join(map(str, distinct))}"


def _topology_problems(topology: Topology, plan: ShardingPlan) -> Iterator[str]:
    if (plan.world_size, plan.local_world_size) != (topology.world_size, topology.local_world_size):
        yield (
            f"the plan is for {plan.world_size} ranks, {plan.local_world_size} a node, "
            f"not for {topology.world_size} ranks, {topology.local_world_size} a node"
        )


def _name_problems(known: AbstractSet[str], plan: ShardingPlan) -> Iterator[str]:
    planned = Counter(sharding.table for sharding in plan.tables)
    yield from (f"table `{name}` is not planned" for name in sorted(known - set(planned)))
    yield from (f"table `{name}` is not in the workload" for name in sorted(set(planned) - known))
    yield from (f"table `{name}` is planned twice" for name, times in planned.items() if times > 1)


def _table_problems(
    workload: Workload, topology: Topology, sharding: TableSharding
) -> Iterator[str]:
    table = workload.table(sharding.table)
    kind, kernel = sharding.sharding_type, sharding.compute_kernel
    if is_refused_by_codecs(workload, table, kind):
        yield f"`{kind}` sums outputs on the way, which int8 communication cannot"
    elif kind not in allowed_types(workload, table):
        allowed = ", ".join(allowed_types(workload, table)) or "nothing"
        yield f"`{kind}` is not allowed here, only {allowed}"
    if is_refused_by_kernel(table, kernel):
        yield f"kernel `{kernel}` cannot hold weights of {table.data_type}"
    elif kernel not in allowed_kernels(topology, table, kind):
        allowed = ", ".join(allowed_kernels(topology, table, kind)) or "none"
        yield f"kernel `{kernel}` is not allowed for {kind}, only {allowed}"
    share = sharding.cache_load_factor
    if share is not None and not 0 < share <= 1:
        yield f"cache_load_factor must be in (0, 1], got {share}"
    unfit = list(_shard_problems(table, topology, sharding))
    yield from unfit
    if table.ranks and not unfit:
        block_ranks = fixed_block_ranks(workload, topology, table, kind)
        if block_ranks is None or not (kind.everywhere or block_ranks == sharding.block_ranks):
            yield f"`{kind}` on {_ranks(sharding.ranks)} is not on its {_ranks(table.ranks)}"


def _shard_problems(
    table: EmbeddingTable, topology: Topology, sharding: TableSharding
) -> Iterator[str]:
    if not sharding.shards:
        yield "it has no shards"
        return
    strangers = sorted({rank for rank in sharding.ranks if not 0 <= rank < topology.world_size})
    if strangers:
        listed = ", ".join(map(str, strangers))
        yield f"rank {listed} is out of range, there are {topology.world_size}"
        return
    as_made = sharding.shards == _expected_shards(table, topology, sharding)
    replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
    size = table.num_embeddings, table.embedding_dim
    tiling = None if replicated or as_made else tiling_problem(*size, sharding.shards)
    if tiling:
        yield tiling
        return
    widths = {shard.num_columns for shard, _ in sharding.distinct_shards()}
    if min(widths) < min(table.min_shard_dim, table.embedding_dim):
        yield f"column shards of width {min(widths)} are narrower than {table.min_shard_dim}"
    if max(widths) > widest_shard(topology):
        widest = f"shards of {max(widths)}"
        yield f"FBGEMM's GPU kernels take {WIDEST_ON_GPU} columns at most, not {widest}"
    if as_made:
        return
    in_order = sorted(sharding.shards, key=lambda shard: (shard.column_offset, shard.row_offset))
    ordered = replace(sharding, shards=tuple(in_order))
    if ordered.shards == _expected_shards(table, topology, ordered):
        yield "its shards are not listed in order, by column and then by row"
    else:
        yield _shape_problem(topology, sharding)


def tiling_problem(rows: int, columns: int, shards: Sequence[Shard]) -> str | None:
    """Return why shards do not tile a table exactly; None: they do."""
    outside = [shard for shard in shards if not _inside(shard, rows, columns)]
    if outside:
        return f"a shard on rank {outside[0].rank} reaches outside of {rows} x {columns}"
    covered = sum(shard.num_rows * shard.num_columns for shard in shards)
    if covered < rows * columns:
        return f"the shards hold {covered} of {rows * columns} elements"
    if covered > rows * columns:
        return f"the shards overlap: they hold {covered} elements, the table {rows * columns}"
    return None


def _inside(shard: Shard, rows: int, columns: int) -> bool:
    """Return whether a shard lies within a table of so many rows and columns."""
    return (
        min(shard.row_offset, shard.num_rows, shard.column_offset) >= 0
        and shard.num_columns > 0
        and shard.row_offset + shard.num_rows <= rows
        and shard.column_offset + shard.num_columns <= columns
    )


def _expected_shards(
    table: EmbeddingTable, topology: Topology, sharding: TableSharding
) -> Shards | None:
    """Return the shards TorchRec would make for the type and ranks; None if it could make none."""
    kind, block_ranks = sharding.sharding_type, sharding.block_ranks
    if len(block_ranks) > 1 and not kind.splits_columns and kind is not ShardingType.DATA_PARALLEL:
        return None
    if table.embedding_dim % (4 * len(block_ranks)):
        return None
    if kind is ShardingType.TABLE_COLUMN_WISE:
        nodes = {rank // topology.local_world_size for rank in block_ranks}
        if len(nodes) > 1:
            return None
    return make_shards(
        kind,
        table.num_embeddings,
        table.embedding_dim,
        ranks=block_ranks,
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )


def _shape_problem(topology: Topology, sharding: TableSharding) -> str:
    return (
        f"its shards do not have the shape of {sharding.sharding_type}: "
        + {
            ShardingType.DATA_PARALLEL: "a full copy on every rank, in order",
            ShardingType.TABLE_WISE: "the whole table on one rank",
            ShardingType.ROW_WISE: f"{topology.world_size} equal row blocks, block i on rank i",
            ShardingType.COLUMN_WISE: "equal column blocks, widths multiples of 4",
            ShardingType.TABLE_ROW_WISE: (
                f"{topology.local_world_size} equal row blocks on the ranks of one node, in order"
            ),
            ShardingType.TABLE_COLUMN_WISE: "equal column blocks on the ranks of one node",
            ShardingType.GRID_SHARD: (
                f"equal column blocks, each cut into {topology.local_world_size} row blocks on the "
                "ranks of one node"
            ),
        }[sharding.sharding_type]
    )
