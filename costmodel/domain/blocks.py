"""Numbers of the shards of a column block, and which of them are alike."""

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType, row_block_sizes, row_blocks
from costmodel.domain.workload import EmbeddingTable
from costmodel.inputs.distribution import is_hashed


def num_row_blocks(topology: Topology, kind: ShardingType) -> int:
    """Return the number of shards of one column block: its row blocks, or its copies."""
    if kind.everywhere:
        return topology.world_size
    return topology.local_world_size if kind.within_node else 1


def like_row_blocks(
    topology: Topology, table: EmbeddingTable, kind: ShardingType
) -> list[tuple[int, int, int]]:
    """Return (first row, length, number) of the shards of one column block, like ones together.

    They are in order. Where the place of rows does not matter, the first row is 0.
    """
    rows, count = table.num_embeddings, num_row_blocks(topology, kind)
    if not kind.splits_rows:
        return [(0, rows, count)]
    if is_hashed(table.inputs):
        return [(0, *block) for block in row_block_sizes(rows, count)]
    return [(*block, 1) for block in row_blocks(rows, count)]
