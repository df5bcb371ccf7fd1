from dataclasses import replace

import pytest
from machines import machine
from plans import plan, table, workload

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Optimizer, OptimizerImplementation, Workload
from costmodel.step.graph import Stage
from costmodel.step.optimizer import IMPLEMENTATIONS, replica_update_time
from costmodel.step.step_operations import Op, StepOperations
from costmodel.step.synthesis import step_operations

MACHINE = machine()
TWO = Topology(hardware=MACHINE, world_size=2, local_world_size=2)
DP, TW = ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE
LOOP, FOREACH, FUSED = OptimizerImplementation
TENSORS = 2 * 4


def made(
    optimizer: Optimizer,
    *kinds: ShardingType,
    used: OptimizerImplementation | None = None,
    data_type: DataType = DataType.FP32,
) -> tuple[StepOperations, Workload]:
    tables = [table(f"t{i}", data_type=data_type) for i in range(len(kinds))]
    work = workload(*tables)
    dense = replace(work.dense, optimizer=optimizer, optimizer_implementation=used)
    work = replace(work, dense=dense)
    where = {one.name: (kind, (0,)) for one, kind in zip(tables, kinds, strict=True)}
    return step_operations(work, TWO, plan(work, TWO, where)), work


def dense_bytes(work: Workload) -> float:
    from costmodel.domain.dense_layers import dense_layers

    return sum(4.0 * layer.num_parameters for layer in dense_layers(work))


def update(step: StepOperations) -> Op:
    (op,) = (op for op in step.ops if op.name == "dense optimizer")
    assert op.stage is Stage.OPTIMIZER
    return op


def host_time(step: StepOperations) -> float:
    names = ("launch dense optimizer", "rest of the optimizer's loop")
    return sum(float(op.seconds[0]) for op in step.ops if op.name in names)


@pytest.mark.parametrize(
    ("optimizer", "passes", "launches"),
    [(Optimizer.SGD, 3, 1), (Optimizer.ADAGRAD, 13, 5), (Optimizer.ADAM, 18, 7)],
)
def test_foreach_moves_the_parameters_once_for_each_operand(
    optimizer: Optimizer, passes: int, launches: int
) -> None:
    # Adagrad: addcmul 3, sqrt 2, add 2, mul 2, addcdiv 4
    step, work = made(optimizer, TW)
    assert update(step).num_bytes[0] == pytest.approx(passes * dense_bytes(work))
    latency = launches * MACHINE.gpu.kernel_latency
    expected = latency + passes * dense_bytes(work) / MACHINE.gpu.memory_bandwidth
    assert update(step).seconds[0] == pytest.approx(expected)


@pytest.mark.parametrize("optimizer", [Optimizer.SGD, Optimizer.ADAGRAD, Optimizer.ADAM])
def test_a_replicated_table_sends_all_parameters_through_the_loop(optimizer: Optimizer) -> None:
    # 8 tensors of four layers and two tables, each with all kernels of the loop
    step, work = made(optimizer, DP, DP, TW)
    ops, launches, passes, _ = IMPLEMENTATIONS[LOOP][optimizer]
    host = MACHINE.host
    once = ops * host.op_time + launches * host.launch_time
    assert host_time(step) == pytest.approx((TENSORS + 2) * once + 2 * host.op_time)
    moved = passes * (dense_bytes(work) + 2 * work.tables[0].weight_bytes)
    assert update(step).num_bytes[0] == pytest.approx(moved)
    latency = (TENSORS + 2) * launches * MACHINE.gpu.kernel_latency
    expected = latency + moved / MACHINE.gpu.memory_bandwidth
    assert update(step).seconds[0] == pytest.approx(expected)


def test_each_replicated_table_is_a_parameter_of_its_own() -> None:
    one, _ = made(Optimizer.ADAM, DP, TW, TW)
    two, _ = made(Optimizer.ADAM, DP, DP, TW)
    ops, launches, *_ = IMPLEMENTATIONS[LOOP][Optimizer.ADAM]
    once = ops * MACHINE.host.op_time + launches * MACHINE.host.launch_time
    assert host_time(two) - host_time(one) == pytest.approx(once)


def test_foreach_asked_for_avoids_the_loop() -> None:
    step, work = made(Optimizer.ADAGRAD, DP, TW, used=FOREACH)
    assert not [op for op in step.ops if op.name == "rest of the optimizer's loop"]
    moved = 13 * (dense_bytes(work) + work.tables[0].weight_bytes)
    assert update(step).num_bytes[0] == pytest.approx(moved)
    # step and five operators, half of one for every dense tensor; five launches
    ops = 2 + 5 + TENSORS / 2
    once = ops * MACHINE.host.op_time + 5 * MACHINE.host.launch_time
    assert host_time(step) == pytest.approx(once)


def test_fused_reads_and_writes_each_number_once() -> None:
    # gradient, and parameter and two states twice
    step, work = made(Optimizer.ADAM, TW, used=FUSED)
    assert update(step).num_bytes[0] == pytest.approx(7 * dense_bytes(work))


def test_replicated_gradients_have_the_type_of_their_table() -> None:
    # 8,000 rows of 64 columns: the all-reduce, the copy into its bucket, the update
    half, work = made(Optimizer.SGD, DP, TW, data_type=DataType.FP16)
    (reduced,) = (op for op in half.ops if op.name == "data_parallel all-reduce")
    (copied,) = (op for op in half.ops if op.name == "data_parallel gradient copy")
    assert reduced.num_bytes[0] == 8000 * 64 * 2
    assert copied.num_bytes[0] == 2 * 8000 * 64 * 2
    assert update(half).num_bytes[0] == pytest.approx(3 * (dense_bytes(work) + 8000 * 64 * 2))


def test_what_changes_in_place_takes_less_on_a_core() -> None:
    # in place a core moves twice the bytes: 2 passes of Adagrad's loop write a new tensor, 9 none
    gpu = replace(MACHINE.gpu, in_place_efficiency=2.0)
    adagrad = IMPLEMENTATIONS[LOOP][Optimizer.ADAGRAD]
    assert adagrad.copied_passes(gpu) == pytest.approx(2 + 9 / 2)
    assert adagrad.copied_passes(MACHINE.gpu) == 11
    for kernels in IMPLEMENTATIONS.values():
        assert all(each.in_place <= each.passes for each in kernels.values())
    moved = replica_update_time(made(Optimizer.SGD, DP)[1], replace(MACHINE, gpu=gpu), 1e9)
    whole = replica_update_time(made(Optimizer.SGD, DP)[1], MACHINE, 1e9)
    assert whole - moved == pytest.approx(1.5e9 / MACHINE.gpu.memory_bandwidth)
