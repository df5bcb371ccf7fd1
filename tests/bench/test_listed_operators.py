from typing import Any

import pytest

from bench.fitting.listed_operators import between, gpu_profiles, listed_times, ratios
from costmodel.domain.hardware import Source
from costmodel.operators.operator_list import Pass
from planner.files.profiles import load_profile


@pytest.mark.parametrize("name", gpu_profiles())
def test_profiles_of_gpus_have_the_times_of_the_traces(name: str) -> None:
    profile = load_profile(name)
    for field, seconds in listed_times(name).items():
        assert getattr(profile.host, field) == pytest.approx(seconds), field
        assert profile.kind(f"host.{field}") is Source.FITTED


def test_on_each_machine_forward_takes_longer_than_what_the_step_model_counts() -> None:
    assert all(by_pass[Pass.FORWARD] > 1.5 for by_pass in ratios().values())


def event(name: str, begin: float, end: float, kind: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "tid": 1, "name": name, "ts": begin, "dur": end - begin, "cat": kind}


def launching(name: str, begin: float, *, launches: int = 1) -> list[dict[str, Any]]:
    calls = [
        event("cudaLaunchKernel", begin + 1 + n, begin + 1.5 + n, "cuda_runtime")
        for n in range(launches)
    ]
    return [event(f"aten::{name}", begin, begin + 10), *calls]


def test_an_operator_lasts_until_the_next_one_of_its_pass_that_launches() -> None:
    trace = {
        "traceEvents": [
            *launching("addmm", 100, launches=2),
            event("aten::view", 112, 114),  # launches nothing
            *launching("relu", 130),
            event("cudaStreamSynchronize", 145, 190, "cuda_runtime"),
            *launching("mm", 200),
            event("autograd::engine::evaluate_function: MmBackward0", 215, 260),
            *launching("mm", 220),
            *launching("sum", 235),
        ]
    }
    assert list(between(trace)) == [
        (Pass.FORWARD, "aten::addmm", 30), (Pass.BACKWARD, "aten::mm", 15),
    ]  # fmt: skip
