from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from shard_sizes import table_shard_bytes

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, Shard, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from costmodel.memory.storage import (
    ShardBytes,
    fixed_bytes,
    id_shares,
    local_batch_bytes,
)
from planner.examples import example_hardware
from sharders.problem.options import TableOption, make_sharding

TABLE = EmbeddingTable(name="t", num_embeddings=1000, embedding_dim=32, pooling_factor=5)
TOPOLOGY = Topology(hardware=example_hardware(), world_size=4, local_world_size=2)
WORKLOAD = Workload(tables=(TABLE,), local_batch_size=100, optimizer=Optimizer.ADAM)
WHOLE = Shard(rank=0, row_offset=0, num_rows=1000, column_offset=0, num_columns=32)


def shards(
    kind: ShardingType = ShardingType.TABLE_WISE,
    kernel: ComputeKernel = ComputeKernel.FUSED,
    *ranks: int,
    workload: Workload = WORKLOAD,
    topology: Topology = TOPOLOGY,
) -> tuple[ShardBytes, ...]:
    option = TableOption(
        sharding_type=kind, compute_kernel=kernel, num_column_shards=max(1, len(ranks))
    )
    places = ranks or (0,) * option.num_ranks
    return table_shard_bytes(
        workload, topology, make_sharding(workload.tables[0], topology, option, places)
    )


def test_table_wise_by_hand() -> None:
    (size,) = shards()
    assert size.weights == 1000 * 32 * 4
    assert size.optimizer_state == 2 * 1000 * 32 * 4  # Adam: two FP32 moments
    # 400 samples of 5 ids: 8 bytes each, and one 4-byte length a sample: looked up, received for
    # the next step, and as sent; 12 bytes of offsets a sample
    assert size.inputs == 3 * (2000 * 8 + 400 * 4) + 400 * 12
    # the backward sorts 2000 ids, when the copy of the outputs that was sent is gone
    assert size.gradients == 2000 * 52 - 400 * 32 * 4
    assert size.outputs == 2 * 400 * 32 * 4
    assert size.host == 0


@pytest.mark.parametrize(
    ("pipeline", "copies", "batches"),
    [
        (Pipeline.NONE, 2, 2), (Pipeline.SPARSE_DIST, 3, 3), (Pipeline.PREFETCH, 4, 3),
        (Pipeline.FUSED_SPARSE_DIST, 3, 3), (Pipeline.SEMI_SYNC, 4, 3), (Pipeline.DLRM, 1, 1),
    ],
)  # fmt: skip
def test_batches_in_flight_by_hand(pipeline: Pipeline, copies: int, batches: int) -> None:
    work = replace(WORKLOAD, pipeline=pipeline)
    # 2000 ids of 8 bytes and 400 lengths of 4; 12 bytes of offsets, only where they are looked up
    assert shards(workload=work)[0].inputs == copies * (2000 * 8 + 400 * 4) + 400 * 12
    # 13 dense inputs and a label of 4 bytes, and in TorchRec a rank's own 5 ids and a length
    own = 0 if pipeline is Pipeline.DLRM else 5 * 8 + 4
    assert local_batch_bytes(work) == batches * 100 * (14 * 4 + own)


def test_a_table_s_own_optimizer_has_its_own_state() -> None:
    own = replace(TABLE, optimizer=Optimizer.ROWWISE_ADAGRAD)
    (size,) = shards(workload=replace(WORKLOAD, tables=(own,)))
    assert size.optimizer_state == 1000 * 4


def test_semi_sync_holds_the_next_batch_and_embeddings_of_two() -> None:
    ahead = replace(WORKLOAD, pipeline=Pipeline.SEMI_SYNC)
    assert shards(workload=ahead)[0].inputs - shards()[0].inputs == 2000 * 8 + 400 * 4
    assert fixed_bytes(ahead, TOPOLOGY)[1] - fixed_bytes(WORKLOAD, TOPOLOGY)[1] == 2 * 100 * 32 * 4


def test_row_shards_share_weights_and_ids_but_not_outputs() -> None:
    (whole,), rows = shards(), shards(ShardingType.ROW_WISE)
    assert sum(size.weights for size in rows) == whole.weights
    # their outputs are not copied to be sent: nothing makes room for the sort
    assert sum(size.gradients for size in rows) == whole.gradients + 400 * 32 * 4
    # the reduce-scatter reads the lookup's output, the all-to-all a copy of it
    assert {2 * size.outputs for size in rows} == {whole.outputs}
    # every rank gets all lengths: 2 x 400 x 4
    assert sum(size.inputs for size in rows) == whole.inputs + 3 * (3 * 1600 + 400 * 12)


