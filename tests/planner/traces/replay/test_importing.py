from pathlib import Path

import pytest
from kineto_traces import AUTOGRAD, COMPUTE, TraceMaker, two_ranks, write_folder, write_json

from costmodel.step.graph import Node, NodeKind, Stage
from costmodel.step.simulator import simulate
from planner.traces.replay.importing import ImportedRun, load_run


def run_of(folder: Path, makers: list[TraceMaker]) -> ImportedRun:
    return load_run(write_folder(folder / "traces", makers))


def one_rank() -> TraceMaker:
    return TraceMaker(0, world_size=1)


def times(run: ImportedRun, name: str, rank: int = 0) -> tuple[float, float]:
    """Start and end of a node when simulated, in microseconds."""
    timeline = simulate(run.graph, drain=True)
    index = next(i for i, n in enumerate(run.graph.nodes) if n.name == name and n.rank == rank)
    return timeline.starts[index] * 1e6, timeline.ends[index] * 1e6


def node(run: ImportedRun, name: str) -> Node:
    return next(node for node in run.graph.nodes if node.name == name)


def test_two_ranks_replay_as_they_ran(tmp_path: Path) -> None:
    run = run_of(tmp_path, two_ranks())
    for rank in (0, 1):
        assert times(run, "ncclKernel_AllReduce", rank) == pytest.approx((220, 270))
        assert times(run, "elementwise_kernel", rank) == pytest.approx((270, 300))
    assert [mark.measured for mark in run.marks] == [pytest.approx(400e-6)] * 2
    timeline = simulate(run.graph)
    for mark in run.marks:
        assert timeline.ends[mark.end] - timeline.ends[mark.begin] == pytest.approx(400e-6)


def test_names_say_what_streams_and_kernels_are_for(tmp_path: Path) -> None:
    run = run_of(tmp_path, two_ranks())
    assert node(run, "volta_sgemm").resource == "compute"
    reduce = node(run, "ncclKernel_AllReduce")
    assert (reduce.kind, reduce.stage) == (NodeKind.COLLECTIVE, Stage.ALL_REDUCE)
    assert reduce.resource == "collectives"


def test_waits_are_inferred_from_order_and_time(tmp_path: Path) -> None:
    # per rank: the all-reduce waits for the first kernel, the last kernel for the all-reduce
    assert run_of(tmp_path, two_ranks()).waits.inferred == 4
    assert run_of(tmp_path, two_ranks()).waits.recorded == 0


def test_waits_that_execution_traces_record_are_used(tmp_path: Path) -> None:
    makers = two_ranks()
    for maker in makers:
        maker.scope("record_param_comms", 31, 25)
        maker.scope("record_param_comms", 69, 3)
    folder = write_folder(tmp_path / "traces", makers)
    tensor = [1, 2, 0, 64, 4, "cuda:0"]
    many = "GenericList[Tensor(float)]"
    nodes = [
        {"name": "record_param_comms", "id": 1, "inputs": [[tensor], 5, 9, 0, "allreduce"],
         "input_shapes": [[[64]]], "input_types": [many],
         "outputs": [[tensor]], "output_shapes": [[[64]]], "output_types": [many]},
        {"name": "record_param_comms", "id": 2, "inputs": [5, 9, 0, "wait"], "outputs": []},
    ]  # fmt: skip
    for rank in (0, 1):
        write_json(folder / f"eg_{rank}.json", {"nodes": nodes, "pid": 100 + rank})
    run = load_run(folder)
    assert (run.waits.recorded, run.waits.inferred) == (2, 2)
    assert [edge.recorded for edge in run.wait_edges] == [False, True, False, True]
    assert node(run, "ncclKernel_AllReduce").num_bytes == 256.0
    assert run.sizes_known
    write_json(folder / "eg_1.json", {"nodes": nodes[:1], "pid": 101})
    run = load_run(folder)
    assert not run.sizes_known
    assert "`eg_1.json` is not used: it has 1 communication operators" in run.notes[0]


