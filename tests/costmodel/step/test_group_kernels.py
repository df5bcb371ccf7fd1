"""Kernels beside the collectives: what TorchRec 1.9 and FBGEMM run for a sharding group.

As in ``test_sparse``: B = 256 samples on each of 4 ranks, 2 a node; a table of 64 columns, 10 ids.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from machines import topology
from plans import BATCH, named, plan, sharding, step, table, workload
from timelines import simulated

from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling, Workload
from costmodel.engine.objective import Objective
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import step_operations

FOUR = topology(4, 2)
SIZE = 4.0 * BATCH * 64 * 4
OWN = SIZE / 4
TW, RW = ShardingType.TABLE_WISE, ShardingType.ROW_WISE
TWRW, GRID = ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD
WHERE: Mapping[ShardingType, tuple[int, ...]] = {TW: (2,), RW: (), TWRW: (2,), GRID: (0, 2)}


def made(work: Workload, *kinds: ShardingType) -> StepOperations:
    how = {one.name: (kind, WHERE[kind]) for one, kind in zip(work.tables, kinds, strict=True)}
    return step_operations(work, FOUR, plan(work, FOUR, how))


def moved(made: StepOperations, name: str, rank: int = 2) -> float:
    return sum(float(op.num_bytes[rank]) for op in named(made, name))


def count(made: StepOperations, name: str, rank: int = 2) -> int:
    return sum(op.seconds[rank] > 0 for op in named(made, name))


# codecs


def test_fp8_falls_back_to_two_bytes_where_outputs_are_summed() -> None:
    work = workload(table(), comms_forward=DataType.FP8, comms_backward=DataType.FP8)
    rows = made(work, RW)
    assert moved(rows, "row_wise outputs") == SIZE / 2
    assert moved(rows, "row_wise gradients") == SIZE / 2
    assert moved(made(work, TW), "table_wise outputs") == SIZE / 4


def test_the_exchange_across_nodes_keeps_fp8() -> None:
    work = workload(table(), comms_forward=DataType.FP8, comms_backward=DataType.FP8)
    both = made(work, TWRW)
    assert moved(both, "table_row_wise partial sums") == SIZE / 2
    assert moved(both, "table_row_wise outputs") == SIZE / 2 / 4  # half as many sums, one byte each
    assert moved(both, "table_row_wise gradients across nodes") == SIZE / 2 / 4
    assert moved(both, "table_row_wise gradients") == SIZE / 2


def test_int8_sends_scales_with_its_elements() -> None:
    # 8 bytes for 32 elements
    work = workload(table(), comms_forward=DataType.INT8)
    assert moved(made(work, TW), "table_wise outputs") == SIZE / 4 * 1.25


@pytest.mark.parametrize(("codec", "clamps"), [(DataType.FP16, 1), (DataType.FP8, 0)])
def test_half_precision_is_clamped_before_it_is_cast(codec: DataType, clamps: int) -> None:
    one = made(workload(table(), comms_forward=codec), TW)
    assert count(one, "table_wise clamp to encode") == clamps
    assert moved(one, "table_wise clamp to encode") == clamps * 2 * SIZE


@pytest.mark.parametrize("output_type", [DataType.FP32, DataType.FP16])
@pytest.mark.parametrize("kind", [TW, RW, TWRW])
def test_fp32_codecs_convert_nothing(output_type: DataType, kind: ShardingType) -> None:
    plain = workload(table(), output_type=output_type)
    coded = replace(plain, comms_forward=DataType.FP32, comms_backward=DataType.FP32)
    one, other = made(plain, kind), made(coded, kind)
    assert [op.name for op in other.ops] == [op.name for op in one.ops]
    assert moved(other, f"{kind} outputs") == moved(one, f"{kind} outputs") > 0


# lookup kernels


def test_one_lookup_serves_tables_in_hbm_host_memory_and_cache() -> None:
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
    tables = [table(f"t{i}", compute_kernels=(kernel,)) for i, kernel in enumerate(kernels)]
    one = step_operations(work := workload(*tables), FOUR, with_kernels(work, TW, (2,)))
    assert count(one, "table_wise lookup") == count(one, "table_wise lookup backward") == 1


def with_kernels(work: Workload, kind: ShardingType, ranks: tuple[int, ...]) -> ShardingPlan:
    return ShardingPlan(
        tables=tuple(
            replace(sharding(one, kind, ranks, FOUR), compute_kernel=one.compute_kernels[0])
            for one in work.tables
        ),
        world_size=4,
        local_world_size=2,
    )


def test_sum_and_mean_have_a_lookup_each_and_their_outputs_are_concatenated() -> None:
    tables = table("a"), table("b", pooling=Pooling.MEAN)
    one = made(workload(*tables), TW, TW)
    assert count(one, "table_wise lookup") == count(one, "table_wise lookup backward") == 2
    assert moved(one, "table_wise concat lookups") == 2 * 2 * SIZE


def test_lookups_are_concatenated_only_on_ranks_that_have_several() -> None:
    half = table("a"), table("b", data_type=DataType.FP16)
    work = workload(*half)
    apart = step_operations(work, FOUR, plan(work, FOUR, {"a": (TW, (0,)), "b": (TW, (1,))}))
    assert [count(apart, "table_wise concat lookups", rank) for rank in range(4)] == [0] * 4
    together = step_operations(work, FOUR, plan(work, FOUR, {"a": (TW, (1,)), "b": (TW, (1,))}))
    assert [count(together, "table_wise concat lookups", rank) for rank in range(4)] == [0, 1, 0, 0]


@pytest.mark.parametrize("kind", [TW, RW, TWRW])
def test_weights_of_ids_get_a_gradient_which_gathers_all_rows_again(kind: ShardingType) -> None:
    one = made(workload(table(weighted=True)), kind)
    (lookup,) = named(one, f"weighted {kind} lookup")
    (again,) = named(one, f"weighted {kind} weights backward")
    latency = FOUR.hardware.gpu.kernel_latency
    busy = lookup.seconds > 0
    expected = (latency + 1.85 * (lookup.seconds - latency)) * busy
    assert again.seconds.tolist() == pytest.approx(expected.tolist())
    assert not named(made(workload(table()), kind), f"{kind} weights backward")


# mean pooling


def test_a_module_with_mean_pooled_row_shards_divides_all_its_columns() -> None:
    # outputs, divisors, outputs, on the rank's own samples, of all tables of the module
    tables = table("a", pooling=Pooling.MEAN), table("b")
    one = made(workload(*tables), RW, TW)
    assert moved(one, "divide by lengths") == 3 * 2 * OWN
    assert moved(one, "divide gradients by lengths") == 3 * 2 * OWN


@pytest.mark.parametrize("kinds", [(TW, RW), (GRID, RW)])
def test_lookups_of_whole_tables_and_of_grid_shards_need_no_division(
    kinds: tuple[ShardingType, ...],
) -> None:
    tables = table("a", pooling=Pooling.MEAN), table("b")
    assert count(made(workload(*tables), *kinds), "divide by lengths") == 0


# gradients


@pytest.mark.parametrize(("kind", "sends", "returns"), [(RW, 1, 1), (TWRW, 1, 1), (TW, 0, 0)])
def test_the_host_works_for_exchanges_of_sums_as_for_those_of_whole_tables(
    kind: ShardingType, sends: int, returns: int
) -> None:
    # awaitables and autograd functions of a reduce-scatter launch nothing: 12, 7 and 6 operators
    one = made(workload(table()), kind)
    on_main = {"send sums": 12.0, "gather sums": 7.0}
    for name, num_ops in on_main.items():
        assert count(one, f"{kind} {name}") == sends
        took = [float(op.seconds.max()) for op in named(one, f"{kind} {name}")]
        assert took == pytest.approx([num_ops * FOUR.hardware.host.op_time] * sends)
    back = [op for op in one.ops if op.name.startswith(f"{kind} send gradients")]
    assert len(back) == returns


def test_gradients_across_nodes_are_split_by_node() -> None:
    # a copy for each of 2 nodes, and one of all; on 4 ranks of one node 4 and one
    launches = {
        kind: launch_time(step(workload(table()), FOUR, kind, *WHERE[kind]), kind)
        for kind in (TWRW, TW)
    }
    host = FOUR.hardware.host
    difference = 2 * (host.backward_op_time + host.launch_time)
    assert launches[TW] - launches[TWRW] == pytest.approx(difference)


def launch_time(one: StepOperations, kind: ShardingType) -> float:
    (op,) = named(one, f"launch {kind} split gradients")
    return float(op.seconds[0])


def test_hierarchical_gradients_are_divided_after_each_exchange() -> None:
    one = made(workload(table()), TWRW)
    assert moved(one, "table_row_wise scale node gradients") == 2 * SIZE / 2
    assert moved(one, "table_row_wise scale gradients") == 2 * SIZE


# rows that are not pooled


def unpooled(kind: ShardingType) -> StepOperations:
    return step(workload(table(pooling=Pooling.NONE)), FOUR, kind, *WHERE[kind])


def test_unpooled_rows_are_permuted_not_concatenated() -> None:
    # ten rows a sample where pooling leaves one
    one = unpooled(TW)
    assert moved(one, "unpooled table_wise permute outputs") == 2 * 10 * SIZE
    assert moved(one, "unpooled table_wise permute rows' gradients") == 2 * 10 * SIZE
    assert moved(one, "unpooled table_wise join gradients") == 2 * 10 * OWN
    others = "copy to send buffer", "concat outputs", "split gradients", "zero rows", "add rows"
    for name in others:
        assert not named(one, f"unpooled table_wise {name}")


def test_unpooled_row_shards_are_selected_and_their_gradients_added_to_zeros() -> None:
    one = unpooled(RW)
    assert moved(one, "unpooled row_wise select rows") == 2 * 10 * OWN
    assert moved(one, "unpooled row_wise zero rows") == 10 * OWN
    assert moved(one, "unpooled row_wise add rows") == 3 * 10 * OWN


# input distribution


@pytest.mark.parametrize(("kind", "times"), [(TWRW, 1), (GRID, 1), (RW, 0)])
def test_bucketized_ids_of_nodes_are_staggered(kind: ShardingType, times: int) -> None:
    one = made(workload(table()), kind)
    assert count(one, f"{kind} stagger ids") == times
    # ids of 8 bytes, once for each of a grid's column shards, and lengths for both ranks of a node
    sent = BATCH * (10 * 8 + 2 * 4) * (2 if kind is GRID else 1)
    assert moved(one, f"{kind} stagger ids", rank=0) == times * 2 * sent


@pytest.mark.parametrize(
    ("kind", "weighted", "tensors"), [(TW, False, 3), (TW, True, 4), (RW, False, 4)]
)
def test_the_host_waits_for_every_split_tensor(
    kind: ShardingType, *, weighted: bool, tensors: int
) -> None:
    # lengths, ids, batch sizes, weights if any; lengths of bucketized ids are added up and read
    one = made(workload(table(weighted=weighted)), kind)
    (waited,) = named(one, f"copy {'weighted ' if weighted else ''}{kind} splits")
    assert waited.seconds.max() == tensors * FOUR.hardware.host.sync_time


def test_every_module_permutes_its_own_features() -> None:
    tables = table("a"), table("b", weighted=True), table("c", pooling=Pooling.NONE)
    assert count(made(workload(*tables), TW, TW, TW), "permute ids") == 3


def test_features_of_row_shards_alone_are_in_order() -> None:
    assert count(made(workload(table("a"), table("b")), RW, RW), "permute ids") == 0
    assert count(made(workload(table("a"), table("b")), RW, TW), "permute ids") == 1


# the dense side


def test_the_reducer_copies_weights_and_biases_apart() -> None:
    # four layers of plans.workload: the first is 13 to 64
    one = made(workload(table()), TW)
    copies = [float(op.num_bytes[0]) for op in named(one, "dense bucket copy")]
    assert len(copies) == 8
    assert copies[-2:] == [2 * 4 * 64, 2 * 4 * 13 * 64]


# variable batch per feature


@pytest.mark.parametrize("kind", [TW, RW])
def test_samples_share_outputs_and_their_gradients(kind: ShardingType) -> None:
    shared = table("a", bags_per_sample=0.25)
    one, whole = (made(workload(each, table("b")), kind, kind) for each in (shared, table("a")))
    # a quarter of one table's outputs and all of the other's come in; both tables' go on
    assert moved(one, "spread over samples") == OWN * (1.25 + 2)
    assert moved(one, "add up samples' gradients") == OWN * (2 * 1.25 + 2)
    assert not named(whole, "spread over samples")
    for name in (f"{kind} outputs", f"{kind} lengths"):
        assert moved(one, name) == pytest.approx(moved(whole, name) * 1.25 / 2)
    assert moved(one, f"{kind} ids") == moved(whole, f"{kind} ids")
    assert moved(one, "order features") == moved(whole, "order features")


# one description


def mixtures() -> list[tuple[EmbeddingTable, ...]]:
    half, mean = {"data_type": DataType.FP16}, {"pooling": Pooling.MEAN}
    return [
        (table("a"), table("b", **half), table("c", **mean)),
        (table("a", weighted=True), table("b", pooling=Pooling.NONE), table("c", **mean)),
        (table("a", **mean), table("b", **mean), table("c", **half, weighted=True)),
    ]


@pytest.mark.parametrize("tables", mixtures())
@pytest.mark.parametrize("codec", [None, DataType.FP16, DataType.FP8])
@pytest.mark.parametrize("kinds", [(TW, RW, TW), (RW, RW, RW), (TW, TW, TW), (RW, TW, RW)])
def test_the_objective_is_the_simulated_step(
    tables: tuple[EmbeddingTable, ...], codec: DataType | None, kinds: tuple[ShardingType, ...]
) -> None:
    work = workload(
        *tables, comms_forward=codec, comms_backward=codec, optimizer=Optimizer.ROWWISE_ADAGRAD
    )
    where = plan(
        work, FOUR, {t.name: (kind, WHERE[kind]) for t, kind in zip(tables, kinds, strict=True)}
    )
    step_time = simulated(step_operations(work, FOUR, where)).step_time
    assert Objective(work, FOUR).step_time(where) == pytest.approx(step_time, rel=1e-12)
