from pathlib import Path

import pytest
from execution_trace_files import PROFILE

from bench.nlp.cpu_model import InStep
from bench.nlp.cpu_profile import read_cpu_profile


def written(folder: Path, text: str) -> Path:
    path = folder / "core.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_microseconds_as_seconds(tmp_path: Path) -> None:
    profile = read_cpu_profile(written(tmp_path, PROFILE))
    assert profile.host.python_call_time == pytest.approx(1e-5)
    assert profile.operators["aten::relu"].seconds == pytest.approx((1e-6, 1e-4))
    assert profile.products["aten::mm"].flop_time == pytest.approx(1e-9)
    assert profile.all_reduce is not None
    assert profile.all_reduce.work_time(400) == pytest.approx(2e-5)


def test_factors_of_kernels_within_a_step_are_kept(tmp_path: Path) -> None:
    assert read_cpu_profile(written(tmp_path, PROFILE)).in_step == InStep()
    text = PROFILE + "in_step: {products: 1.02, operators: 1.3, waiting: 1.1}\n"
    profile = read_cpu_profile(written(tmp_path, text))
    assert profile.in_step == InStep(products=1.02, operators=1.3, waiting=1.1)
