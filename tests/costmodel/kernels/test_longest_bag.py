"""A lookup lasts as long as a warp needs for its longest bag, if the user says how long that is."""

from dataclasses import replace

import pytest
from machines import gpu

from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.lookup_shards import LookupShard
from costmodel.kernels.shard_traffic import (
    BAG_START_ROWS,
    ROW_GATHER_TIME,
    gpu_caches,
    shard_traffic,
)
from costmodel.kernels.traffic import Traffic


@pytest.mark.parametrize(
    ("longest", "num_rows", "pooling", "rows"),
    [
        (0.0, 8000, Pooling.SUM, 4.0),
        (3.0, 8000, Pooling.SUM, 4.0),
        (100.0, 8000, Pooling.SUM, 100.0),
        (100.0, 4000, Pooling.SUM, 50.0),
        (100.0, 8000, Pooling.NONE, 1.0),
    ],
)
def test_a_warp_reads_the_longest_bag_row_by_row(
    longest: float, num_rows: int, pooling: Pooling, rows: float
) -> None:
    table = EmbeddingTable(
        name="t", num_embeddings=8000, embedding_dim=64, pooling_factor=4.0, pooling=pooling,
        longest_bag=longest, inputs=Zipf(exponent=0.0),
    )  # fmt: skip
    shard = replace(LookupShard.whole(table, 512, ComputeKernel.FUSED), num_rows=num_rows)
    traffic = shard_traffic(
        shard, optimizer=Optimizer.SGD, output_type=DataType.FP32, caches=gpu_caches(gpu())
    )
    assert traffic[Traffic.CHAIN] == pytest.approx((rows + BAG_START_ROWS) * ROW_GATHER_TIME)
