"""The model, machine and plan of the 8 x V100 trace.

The trace names no tables, but its shapes leave one answer: the MLPerf DLRM-DCNv2 sizes and ids per
sample (26 flattened lists of ids in the loader), 16 columns, 16 samples per rank. Rows per rank
(the fused lookup's weights) and ids per rank (the values' all-to-all) fit one placement only, and
the two tables of no rank, 3 + 4 rows, are the 112 numbers of the small all-reduce.
"""

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import DenseModel, EmbeddingTable, Interaction, Optimizer, Workload
from planner.files.profiles import load_profile

WORLD_SIZE = 8
_DIM = 16
_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282,
    10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108,
    36,
)  # fmt: skip
_IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
_PLACEMENT = (
    (0, 1, 7), (4, 9, 17), (2, 15, 19), (20, 23, 24), (8, 14, 21), (3, 10, 25), (6, 18, 22),
    (11, 12, 13),
)  # fmt: skip


def workload() -> Workload:
    """Return the model that was traced."""
    return Workload(
        tables=tuple(
            EmbeddingTable(
                name=str(i), num_embeddings=rows, embedding_dim=_DIM, pooling_factor=_IDS[i]
            )
            for i, rows in enumerate(_ROWS)
        ),
        dense=DenseModel(
            bottom_mlp=(256, 128, 16),
            top_mlp=(512, 512, 256, 1),
            interaction=Interaction.DOT,
            optimizer=Optimizer.ADAGRAD,
        ),
        local_batch_size=16,
        optimizer=Optimizer.ADAGRAD,
        index_bytes=4,
    )


def topology() -> Topology:
    """Return the machine that was traced."""
    return Topology(
        hardware=load_profile("v100-nvlink"), world_size=WORLD_SIZE, local_world_size=WORLD_SIZE
    )


def sharding_plan() -> ShardingPlan:
    """Return the plan that was traced."""
    rank_of = {table: rank for rank, tables in enumerate(_PLACEMENT) for table in tables}
    return ShardingPlan(
        tables=tuple(_sharding(i, rank_of) for i in range(len(_ROWS))),
        world_size=WORLD_SIZE,
        local_world_size=WORLD_SIZE,
    )


def _sharding(index: int, rank_of: dict[int, int]) -> TableSharding:
    kind = ShardingType.TABLE_WISE if index in rank_of else ShardingType.DATA_PARALLEL
    return TableSharding(
        table=str(index),
        sharding_type=kind,
        compute_kernel=ComputeKernel.FUSED if index in rank_of else ComputeKernel.DENSE,
        shards=make_shards(
            kind, _ROWS[index], _DIM, ranks=(rank_of.get(index, 0),), world_size=WORLD_SIZE,
            local_world_size=WORLD_SIZE,
        ),
    )  # fmt: skip