def test_column_shards_each_get_all_ids() -> None:
    (whole,), columns = shards(), shards(ShardingType.COLUMN_WISE, ComputeKernel.FUSED, 0, 1)
    assert [size.inputs for size in columns] == [whole.inputs] * 2
    assert sum(size.outputs for size in columns) == whole.outputs


@pytest.mark.parametrize("inputs", [Zipf(exponent=1.05), Zipf(exponent=1.05, hot_rows_first=True)])
def test_empty_row_shards_take_nothing(inputs: Zipf) -> None:
    tiny = replace(WORKLOAD, tables=(replace(TABLE, num_embeddings=3, inputs=inputs),))
    sizes = shards(ShardingType.ROW_WISE, workload=tiny)
    assert [float(size.total) > 0 for size in sizes] == [True, True, True, False]
    assert id_shares(TABLE, ShardingType.ROW_WISE, [replace(WHOLE, num_rows=0)]) == [0.0]


def test_hot_rows_first_gives_the_first_shard_most_ids() -> None:
    hot = replace(TABLE, inputs=Zipf(exponent=1.05, hot_rows_first=True))
    sizes = shards(ShardingType.ROW_WISE, workload=replace(WORKLOAD, tables=(hot,)))
    assert sizes[0].inputs > 2 * sizes[1].inputs
    assert sum(s.gradients for s in sizes) == pytest.approx(2000 * 52)


def test_data_parallel_looks_up_its_own_batch_and_keeps_a_dense_gradient() -> None:
    copies = shards(ShardingType.DATA_PARALLEL, ComputeKernel.DENSE)
    assert len(copies) == 4
    # the table's gradient and DDP's bucket; and dense kernels sort, too
    assert copies[0].weights == 1000 * 32 * 4
    assert copies[0].gradients == 2 * copies[0].weights + 500 * 52
    assert copies[0].optimizer_state == 0  # the dense optimizer is SGD
    assert copies[0].outputs == 100 * 32 * 4
    assert copies[0].inputs == 100 * 12  # offsets: it reads the local batch


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


def test_outputs_of_summed_shards_are_held_once() -> None:
    one = 400 * 32 * 4
    assert shards(ShardingType.ROW_WISE)[0].outputs == one
    # on nodes of two ranks; across nodes there are three tensors of half the size
    assert shards(ShardingType.TABLE_ROW_WISE)[0].outputs == one + 3 * one / 2


@pytest.mark.parametrize(
    ("codecs", "whole", "summed"),
    [
        # decoded gradients beside those received; clamped outputs, and cast ones; FP32: none of it
        ({}, 2.0, 1.0),
        ({"comms_backward": DataType.FP16}, 2.0, 1.5),
        ({"comms_forward": DataType.FP16}, 2.5, 2.5),
        ({"comms_forward": DataType.INT8, "comms_backward": DataType.INT8}, 2.0, 1.5),
        ({"comms_forward": DataType.FP32, "comms_backward": DataType.FP32}, 2.0, 1.0),
    ],
)
def test_codecs_hold_copies_of_outputs(
    codecs: Mapping[str, Any], whole: float, summed: float
) -> None:
    work, one = replace(WORKLOAD, **codecs), 400 * 32 * 4
    assert shards(workload=work)[0].outputs == whole * one
    assert shards(ShardingType.ROW_WISE, workload=work)[0].outputs == summed * one
    alone = replace(TOPOLOGY, world_size=1, local_world_size=1)
    assert shards(workload=work, topology=alone)[0].outputs == one / 4  # nothing is sent


def test_every_row_of_a_shard_of_int8_has_its_scale_and_offset() -> None:
    # two column shards of 16 columns: 1,000 rows of 16 + 8 bytes each
    int8 = replace(TABLE, data_type=DataType.INT8)
    work = replace(WORKLOAD, tables=(int8,))
    halves = shards(ShardingType.COLUMN_WISE, ComputeKernel.FUSED, 0, 1, workload=work)
    assert [each.weights for each in halves] == [24_000] * 2
    (hosted,) = shards(kernel=ComputeKernel.FUSED_UVM, workload=work)
    assert int8.weight_bytes == 1000 * (32 + 8)
    assert hosted.host == int8.weight_bytes + 2 * 1000 * 32 * 4  # with the state of Adam


