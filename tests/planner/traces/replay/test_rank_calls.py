from pathlib import Path

import pytest
from kineto_traces import AUTOGRAD, MAIN, TraceMaker, read_kineto, write_folder

from planner.traces.kineto import RankTrace
from planner.traces.replay.rank_calls import (
    in_order,
    launch_latency,
    next_on_stream,
    thread_names,
)


def trace_of(folder: Path, maker: TraceMaker) -> RankTrace:
    (trace,) = read_kineto(write_folder(folder / "traces", [maker]))
    return trace


@pytest.fixture
def trace(tmp_path: Path) -> RankTrace:
    maker = TraceMaker(0, world_size=1)
    maker.step(0, 0, 200)
    maker.step(1, 200, 200)
    maker.launch("a", 0, 30, 20, 1)
    maker.launch("b", 200, 230, 20, 2)
    maker.call("cudaGraphLaunch", 300, 5, 3, thread=AUTOGRAD)
    for stream in range(10, 15):
        maker.kernel("inside", 390, 5, 3, stream)
    return trace_of(tmp_path, maker)


def latency(trace: RankTrace) -> float:
    return launch_latency(trace, {call.correlation: call for call in trace.calls})


def test_kernels_of_graphs_say_nothing_of_launches(trace: RankTrace) -> None:
    assert latency(trace) == pytest.approx(30e-6)


def test_a_step_ends_before_the_next_begins(trace: RankTrace) -> None:
    marks = [event.begins for event in in_order(trace) if hasattr(event, "begins")]
    assert marks == [True, False, True, False]


def test_threads_are_named_by_what_they_do(trace: RankTrace) -> None:
    assert thread_names(trace) == {MAIN: "main", AUTOGRAD: "autograd"}


def test_what_follows_on_a_stream(trace: RankTrace) -> None:
    after = next_on_stream(trace.activities)
    assert [None if each is None else each.name for each in after] == ["b", *[None] * 6]
