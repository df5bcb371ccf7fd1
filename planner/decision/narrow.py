"""Tables that are cut for little: into blocks of few columns, or although they are small."""

from collections.abc import Sequence
from dataclasses import replace

from costmodel.base.units import MIB, Bytes
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.validity import allowed_types
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import fits

NARROW = 32
"""A shard of fewer columns is narrow: 32 columns of fp32 are 128 bytes, one cache line. TorchRec's
enumerator makes no shards of fewer than 128 columns unless it is told to."""


SMALL: Bytes = 16 * MIB
"""Tables with fewer bytes of weights are small: to cut them saves no memory worth it."""


def has_narrow_shards(workload: Workload, sharding: TableSharding) -> bool:
    """Return whether a table is cut into narrow blocks although it is not narrow itself."""
    width = workload.table(sharding.table).embedding_dim
    if not sharding.sharding_type.splits_columns:
        return False
    return width // max(1, len(sharding.block_ranks)) < min(NARROW, width)


def with_wider_blocks(
    workload: Workload, topology: Topology, plan: ShardingPlan, narrow: Sequence[TableSharding]
) -> ShardingPlan | None:
    """Return the plan with blocks of ``narrow`` tables twice as wide, on half their ranks.

    None if the user placed them or the plan would not fit.
    """
    wider = {each.table: _wider(workload, plan, each) for each in narrow}
    tables = tuple(wider.get(sharding.table) or sharding for sharding in plan.tables)
    if tables == plan.tables:
        return None
    changed = replace(plan, tables=tables)
    return changed if fits(workload, topology, changed) else None


def small_cut(workload: Workload, plan: ShardingPlan) -> list[TableSharding]:
    """Return the small tables (``SMALL``) that a plan cuts."""
    return [
        each
        for each in plan.tables
        if len(list(each.distinct_shards())) > 1
        if workload.table(each.table).weight_bytes < SMALL
    ]


def with_small_whole(
    workload: Workload,
    topology: Topology,
    plan: ShardingPlan,
    cut: Sequence[TableSharding],
    lookups: Sequence[float],
) -> ShardingPlan | None:
    """Return the plan with some cut tables whole, each on the rank with least lookups in turn.

    Tables cut by columns stay in the collectives of their type. ``lookups`` has those of every
    rank, in any unit. None if one may not be whole, or it does not fit.
    """
    order = sorted(range(len(lookups)), key=lookups.__getitem__)
    kinds = {each.table: _whole_type(each.sharding_type) for each in cut}
    if any(
        kind not in allowed_types(workload, workload.table(name)) for name, kind in kinds.items()
    ):
        return None
    placed = {
        each.table: on_ranks(workload, plan, each, (order[number % len(order)],), kinds[each.table])
        for number, each in enumerate(cut)
    }
    tables = tuple(placed.get(each.table, each) for each in plan.tables)
    changed = replace(plan, tables=tables)
    return changed if fits(workload, topology, changed) else None


def _whole_type(kind: ShardingType) -> ShardingType:
    """Return the type of a whole table in the collectives of tables of a type, if there is one."""
    return ShardingType.TABLE_WISE if kind.splits_rows or not kind.splits_columns else kind


def _wider(workload: Workload, plan: ShardingPlan, sharding: TableSharding) -> TableSharding | None:
    """Return a table's sharding with blocks twice as wide; None: there is none."""
    table, ranks = workload.table(sharding.table), sharding.block_ranks
    kind, half = sharding.sharding_type, len(ranks) // 2
    if not has_narrow_shards(workload, sharding) or len(ranks) % 2 or table.ranks:
        return None
    if half == 1:  # a table of one block is whole
        whole = ShardingType.TABLE_WISE
        if kind.splits_rows or whole not in allowed_types(workload, table):
            return None
        kind = whole
    return on_ranks(workload, plan, sharding, ranks[:half], kind)


def on_ranks(
    workload: Workload,
    plan: ShardingPlan,
    sharding: TableSharding,
    ranks: Sequence[int],
    sharding_type: ShardingType,
) -> TableSharding:
    """Return a table's sharding of a given type on given ranks."""
    table, kernel = workload.table(sharding.table), sharding.compute_kernel
    shards = make_shards(
        sharding_type,
        table.num_embeddings,
        table.embedding_dim,
        ranks=ranks,
        world_size=plan.world_size,
        local_world_size=plan.local_world_size,
    )
    return replace(
        sharding,
        sharding_type=sharding_type,
        compute_kernel=ComputeKernel.FUSED if kernel is ComputeKernel.DENSE else kernel,
        shards=shards,
    )
