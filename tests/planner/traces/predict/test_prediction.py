from dataclasses import replace
from pathlib import Path

import pytest
from execution_trace_files import EtMaker, rank, tensor, write_job

from costmodel.base.errors import InputError
from costmodel.base.units import US
from planner.files.profiles import dump_profile, load_profile
from planner.traces.predict.prediction import Prediction, predict


def predicted(folder: Path, *makers: EtMaker, hardware: str = "h100-sxm") -> Prediction:
    return predict(write_job(folder / "job", *makers), hardware)


def core(folder: Path, *, memory_bandwidth: float = 1e9) -> str:
    """A calibrated profile of cores: 10 us an operator, 20 us one of backward."""
    base = load_profile("cpu-gloo")
    gpu = replace(base.gpu, memory_bandwidth=memory_bandwidth, kernel_latency=1e-9)
    host = replace(base.host, op_time=10 * US, backward_op_time=20 * US)
    path = folder / "mine.yaml"
    path.write_text(dump_profile(replace(base, name="mine", gpu=gpu, host=host)), encoding="utf-8")
    return str(path)


def test_kernels_of_a_core_run_on_the_thread_that_calls_them(tmp_path: Path) -> None:
    made = predicted(tmp_path, rank(), rank(), hardware=core(tmp_path))
    stages = {stage.value: seconds for stage, seconds in made.ranks[0].stages.items()}
    # a product and a relu of forward, an update; a product and an all-reduce of backward
    assert stages["host"] == pytest.approx(3 * 10e-6 + 2 * 20e-6)
    # the update is issued while the all-reduce runs, and then waits for it
    assert made.step_time == pytest.approx(sum(stages.values()) - 10e-6)


def test_streaming_takes_as_long_as_the_cores_memory(tmp_path: Path) -> None:
    # 100 floats read and written, in forward and by the optimizer: 2 x 800 bytes at 1 GB/s
    fast = core(tmp_path, memory_bandwidth=1e12)
    without = predicted(tmp_path, rank(), rank(), hardware=fast)
    made = predicted(tmp_path, rank(), rank(), hardware=core(tmp_path))
    streamed = {each.family: each.seconds for each in made.families}["elementwise"]
    assert streamed == pytest.approx(1.6e-6, rel=0.01)
    assert made.step_time > without.step_time + 1.5e-6


def test_measured_times_of_operators_are_no_hardware_profile(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", rank(), rank())
    with pytest.raises(InputError, match="unknown field `kind`"):
        predict(job, tmp_path / "core.yaml")


@pytest.mark.parametrize("profile", ["v100-nvlink", "a100-sxm-80gb", "h100-sxm"])
def test_the_same_traces_on_gpus(tmp_path: Path, profile: str) -> None:
    made = predicted(tmp_path, rank(), rank(), hardware=profile)
    assert not made.unknown
    stages = {stage.value for stage in made.ranks[0].stages}
    assert {"host", "all_reduce", "dense_forward", "dense_backward", "optimizer"} <= stages
    # six operators are issued at 10 to 30 us each
    assert 40e-6 < made.step_time < 400e-6


def test_larger_batches_take_longer_on_gpus(tmp_path: Path) -> None:
    def job(batch: int) -> EtMaker:
        maker = EtMaker()
        a, b = tensor(batch, 1024), tensor(1024, 1024, storage=2)
        maker.add("aten::mm", [a, b], [tensor(batch, 1024, storage=3)])
        maker.add("aten::gelu", [tensor(batch, 1024, storage=3)], [tensor(batch, 1024, storage=4)])
        return maker

    small, large = (
        predicted(tmp_path, job(batch), hardware="h100-sxm").step_time for batch in (4096, 65536)
    )
    assert large > 4 * small


def test_ranks_must_run_the_same_collectives(tmp_path: Path) -> None:
    other = rank()
    other.add("c10d::allgather_", [tensor(100)], [tensor(200)])
    with pytest.raises(InputError, match="starts 2 collectives"):
        predicted(tmp_path, rank(), other)
