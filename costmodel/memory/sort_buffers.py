"""Buffers of FBGEMM's backward for sorting a table's ids by row, with weights of ids."""

from costmodel.base.units import Bytes
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Pooling, Workload

SORT_BYTES_PER_ID = {Device.CUDA: 52, Device.CPU: 16}
WEIGHT_SORT_BYTES_PER_ID = 8
"""Buffers of FBGEMM's backward sort, int64 ids: 40 (split_embeddings_utils,
``transpose_embedding_input``), and CUB's alternate buffers, 12
(embedding_backward_split_template.cu 852). Weights of ids are sorted with them, and have a
gradient. A CPU sorts one table after another, and keeps 16 for each id; the table at hand needs as
much again. Mean pooling is weights to a CPU (live blocks of real steps, fbgemm-gpu-cpu 1.8.0: 32
for an id of a single table, 44 with mean pooling, 48 with weights)."""
WEIGHT_GRADIENT_BYTES_PER_ID = 4
"""Dense kernels on a CPU add gradients to rows without a sort; on a GPU they sort."""


def sort_bytes(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType, kernel: ComputeKernel
) -> Bytes:
    """Return bytes of the backward's sort, and the weight's gradient, for an id of a table."""
    on_cpu = topology.hardware.device is Device.CPU
    if on_cpu and kernel is ComputeKernel.DENSE:
        return WEIGHT_GRADIENT_BYTES_PER_ID * float(table.weighted)
    means = table.pooling is Pooling.MEAN and not sharding_type.splits_rows
    scaled = table.weighted or (on_cpu and means)
    return SORT_BYTES_PER_ID[topology.hardware.device] + WEIGHT_SORT_BYTES_PER_ID * float(scaled)


def at_hand_bytes(topology: Topology, kernel: ComputeKernel, sort: Bytes) -> Bytes:
    """Return the further bytes for an id of the one table that a CPU is sorting.

    A GPU sorts the tables of a lookup together: all of it is in ``sort_bytes``.
    """
    one_by_one = topology.hardware.device is Device.CPU and kernel is not ComputeKernel.DENSE
    return sort if one_by_one else 0.0


def most_at_hand_bytes(workload: Workload, topology: Topology) -> Bytes:
    """Return the largest such bytes of a rank under any plan, over all tables."""
    samples = float(workload.local_batch_size * topology.world_size)
    whole, kernel = ShardingType.TABLE_WISE, ComputeKernel.FUSED
    ids = (
        table.pooling_factor
        * at_hand_bytes(topology, kernel, sort_bytes(topology, table, whole, kernel))
        for table in workload.tables
    )
    return samples * max(ids)
