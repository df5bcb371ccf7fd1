from dataclasses import replace

import pytest

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import (
    DataType,
    EmbeddingTable,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from costmodel.memory.storage import ShardBytes, local_batch_bytes, table_shard_bytes
from planner.examples import example_hardware
from sharders.problem.options import TableOption, make_sharding

TABLE = EmbeddingTable(name="t", num_embeddings=1000, embedding_dim=32, pooling_factor=5)
TOPOLOGY = Topology(hardware=example_hardware(), world_size=4, local_world_size=2)
WORKLOAD = Workload(tables=(TABLE,), local_batch_size=100, optimizer=Optimizer.ADAM)


def shards(
    kind: ShardingType = ShardingType.TABLE_WISE,
    kernel: ComputeKernel = ComputeKernel.FUSED,
    *ranks: int,
    workload: Workload = WORKLOAD,
) -> tuple[ShardBytes, ...]:
    option = TableOption(
        sharding_type=kind, compute_kernel=kernel, num_column_shards=max(1, len(ranks))
    )
    homes = ranks or (0,) * option.num_ranks
    return table_shard_bytes(
        workload, TOPOLOGY, make_sharding(workload.tables[0], TOPOLOGY, option, homes)
    )


def test_table_wise_by_hand() -> None:
    (size,) = shards()
    assert size.weights == 1000 * 32 * 4
    assert size.optimizer_state == 2 * 1000 * 32 * 4  # Adam: two FP32 moments
    # 400 samples of 5 ids: 8 bytes each, and one 4-byte length a sample, for two batches
    assert size.inputs == 2 * (2000 * 8 + 400 * 4)
    assert size.gradients == 2000 * 40  # the backward sorts 2000 ids
    assert size.outputs == 2 * 400 * 32 * 4
    assert size.host == 0


def test_only_sparse_dist_holds_two_batches() -> None:
    (one,) = shards(workload=replace(WORKLOAD, pipeline=Pipeline.NONE))
    assert 2 * one.inputs == shards()[0].inputs


def test_row_shards_share_weights_and_ids_but_not_outputs() -> None:
    (whole,), rows = shards(), shards(ShardingType.ROW_WISE)
    assert sum(size.weights for size in rows) == whole.weights
    assert sum(size.gradients for size in rows) == whole.gradients
    assert {size.outputs for size in rows} == {whole.outputs}
    # every rank gets all lengths: 2 x 400 x 4
    assert sum(size.inputs for size in rows) == whole.inputs + 3 * 3200


def test_column_shards_each_get_all_ids() -> None:
    (whole,), columns = shards(), shards(ShardingType.COLUMN_WISE, ComputeKernel.FUSED, 0, 1)
    assert [size.inputs for size in columns] == [whole.inputs] * 2
    assert sum(size.outputs for size in columns) == whole.outputs


def test_empty_row_shards_take_nothing() -> None:
    tiny = replace(WORKLOAD, tables=(replace(TABLE, num_embeddings=3),))
    assert [float(size.total) > 0 for size in shards(ShardingType.ROW_WISE, workload=tiny)] == [
        True,
        True,
        True,
        False,
    ]


def test_hot_rows_first_gives_the_first_shard_most_ids() -> None:
    hot = replace(TABLE, inputs=Zipf(exponent=1.05, hot_rows_first=True))
    sizes = shards(ShardingType.ROW_WISE, workload=replace(WORKLOAD, tables=(hot,)))
    assert sizes[0].inputs > 2 * sizes[1].inputs
    assert sum(s.gradients for s in sizes) == pytest.approx(2000 * 40)


def test_data_parallel_looks_up_its_own_batch_and_keeps_a_dense_gradient() -> None:
    copies = shards(ShardingType.DATA_PARALLEL, ComputeKernel.DENSE)
    assert len(copies) == 4
    assert copies[0].gradients == copies[0].weights == 1000 * 32 * 4
    assert copies[0].optimizer_state == 0  # the dense optimizer is SGD
    assert copies[0].outputs == 100 * 32 * 4
    assert copies[0].inputs == 2 * (500 * 8 + 100 * 4)


def test_uvm_keeps_weights_and_moments_in_host_memory() -> None:
    (size,) = shards(kernel=ComputeKernel.FUSED_UVM)
    assert size.weights == size.optimizer_state == 0
    assert size.host == 3 * 1000 * 32 * 4


def test_state_of_one_number_a_row_stays_in_hbm() -> None:
    adagrad = replace(WORKLOAD, optimizer=Optimizer.ROWWISE_ADAGRAD)
    (size,) = shards(kernel=ComputeKernel.FUSED_UVM, workload=adagrad)
    assert size.optimizer_state == 4000
    assert size.host == 1000 * 32 * 4


def test_a_cache_holds_its_share_of_the_rows() -> None:
    (size,) = shards(kernel=ComputeKernel.FUSED_UVM_CACHING)
    # 20% of the weights; 4 bytes a row and 16 a slot of bookkeeping
    assert size.weights == pytest.approx(0.2 * 128_000 + 1000 * (4 + 0.2 * 16))
    assert size.host == 3 * 128_000


def test_unpooled_outputs_are_one_row_an_id() -> None:
    unpooled = replace(WORKLOAD, tables=(replace(TABLE, pooling=Pooling.NONE),))
    (whole,) = shards(workload=unpooled)
    assert whole.outputs == 2 * 2000 * 32 * 4
    rows = shards(ShardingType.ROW_WISE, workload=unpooled)
    assert sum(size.outputs for size in rows) == whole.outputs


def test_half_precision_halves_weights_but_not_state() -> None:
    half = replace(WORKLOAD, tables=(replace(TABLE, data_type=DataType.FP16),))
    (size,), (full,) = shards(workload=half), shards()
    assert 2 * size.weights == full.weights
    assert size.optimizer_state == full.optimizer_state


def test_the_local_batch_by_hand() -> None:
    # 13 dense inputs and a label of 4 bytes; 5 ids of 8 and one length of 4: 100 samples, 2 batches
    assert local_batch_bytes(WORKLOAD) == 2 * 100 * (14 * 4 + 5 * 8 + 4)
