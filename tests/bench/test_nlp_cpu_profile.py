from pathlib import Path

import pytest
from execution_trace_files import PROFILE

from bench.nlp.cpu_model import InStep
from bench.nlp.cpu_profile import dump_cpu_profile, read_cpu_profile
from costmodel.base.errors import InputError


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


def test_writes_what_it_reads(tmp_path: Path) -> None:
    profile = read_cpu_profile(written(tmp_path, PROFILE))
    again = read_cpu_profile(written(tmp_path, dump_cpu_profile(profile)))
    assert again == profile


def test_factors_of_kernels_within_a_step_are_kept(tmp_path: Path) -> None:
    assert read_cpu_profile(written(tmp_path, PROFILE)).in_step == InStep()
    text = PROFILE + "in_step: {products: 1.02, operators: 1.3, waiting: 1.1}\n"
    profile = read_cpu_profile(written(tmp_path, text))
    assert profile.in_step == InStep(products=1.02, operators=1.3, waiting=1.1)
    assert read_cpu_profile(written(tmp_path, dump_cpu_profile(profile))) == profile


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("step_us: 100", "step: 100"), "`host` needs a number for `step_us`"),
        (("us: [1, 100]", "us: [1]"), "`aten::relu` needs as many times as sizes"),
        (("us: [1, 100]", "us: one"), "`us` of `aten::relu` must be a list of numbers"),
        (("flop_us: 0.001", "flop_us: 0"), "`aten::mm`: times must not be negative"),
        (("near_bytes: 1000", "near_bytes: 1e9"), "`near_bytes` and `far_bytes`"),
        (("num_ranks: 2,", ""), "`all_reduce` needs `num_ranks`"),
        (("kind:", "in_step: {products: 0, operators: 1}\nkind:"), "`in_step` needs numbers above"),
    ],
)
def test_says_what_is_wrong_and_where(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=r"needs|must") as caught:
        read_cpu_profile(written(tmp_path, PROFILE.replace(*change)))
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.line is not None
