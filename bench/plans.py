"""Tables of hand-made plans: sharded in a way, on given ranks."""

from collections.abc import Sequence

from costmodel.domain.plan import ComputeKernel, ShardingType, TableSharding, make_shards
from costmodel.domain.workload import EmbeddingTable


def sharded(
    table: EmbeddingTable,
    kind: ShardingType,
    ranks: Sequence[int],
    *,
    world_size: int,
    local_world_size: int | None = None,
    kernel: ComputeKernel = ComputeKernel.FUSED,
) -> TableSharding:
    """Return a table's sharding on some ranks, one for each column block.

    Types that are on all ranks leave no choice; replicated tables have a dense kernel. By default
    all ranks are on one node.
    """
    shards = make_shards(
        kind,
        table.num_embeddings,
        table.embedding_dim,
        ranks=() if kind.everywhere else ranks,
        world_size=world_size,
        local_world_size=local_world_size or world_size,
    )
    dense = kind is ShardingType.DATA_PARALLEL
    return TableSharding(
        table=table.name,
        sharding_type=kind,
        compute_kernel=ComputeKernel.DENSE if dense else kernel,
        shards=shards,
    )
