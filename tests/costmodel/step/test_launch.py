"""How the host issues the dense model: operator by operator, compiled, or as CUDA graphs."""

from dataclasses import replace

import numpy as np
import pytest
from machines import machine, topology
from plans import step, table, workload

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.hardware import Device
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import LaunchMode, Workload
from costmodel.step.graph import Stage
from costmodel.step.issue import COMPILED_CALL_OPS, GRAPHED_CALL
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.step_operations import StepOperations

TWO = topology(2)
HOST = TWO.hardware.host
CALLS = ("bottom.0", "concat features", "loss backward", "bottom.1 backward relu")
"""The first kernel before and after every exchange, forward and backward."""

LAUNCHES = {"loss": 6, "loss backward": 4}
"""What PyTorch launches for a binary cross entropy and its backward; for others it is one."""


def launched(launch: LaunchMode) -> Workload:
    work = workload(table())
    return replace(work, dense=replace(work.dense, launch=launch))


def made(launch: LaunchMode) -> StepOperations:
    return step(launched(launch), TWO, ShardingType.TABLE_WISE, 1)


def issued(program: StepOperations) -> dict[str, float]:
    """Return what the host takes to issue every kernel of the dense model, on the slower rank."""
    dense = (Stage.DENSE_FORWARD, Stage.DENSE_BACKWARD)
    return {
        op.name: float(np.max(program.ops[op.launched_by].seconds))
        for op in program.ops
        if op.stage in dense and op.launched_by is not None
    }


def op_time(name: str) -> float:
    return HOST.backward_op_time if "backward" in name else HOST.op_time


def test_a_graph_is_launched_once_between_two_exchanges() -> None:
    times = issued(made(LaunchMode.CUDA_GRAPHS))
    assert {name for name, seconds in times.items() if seconds} == set(CALLS)
    for name in CALLS:
        expected = GRAPHED_CALL.num_ops * op_time(name) + HOST.launch_time
        assert times[name] == pytest.approx(expected)


def test_a_compiled_call_launches_every_kernel_without_operators() -> None:
    eager, compiled = issued(made(LaunchMode.EAGER)), issued(made(LaunchMode.COMPILED))
    assert eager.keys() == compiled.keys()
    for name, seconds in compiled.items():
        launches = LAUNCHES.get(name, 1)
        calls = COMPILED_CALL_OPS * op_time(name) if name in CALLS else 0.0
        assert seconds == pytest.approx(calls + launches * HOST.launch_time)


def test_kernels_and_everything_else_stay_the_same() -> None:
    eager, graphed = made(LaunchMode.EAGER), made(LaunchMode.CUDA_GRAPHS)
    dense = {f"launch {name}" for name in issued(eager)}
    for one, other in zip(eager.ops, graphed.ops, strict=True):
        assert one.name == other.name
        if one.name not in dense:
            assert np.array_equal(one.seconds, other.seconds)


def test_a_step_of_few_samples_is_shorter_the_less_the_host_does() -> None:
    times = [operation_timeline(made(launch)).step_time for launch in LaunchMode]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_a_cpu_has_no_graphs() -> None:
    cpus = topology(2, hardware=machine(device=Device.CPU))
    with pytest.raises(PlanMismatchError, match="needs GPUs"):
        step(launched(LaunchMode.CUDA_GRAPHS), cpus, ShardingType.TABLE_WISE, 1)
    step(launched(LaunchMode.COMPILED), cpus, ShardingType.TABLE_WISE, 1)