def test_waits_that_the_profiler_records_are_used(tmp_path: Path) -> None:
    makers = two_ranks()
    for maker in makers:
        for waiting, on, call, event in ((20, COMPUTE, 2, 2), (COMPUTE, 20, 4, 4)):
            maker.events.append({
                "ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "ts": 1, "dur": 0,
                "pid": 0, "tid": waiting,
                "args": {"stream": waiting, "correlation": call, "wait_on_stream": on,
                         "wait_on_cuda_event_record_corr_id": event},
            })  # fmt: skip
    run = run_of(tmp_path, makers)
    assert (run.waits.recorded, run.waits.inferred) == (4, 0)
    assert times(run, "elementwise_kernel") == pytest.approx((270, 300))


def test_the_host_waits_for_the_device_and_returns(tmp_path: Path) -> None:
    maker = one_rank()
    maker.launch("k", 0, 10, 500, 1)
    maker.call("cudaStreamSynchronize", 20, 495, 2)  # until 515, 5 us after the kernel
    maker.launch("next", 600, 610, 10, 3)
    run = run_of(tmp_path, [maker])
    wait = next(n for n in run.graph.nodes if n.kind is NodeKind.WAIT)
    assert wait.seconds == pytest.approx(5e-6)
    assert times(run, "next") == pytest.approx((610, 620))


def test_reading_a_timer_waits_although_no_profiler_says_so(tmp_path: Path) -> None:
    maker = one_rank()
    maker.launch("k", 0, 10, 500, 1)
    maker.call("cudaEventElapsedTime", 520, 1, 2)
    run = run_of(tmp_path, [maker])
    wait = next(n for n in run.graph.nodes if n.kind is NodeKind.WAIT)
    assert wait.seconds == pytest.approx(10e-6)


def test_host_threads_take_turns(tmp_path: Path) -> None:
    maker = one_rank()
    maker.launch("forward", 0, 10, 5, 1)
    maker.call("cudaLaunchKernel", 100, 10, 2, thread=AUTOGRAD)
    maker.kernel("backward", 110, 5, 2)
    maker.launch("optimizer", 200, 210, 5, 3)
    maker.step(0, 0, 300)
    run = run_of(tmp_path, [maker])
    hosts = [n for n in run.graph.nodes if n.kind is NodeKind.HOST and n.seconds > 0]
    assert [(n.resource, round(n.seconds * 1e6)) for n in hosts] == [
        ("autograd", 100),
        ("main", 100),
        ("main", 100),
    ]
    assert node(run, "backward").stage is Stage.DENSE_BACKWARD


def test_what_was_launched_before_the_trace_keeps_its_start(tmp_path: Path) -> None:
    maker = one_rank()
    maker.kernel("earlier", 50, 100, 77)
    maker.launch("k", 60, 150, 10, 1)
    run = run_of(tmp_path, [maker])
    assert run.num_pinned == 1
    begin = simulate(run.graph).starts[1] * 1e6
    assert begin == pytest.approx(0.0)  # the trace begins with this kernel
    assert times(run, "k")[0] == pytest.approx(100)


def test_what_some_rank_lacks_is_said(tmp_path: Path) -> None:
    assert not load_run(write_folder(tmp_path / "whole", two_ranks())).notes
    first, second = two_ranks()
    second.step(4, 400, 100)
    second.events.append({"ph": "X", "cat": "kernel", "name": "k", "ts": 410, "dur": None})
    found = load_run(write_folder(tmp_path / "uneven", [first, second]))
    assert found.notes == [
        "1 event of rank 1 left out: without a time, a thread or a stream",
        "steps that not every rank has: 4; profile the same ones on all",
    ]


def test_a_trace_without_steps_is_one_step(tmp_path: Path) -> None:
    maker = one_rank()
    maker.launch("k", 0, 10, 5, 1)
    maker.call("cudaDeviceSynchronize", 20, 30, 2)
    (mark,) = run_of(tmp_path, [maker]).marks
    assert mark.measured == pytest.approx(50e-6)