def test_a_cache_is_as_wide_as_the_widest_cached_table() -> None:
    # 1,000 rows of 32 columns beside a table of 128: 200 slots of 128 columns
    cached = replace(TABLE, compute_kernels=(ComputeKernel.FUSED_UVM_CACHING,))
    wide = replace(cached, name="wide", embedding_dim=128)
    work = replace(WORKLOAD, tables=(cached, wide))
    (size,) = shards(kernel=ComputeKernel.FUSED_UVM_CACHING, workload=work)
    assert size.weights == pytest.approx(200 * 128 * 4 + 1000 * (4 + 0.2 * 16))


def test_mean_pooled_row_shards_keep_divisors_of_two_batches() -> None:
    mean = replace(WORKLOAD, tables=(replace(TABLE, pooling=Pooling.MEAN),))
    plain, divided = (shards(ShardingType.ROW_WISE, workload=work)[0] for work in (WORKLOAD, mean))
    assert divided.outputs - plain.outputs == 2 * 100 * 32 * 4


def test_gradients_of_ids_weights_and_their_sort_take_room() -> None:
    weights = replace(WORKLOAD, tables=(replace(TABLE, weighted=True),))
    (plain,), (weighted,) = shards(), shards(workload=weights)
    assert weighted.gradients - plain.gradients == 2000 * 8
    assert weighted.inputs - plain.inputs == 3 * 2000 * 4  # a weight for each id, as ids


CORES = replace(TOPOLOGY, hardware=replace(TOPOLOGY.hardware, device=Device.CPU))


def test_a_cpu_sorts_one_table_after_another() -> None:
    ids = replace(TABLE, name="more", pooling_factor=50)
    work = replace(WORKLOAD, tables=(TABLE, ids))
    (whole,) = shards(workload=replace(WORKLOAD, tables=(ids,)), topology=CORES)
    assert whole.gradients == 20_000 * 16 - 400 * 32 * 4
    # the buffers of the table at hand are there once, however many a rank has
    assert fixed_bytes(work, CORES)[1] - fixed_bytes(work, TOPOLOGY)[1] == 20_000 * 16
    assert whole.at_hand == 20_000 * 16
    (sent,) = shards(topology=CORES)  # two sorts of 2000 ids are less than the outputs
    assert (sent.gradients, sent.at_hand) == (0, 2 * 2000 * 16 - 400 * 32 * 4)


def test_dense_kernels_of_a_cpu_sort_nothing() -> None:
    weighted = replace(WORKLOAD, tables=(replace(TABLE, weighted=True),))
    for work, an_id in ((WORKLOAD, 0), (weighted, 4)):
        copy, *_ = shards(
            ShardingType.DATA_PARALLEL, ComputeKernel.DENSE, workload=work, topology=CORES
        )
        assert copy.gradients == 2 * copy.weights + 500 * an_id


def test_gloo_reduces_in_a_copy_beside_the_rank_s_own_part() -> None:
    rows = shards(ShardingType.ROW_WISE, topology=CORES)
    assert [size.outputs for size in rows] == [2.25 * 400 * 32 * 4] * 4


def test_mean_pooling_is_weights_to_a_cpu_s_sort() -> None:
    mean = replace(WORKLOAD, tables=(replace(TABLE, pooling=Pooling.MEAN),))
    (size,) = shards(workload=mean, topology=CORES)
    assert size.at_hand == 2 * 2000 * 24 - 400 * 32 * 4
    (rows, *_) = shards(ShardingType.ROW_WISE, workload=mean, topology=CORES)
    assert rows.at_hand == 0  # the lookup sums, and outputs take more than both sorts


def test_the_interaction_s_gradient_is_held_while_unpooled_rows_are_sent_back() -> None:
    # 8 rows of 32 columns a sample and a bottom output of 8; what they are put side by side in
    dense = DenseModel(num_dense_features=4, bottom_mlp=(8,), top_mlp=(1,))
    rows = replace(TABLE, pooling_factor=8, pooling=Pooling.NONE)
    work = replace(WORKLOAD, tables=(rows,), dense=dense)
    gradients = 8 * 32 + 8 + 32
    batch = local_batch_bytes(work)
    assert fixed_bytes(work, TOPOLOGY)[1] == 100 * 4 * (gradients + 4 + 8) + batch
