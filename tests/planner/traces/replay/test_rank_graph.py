from pathlib import Path

import pytest
from kineto_traces import TraceMaker, write_folder

from costmodel.step.graph import NodeKind
from costmodel.step.simulator import simulate
from planner.traces.replay.breakdown import breakdown
from planner.traces.replay.classify import Category
from planner.traces.replay.importing import ImportedRun, load_run
from planner.traces.replay.modes import replay, replay_graph
from planner.traces.replay.questions import what_if


def graphed() -> TraceMaker:
    """A rank that launches a kernel, a CUDA graph of four kernels, and a kernel on another stream.

    In the graph two branches run on streams 7 and 8 after the first kernel, and join.
    """
    maker = TraceMaker(0, world_size=1)
    maker.step(0, 0, 700)
    maker.launch("first", 0, 20, 80, 1)
    maker.call("cudaGraphLaunch", 30, 40, 2)
    for name, start, length, stream in (
        ("volta_sgemm", 100, 110, 7),
        ("left", 215, 100, 7),
        ("right", 220, 150, 8),
        ("join", 380, 20, 7),
    ):
        maker.kernel(name, start, length, 2, stream)
    maker.call("cudaLaunchKernel", 90, 10, 3)
    maker.kernel("next", 405, 50, 3, 9)
    maker.call("cudaDeviceSynchronize", 110, 350, 4)
    for number, at in ((5, 470), (6, 520)):
        maker.launch("last", at, at + 20, 5, number)
    return maker


@pytest.fixture
def run(tmp_path: Path) -> ImportedRun:
    return load_run(write_folder(tmp_path / "traces", [graphed()]))


def spans(run: ImportedRun, question: str = "") -> dict[str, tuple[int, int]]:
    """Return when kernels start and end, in microseconds."""
    graph = what_if(run, question, "traces").graph if question else run.graph
    timeline = simulate(graph, drain=False)
    return {
        node.name: (round(1e6 * start), round(1e6 * end))
        for node, start, end in zip(graph.nodes, timeline.starts, timeline.ends, strict=True)
        if node.kind is NodeKind.KERNEL
    }


def test_kernels_of_a_graph_run_as_recorded(run: ImportedRun) -> None:
    found = spans(run)
    assert found["volta_sgemm"] == (100, 210)
    assert (found["left"], found["right"]) == ((215, 315), (220, 370))
    assert found["join"] == (380, 400)
    # "next" starts 5 us sooner, as what it waits for is inferred
    assert replay(run).step_time == pytest.approx(695e-6)
    assert "1 CUDA graph launched: kernels in the recorded order and as far apart" in run.notes[0]


def test_a_longer_kernel_delays_those_that_it_ended_before(run: ImportedRun) -> None:
    found = spans(run, "gemm x2")
    # 110 us more; the gaps within the graph stay
    assert (found["left"], found["right"]) == ((325, 425), (330, 480))
    assert found["join"] == (490, 510)


def test_what_follows_a_graph_on_another_stream_waits_for_it(run: ImportedRun) -> None:
    # without an event that anyone recorded: it ran after the graph's last kernel
    assert spans(run)["next"][0] >= 400
    assert spans(run, "gemm x2")["next"][0] >= 510
    edge = next(e for e in run.wait_edges if run.graph.nodes[e.waits].name == "next")
    assert (run.graph.nodes[edge.waited_for].name, edge.recorded) == ("join", False)


def test_gaps_within_a_graph_are_not_the_hosts(run: ImportedRun) -> None:
    timeline = replay_graph(run, run.graph).timeline
    assert timeline is not None
    parts = {part.category: part.seconds for part in breakdown(timeline).path}
    # 80 before, 150 of the right branch, 20 + 50 behind it, and 10 before and after the branch
    assert parts[Category.OTHER] == pytest.approx(320e-6)
    assert parts[Category.GEMM] == pytest.approx(110e-6)


def test_a_graph_is_launched_as_a_kernel_is(run: ImportedRun) -> None:
    # Kernels start 20 us after their calls; the graph's first one waits for the one before it.
    (inside,) = (node for node in run.graph.nodes if node.name == "volta_sgemm")
    assert inside.launch_delay == pytest.approx(20e-6)
    assert spans(run, "kernels x0")["left"][0] == (30 + 20 + 5)
