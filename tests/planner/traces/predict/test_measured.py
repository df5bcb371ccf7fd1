from typing import Any

import pytest

from planner.traces.predict.measured import measured_steps


def kineto(*events: tuple[str, str, float, float], rank: int | None = None) -> dict[str, Any]:
    made = [
        {
            "ph": "X", "cat": kind, "name": name, "pid": 50, "tid": 50, "ts": ts, "dur": dur,
            "args": {"stream": 7},
        }
        for kind, name, ts, dur in events
    ]  # fmt: skip
    info = {} if rank is None else {"distributedInfo": {"rank": rank}}
    return {"traceEvents": made, **info}


def test_takes_the_median_of_marked_steps() -> None:
    steps = [("user_annotation", f"ProfilerStep#{i}", 0, d) for i, d in enumerate((10, 30, 20))]
    assert measured_steps([("a.json", kineto(*steps, rank=1))], {1: None}) == {
        1: pytest.approx(20e-6)
    }


def test_without_marks_takes_all_that_was_recorded() -> None:
    ops = [("cpu_op", "aten::mm", 5, 10), ("cpu_op", "aten::relu", 40, 5)]
    assert measured_steps([("a.json", kineto(*ops))], {0: 50}) == {0: pytest.approx(40e-6)}
    assert measured_steps([("r2.json", kineto(*ops))], {2: None}) == {2: pytest.approx(40e-6)}


def test_a_step_lasts_until_its_last_kernel_ends() -> None:
    events = [("cpu_op", "aten::mm", 5, 10), ("kernel", "gemm", 20, 70)]
    assert measured_steps([("a.json", kineto(*events))], {0: 50}) == {0: pytest.approx(85e-6)}


def test_other_files_measure_nothing() -> None:
    assert measured_steps([("et.json", {"nodes": []})], {0: 50}) == {}
