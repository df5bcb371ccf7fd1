"""What every sharding type sends: operation, group, bytes per rank, and what waits for it.

B = 256 samples on each of W = 4 ranks, P = 2 a node. One table of D = 64 columns and L = 10 ids a
sample: its output for the samples of all ranks is W B D e = 262,144 bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from machines import machine, topology
from plans import BATCH, collectives, index, named, plan, step, table, workload

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pipeline, Pooling
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.step_operations import Op, StepOperations
from costmodel.step.synthesis import step_operations

FOUR = topology(4, 2)
SIZE = 4 * BATCH * 64 * 4
IDS = 4 * BATCH * 10
DENSE = "dense all-reduce"


def sent(made: StepOperations, *skip: str) -> list[tuple[str, str, list[int]]]:
    """Return kind, process group and bytes per rank of the outputs' and gradients' collectives."""
    inputs = {Stage.INPUT_DIST}
    return [
        (op.stage.value, op.resource, [round(b) for b in op.num_bytes])
        for op in collectives(made)
        if op.stage not in inputs and op.name not in {DENSE, *skip}
    ]


def test_table_wise() -> None:
    made = step(workload(table()), FOUR, ShardingType.TABLE_WISE, 2)
    message = ("all_to_all", "world", [0, 0, SIZE, 0])
    assert sent(made) == [message, message]


def test_column_wise() -> None:
    made = step(workload(table()), FOUR, ShardingType.COLUMN_WISE, 0, 3)
    message = ("all_to_all", "world", [SIZE // 2, 0, 0, SIZE // 2])
    assert sent(made) == [message, message]
    local = 2 * BATCH * 64 * 4
    (there,) = named(made, "column_wise permute columns")
    (back,) = named(made, "column_wise permute gradients")
    assert there.num_bytes.tolist() == back.num_bytes.tolist() == [local] * 4


def test_table_column_wise_is_column_wise_inside_a_node() -> None:
    made = step(workload(table()), FOUR, ShardingType.TABLE_COLUMN_WISE, 2, 3)
    message = ("all_to_all", "world", [0, 0, SIZE // 2, SIZE // 2])
    assert sent(made) == [message, message]


def test_row_wise() -> None:
    made = step(workload(table()), FOUR, ShardingType.ROW_WISE)
    assert sent(made) == [
        ("reduce_scatter", "world", [SIZE] * 4),
        ("all_gather", "world", [SIZE] * 4),
    ]
    assert not named(made, "row_wise concat outputs", "row_wise split gradients")


def test_unpooled_row_wise_goes_by_all_to_all() -> None:
    made = step(workload(table(pooling=Pooling.NONE)), FOUR, ShardingType.ROW_WISE)
    quarter = SIZE * 10 // 4
    message = ("all_to_all", "world", [quarter] * 4)
    assert sent(made) == [message, message]


def test_table_row_wise_has_two_serial_collectives() -> None:
    made = step(workload(table()), FOUR, ShardingType.TABLE_ROW_WISE, 2)
    inside, across = [0, 0, SIZE, SIZE], [0, 0, SIZE // 2, SIZE // 2]
    assert sent(made) == [
        ("reduce_scatter", "intra_node", inside),
        ("all_to_all", "cross_node", across),
        ("all_to_all", "cross_node", across),
        ("all_gather", "intra_node", inside),
    ]
    first, second, third, fourth = (
        index(made, f"table_row_wise {name}")
        for name in ("partial sums", "outputs", "gradients across nodes", "gradients")
    )
    assert reaches(made, second, first)
    assert reaches(made, fourth, third)


def test_table_row_wise_on_one_node_stays_inside() -> None:
    made = step(workload(table()), topology(4), ShardingType.TABLE_ROW_WISE, 0)
    assert sent(made) == [
        ("reduce_scatter", "intra_node", [SIZE] * 4),
        ("all_gather", "intra_node", [SIZE] * 4),
    ]


def test_grid_shard() -> None:
    made = step(workload(table()), FOUR, ShardingType.GRID_SHARD, 0, 2)
    assert sent(made) == [
        ("reduce_scatter", "intra_node", [SIZE // 2] * 4),
        ("all_to_all", "cross_node", [SIZE // 4] * 4),
        ("all_to_all", "cross_node", [SIZE // 4] * 4),
        ("all_gather", "intra_node", [SIZE // 2] * 4),
    ]


def test_data_parallel_reduces_its_tables_in_one_message() -> None:
    # 2 x 2 MB are below DDP's 25 MiB, and would not be split above: one parameter
    made = step(workload(table("a"), table("b")), FOUR, ShardingType.DATA_PARALLEL)
    assert sent(made) == [("all_reduce", "world", [2 * 8000 * 64 * 4] * 4)]
    assert not [op for op in collectives(made) if op.stage is Stage.INPUT_DIST]


def gradient_copies(made: StepOperations) -> list[int]:
    return [round(op.num_bytes[0]) for op in named(made, "data_parallel gradient copy")]


def test_lookup_kernels_of_replicated_tables_send_their_gradients_apart() -> None:
    # two data types are two parameters, and buckets have one type; with 1 MiB one is full
    work = workload(table("a"), table("b"), table("c", data_type=DataType.FP16))
    made = step(work, FOUR, ShardingType.DATA_PARALLEL)
    sizes = [2 * 8000 * 64 * 4, 8000 * 64 * 2]
    assert sent(made) == [("all_reduce", "world", [size] * 4) for size in sizes]
    assert gradient_copies(made) == [2 * size for size in sizes]


@pytest.mark.parametrize(("rows", "messages"), [(4000, 1), (4096, 2)])
def test_small_gradients_of_one_type_share_the_first_bucket(rows: int, messages: int) -> None:
    # DDP sends the first bucket once it holds 1 MiB: 4096 x 64 x 4
    tables = [table("a"), table("b", pooling=Pooling.MEAN)]
    work = workload(*(replace(one, num_embeddings=rows) for one in tables))
    made = step(work, FOUR, ShardingType.DATA_PARALLEL)
    size = rows * 64 * 4
    assert [size for _, _, (size, *_) in sent(made)] == [2 * size // messages] * messages
    assert gradient_copies(made) == [2 * size] * 2


def input_messages(made: StepOperations) -> dict[str, list[int]]:
    return {
        op.name: [round(b) for b in op.num_bytes]
        for op in collectives(made)
        if op.stage is Stage.INPUT_DIST
    }


def test_input_distribution_of_table_wise() -> None:
    made = step(workload(table()), FOUR, ShardingType.TABLE_WISE, 2)
    assert input_messages(made) == {
        "splits": [3 * 8 * 4] * 4,
        "table_wise lengths": [0, 0, 4 * BATCH * 4, 0],
        "table_wise ids": [0, 0, IDS * 8, 0],
    }


def test_input_distribution_of_row_wise() -> None:
    made = step(workload(table()), FOUR, ShardingType.ROW_WISE)
    assert input_messages(made) == {
        "splits": [3 * 8 * 4] * 4,
        "row_wise lengths": [4 * BATCH * 4] * 4,
        "row_wise ids": [IDS * 2] * 4,
    }


def test_weights_travel_in_their_own_message() -> None:
    made = step(workload(table(weighted=True)), FOUR, ShardingType.TABLE_WISE, 0)
    messages = input_messages(made)
    assert messages["splits"] == [4 * 8 * 4] * 4
    assert messages["weighted table_wise weights"] == [IDS * 4, 0, 0, 0]


def test_every_sharding_type_has_its_own_messages_and_all_share_the_splits() -> None:
    work = workload(table("a"), table("b"))
    both = {"a": (ShardingType.TABLE_WISE, (0,)), "b": (ShardingType.ROW_WISE, ())}
    made = step_operations(work, FOUR, plan(work, FOUR, both))
    assert list(input_messages(made)) == [
        "splits", "row_wise lengths", "row_wise ids", "table_wise lengths", "table_wise ids",
    ]  # fmt: skip
    assert input_messages(made)["splits"] == [6 * 8 * 4] * 4


def mixed() -> StepOperations:
    work = workload(table("a"), table("b"), table("c"))
    kinds = {
        "a": (ShardingType.TABLE_WISE, (0,)),
        "b": (ShardingType.ROW_WISE, ()),
        "c": (ShardingType.DATA_PARALLEL, ()),
    }
    return step_operations(work, FOUR, plan(work, FOUR, kinds))


def reaches(made: StepOperations, later: int, earlier: int) -> bool:
    """Return whether an operation waits for another, on any way."""
    seen, todo = set(), [later]
    last: dict[str, int] = {}
    before: dict[int, int] = {}
    for i, op in enumerate(made.ops):
        if op.resource in last:
            before[i] = last[op.resource]
        last[op.resource] = i
    while todo:
        at = todo.pop()
        if at == earlier:
            return True
        if at not in seen:
            seen.add(at)
            op = made.ops[at]
            todo += [*op.after, *(x for x in (op.launched_by, before.get(at)) if x is not None)]
    return False


def test_a_gathering_waits_for_its_own_collective() -> None:
    made = mixed()
    rows, whole = index(made, "row_wise outputs"), index(made, "table_wise outputs")
    gather = index(made, "row_wise wait for outputs")
    assert reaches(made, gather, rows)
    assert not reaches(made, gather, whole)


def test_a_backward_waits_for_its_own_gradients() -> None:
    # reverse order: table_wise first, then row_wise, then the replicated table
    made = mixed()
    rows, whole = index(made, "row_wise gradients"), index(made, "table_wise gradients")
    first = index(made, "table_wise lookup backward")
    assert reaches(made, first, whole)
    assert not reaches(made, first, rows)


def test_replicated_tables_wait_for_no_gradients_of_others() -> None:
    made = mixed()
    (backward,) = named(made, "data_parallel lookup backward")
    assert not any(made.ops[i].kind is NodeKind.COLLECTIVE for i in backward.after)


def test_all_gradients_are_sent_before_the_first_lookup_backward() -> None:
    made = mixed()
    first = min(i for i, op in enumerate(made.ops) if op.name.endswith("lookup backward"))
    assert index(made, "row_wise gradients") < first


def codec_ops(made: StepOperations) -> dict[str, Op]:
    return {op.name: op for op in made.ops if "code" in op.name and op.kind is NodeKind.KERNEL}


def test_quantized_communication_scales_the_bytes() -> None:
    work = workload(table(), comms_forward=DataType.FP16, comms_backward=DataType.BF16)
    made = step(work, FOUR, ShardingType.TABLE_WISE, 2)
    message = ("all_to_all", "world", [0, 0, SIZE // 2, 0])
    assert sent(made) == [message, message]


def test_codecs_work_on_what_is_sent_and_received() -> None:
    # reads 4 bytes and writes 2 an element, or the other way round
    work = workload(table(), comms_forward=DataType.FP16, comms_backward=DataType.BF16)
    ops = codec_ops(step(work, FOUR, ShardingType.TABLE_WISE, 2))
    everyone, own = [0, 0, 1.5 * SIZE, 0], [1.5 * SIZE / 4] * 4
    clamped = [0, 0, 2 * SIZE, 0]
    moved = {name.removeprefix("table_wise "): op.num_bytes.tolist() for name, op in ops.items()}
    assert moved == {
        "clamp to encode": clamped,
        "encode": everyone,
        "decode": own,
        "clamp to encode gradients": [2 * SIZE / 4] * 4,
        "encode gradients": own,
        "decode all gradients": everyone,
    }


def test_codecs_of_backward_count_as_backward() -> None:
    work = workload(table(), comms_forward=DataType.FP16, comms_backward=DataType.BF16)
    for name, op in codec_ops(step(work, FOUR, ShardingType.TABLE_ROW_WISE, 2)).items():
        backward = op.stage is Stage.LOOKUP_BACKWARD
        assert backward == ("gradients" in name)


def test_torchrec_divides_gradients_and_plain_dlrm_does_not() -> None:
    (scale,) = named(
        step(workload(table()), FOUR, ShardingType.TABLE_WISE, 2), "table_wise scale gradients"
    )
    assert scale.num_bytes.tolist() == [0, 0, 2 * SIZE, 0]
    plain = workload(table(), pipeline=Pipeline.DLRM)
    made = step(plain, FOUR, ShardingType.TABLE_WISE, 2)
    assert not named(made, "table_wise scale gradients")


@pytest.mark.parametrize("kind", list(ShardingType))
def test_one_rank_sends_nothing_but_splits_to_itself(kind: ShardingType) -> None:
    made = step(workload(table()), topology(1), kind, 0)
    assert not collectives(made)
    exchanged = kind is not ShardingType.DATA_PARALLEL
    assert bool(named(made, "splits of one rank")) == exchanged
    assert any(op.kind is NodeKind.WAIT for op in made.ops) == exchanged
    alone = step(workload(table(), pipeline=Pipeline.NONE), topology(1), kind, 0)
    assert not named(alone, "splits of one rank")
    assert not [op for op in alone.ops if op.kind is NodeKind.WAIT]


def world_times(made: StepOperations) -> Iterable[np.ndarray]:
    return (op.seconds for op in collectives(made) if op.resource == "world")


@pytest.mark.parametrize("ranks", [topology(2), FOUR, topology(8, 4)])
def test_a_collective_takes_equally_long_on_its_members(ranks: Topology) -> None:
    for seconds in world_times(step(workload(table()), ranks, ShardingType.TABLE_WISE, 0)):
        assert np.ptp(seconds) == 0


CORES = topology(4, 2, machine(device=Device.CPU))


_FIRST = {ShardingType.TABLE_WISE: (0,), ShardingType.COLUMN_WISE: (0, 1)}


def joined(kinds: Sequence[ShardingType], ranks: Topology) -> dict[str, int]:
    """Return bytes on rank 0 of what only a module with several groups has."""
    how = {f"t{number}": (kind, _FIRST.get(kind, ())) for number, kind in enumerate(kinds)}
    work = workload(*map(table, how))
    made = step_operations(work, ranks, plan(work, ranks, how))
    return {
        op.name: round(op.num_bytes[0])
        for op in made.ops
        if op.num_bytes[0] and ("groups" in op.name or "separate" in op.name)
    }


def test_a_core_joins_the_outputs_of_several_groups_and_separates_their_gradients() -> None:
    # B D e = 65,536 bytes of a table for the rank's samples, read and written
    one = 2 * BATCH * 64 * 4
    kinds = (ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL)
    assert joined(kinds, CORES) == {
        "concat groups": 3 * one,
        "row_wise separate gradients": one,
        "table_wise separate gradients": one,
    }


def test_one_group_has_nothing_to_join() -> None:
    assert joined((ShardingType.TABLE_WISE, ShardingType.TABLE_WISE), CORES) == {}


def test_a_gpu_joins_groups_too_and_copies_what_column_shards_reorder() -> None:
    one = 2 * BATCH * 64 * 4
    kinds = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE)
    separate = {f"{kind} separate gradients": one for kind in kinds}
    assert joined(kinds, FOUR) == {"concat groups": 2 * one, **separate}
    on_cores = {"concat groups": 2 * one, "table_wise separate gradients": one}
    assert joined(kinds, CORES) == on_cores


def test_shares_of_a_cores_bandwidth_lengthen_its_copies() -> None:
    half = replace(CORES.hardware.gpu, view_efficiency=0.5, in_place_efficiency=2.0)
    slow = replace(CORES, hardware=replace(CORES.hardware, gpu=half))
    took = [step(workload(table()), each, ShardingType.TABLE_WISE, 0) for each in (CORES, slow)]
    latency = CORES.hardware.gpu.kernel_latency
    for name, factor in (("order features", 2.0), ("table_wise scale gradients", 0.5)):
        before, after = (named(each, name)[0].seconds[0] - latency for each in took)
        assert after == pytest.approx(factor * before)
