from pathlib import Path

import pytest
from kineto_traces import AUTOGRAD, TraceMaker, write_json

from bench.gpu_study.traces import traced_stages
from costmodel.base.units import US


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two steps of one rank: a product of 100 us, its backward of 50, each launched in 10 us."""
    maker = TraceMaker(0, world_size=1)
    for step in (0, 1):
        at, number = 1000.0 * step, 10 * step
        maker.step(step, at, 900)
        maker.scope("aten::mm", at + 5, 40)
        maker.launch("sgemm", at + 20, at + 40, 100, number + 1)
        maker.scope("autograd::engine::evaluate_function: MmBackward0", at + 200, 50, AUTOGRAD)
        maker.call("cudaLaunchKernel", at + 210, 10, number + 2, AUTOGRAD)
        maker.kernel("sgemm", at + 230, 50, number + 2)
    path = tmp_path / "rank0.json"
    write_json(path, maker.document())
    return path


def test_stages_are_seconds_of_one_step(trace: Path) -> None:
    found = traced_stages(trace, 2)["stages"]
    assert found["dense_forward"] == pytest.approx(100 * US)
    assert found["dense_backward"] == pytest.approx(50 * US)


def test_a_trace_without_a_process_group_is_read(trace: Path) -> None:
    trace.write_text(trace.read_text().replace('"distributedInfo"', '"something"'))
    assert traced_stages(trace, 2)["stages"]["dense_forward"] > 0


def test_a_trace_that_cannot_be_read_costs_only_what_it_tells(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text('{"traceEvents": []}')
    found = traced_stages(tmp_path / "rank0.json", 2)
    assert found["stages"] == {}
    assert found["unreadable"]
