from collections.abc import Mapping
from pathlib import Path

import pytest
from kineto_traces import COLLECTIVES, TraceMaker, two_ranks, write_folder

from costmodel.base.errors import InputError
from costmodel.step.graph import Node, NodeKind, Role, Stage
from costmodel.step.timeline import Timeline
from planner.traces.replay.absent_ranks import absent_nodes
from planner.traces.replay.breakdown import Limit, breakdown
from planner.traces.replay.classify import Category
from planner.traces.replay.importing import ImportedRun, load_run
from planner.traces.replay.modes import Mode, replay, replay_graph
from planner.traces.replay.questions import what_if


def run_of(folder: Path, *makers: TraceMaker) -> ImportedRun:
    return load_run(write_folder(folder / "traces", list(makers)))


def step_us(run: ImportedRun, question: str) -> float:
    now = replay(run).timeline
    return replay_graph(run, what_if(run, question, "traces").graph, now).step_time * 1e6


def timeline_of(run: ImportedRun) -> Timeline:
    timeline = replay(run).timeline
    assert timeline is not None
    return timeline


def waiting_rank() -> TraceMaker:
    """A rank of two: an all-reduce of 300 us, and a larger one of 50 us that follows work."""
    maker = TraceMaker(0)
    maker.step(1, 0, 600)
    for number, start, end, elements in ((1, 100, 400, 10), (3, 500, 550, 1000)):
        maker.launch("volta_sgemm", start - 90, start - 80, 80, number)
        maker.call("cudaLaunchKernel", start - 70, 10, number + 1)
        maker.kernel(
            "ncclKernel_AllReduce", start, end - start, number + 1, COLLECTIVES,
            **message(elements),
        )  # fmt: skip
        if number == 1:
            maker.call("cudaDeviceSynchronize", 60, 345, 9)
    maker.call("cudaDeviceSynchronize", 480, 75, 10)
    return maker


def message(elements: int) -> Mapping[str, object]:
    return {"dtype": "Float", "In msg nelems": elements, "Out msg nelems": elements}


@pytest.mark.parametrize("rank", [0, 1])
def test_each_of_two_ranks_replays_alone_as_it_ran(tmp_path: Path, rank: int) -> None:
    run = run_of(tmp_path, two_ranks()[rank])
    assert run.job.text == f"rank {rank} of 2"
    done = replay(run)
    assert done.step_time == pytest.approx(400e-6)
    assert (done.steps[0].rank, done.worst_error) == (rank, pytest.approx(0.0, abs=1e-6))


def test_a_collective_ends_when_it_ended_and_no_earlier(tmp_path: Path) -> None:
    # With half of its 100 us the product ends 50 us earlier; the other rank is not there before.
    run = run_of(tmp_path, two_ranks()[0])
    assert step_us(run, "gemm x0.5") == pytest.approx(400, abs=2)
    # Its all-reduce may have taken all of its 150 us, so that 100 us more are 100 us later.
    assert step_us(run, "gemm x2") == pytest.approx(500, abs=2)


def test_a_wait_is_what_goes_beyond_a_larger_message(tmp_path: Path) -> None:
    run = run_of(tmp_path, waiting_rank())
    found = breakdown(timeline_of(run))
    # Of 300 us 50 are the transfer; the larger one did not wait.
    (use,) = (use for use in found.streams if use.stream == "collectives")
    assert use.waiting == pytest.approx(250e-6, abs=2e-6)
    assert use.busy == {Category.ALL_REDUCE: pytest.approx(100e-6)}
    (row,) = (part for part in found.path if part.category is Category.OTHER_RANKS)
    assert row.seconds == pytest.approx(350e-6)  # until the first all-reduce starts
    assert found.bounds[Limit.OTHER_RANKS] == pytest.approx(350 / 600, abs=0.02)


def test_work_within_the_wait_costs_nothing_and_beyond_it_all(tmp_path: Path) -> None:
    run = run_of(tmp_path, waiting_rank())
    assert replay(run).step_time == pytest.approx(600e-6, abs=2e-6)
    # The first product of 80 us has 250 us of slack, the second one none.
    assert step_us(run, "gemm x2") == pytest.approx(600 + 80, abs=3)
    # 3 more times 80 are within the slack, the next 8 are not: 250 - 240, then 640.
    assert step_us(run, "gemm x4") == pytest.approx(600 + 240, abs=3)
    assert step_us(run, "gemm x6") == pytest.approx(600 + 400 - 250 + 400, abs=3)


def test_absent_ranks_are_late_by_what_they_waited(tmp_path: Path) -> None:
    # 400 us more before the first all-reduce is 150 us beyond the slack: the other ranks come to
    # the second one later by as much, which they took 100 us to.
    run = run_of(tmp_path, waiting_rank())
    timeline = replay_graph(run, what_if(run, "gemm x6", "traces").graph).timeline
    assert timeline is not None
    work = [i for i, n in enumerate(run.graph.nodes) if n.role is Role.ABSENT and n.after]
    assert run.graph.nodes[work[1]].after == (next(
        i for i, n in enumerate(run.graph.nodes) if n.name.startswith("nccl")
    ),)  # fmt: skip
    assert timeline.starts[work[1]] == pytest.approx(550e-6, abs=3e-6)


@pytest.mark.parametrize(
    "question", ["balance", "collectives h100-sxm", "all_reduce x0.5", "collectives x0.5"]
)
def test_what_needs_the_other_ranks_is_refused(tmp_path: Path, question: str) -> None:
    run = run_of(tmp_path, two_ranks()[0])
    with pytest.raises(InputError, match="needs all ranks, and the traces are of rank 0 of 2"):
        what_if(run, question, "traces")


def test_the_host_of_other_ranks_stays_as_it_was(tmp_path: Path) -> None:
    run = run_of(tmp_path, two_ranks()[0])
    asked = what_if(run, "host x0", "traces")
    assert "only the recorded ranks change; the others take as long as they did" in (
        asked.assumptions
    )
    before, after = (
        [node.seconds for node in graph.nodes if node.role is Role.ABSENT]
        for graph in (run.graph, asked.graph)
    )
    assert len(before) == 2
    assert before == after


def test_groups_of_recorded_ranks_alone_wait_for_nobody_else(tmp_path: Path) -> None:
    makers = two_ranks()
    for maker in makers:
        maker.world_size = 4
        for event in maker.events:
            if "nccl" in event["name"]:
                event["args"] |= {"Process Group Name": "1", "Process Group Ranks": "[0, 1]"}
    run = run_of(tmp_path, *makers)
    assert run.job.text == "ranks 0, 1 of 4"
    assert not [node for node in run.graph.nodes if node.role is Role.ABSENT]
    assert not run.notes
    assert step_us(run, "all_reduce x2") == pytest.approx(450)


def test_groups_of_more_ranks_than_are_recorded_wait(tmp_path: Path) -> None:
    makers = two_ranks()
    for maker in makers:
        maker.world_size = 4
        for event in maker.events:
            if "nccl" in event["name"]:
                event["args"] |= {"Process Group Ranks": "[0, 1, ..., 3]", "Group size": 4}
    run = run_of(tmp_path, *makers)
    assert len([node for node in run.graph.nodes if node.role is Role.ABSENT]) == 2
    assert replay(run).step_time == pytest.approx(400e-6)
    assert "a collective with other ranks ends when it ended" in run.notes[0]


@pytest.mark.parametrize("mode", [Mode.ALGORITHM1, Mode.BASELINE])
def test_other_modes_time_one_rank_too(tmp_path: Path, mode: Mode) -> None:
    # to Algorithm 1 an all-reduce takes what it took: 10 + 5 + 100, 1 + 150, 1 + 30
    done = replay(run_of(tmp_path, two_ranks()[1]), mode)
    assert [step.rank for step in done.steps] == [1]
    expected = 230e-6 if mode is Mode.BASELINE else 297e-6
    assert done.simulated_makespan == pytest.approx(expected)


def test_works_of_the_same_absent_ranks_follow_one_another() -> None:
    # the second begins 1 us before the first has ended, by rounding: the work before it is what is
    # done since the ranks came to the first, not since whatever ended before that
    recorded = [(300e-6, 400e-6), (399e-6, 600e-6)]
    nodes = [
        Node("nccl", NodeKind.COLLECTIVE, Stage.ALL_REDUCE, 0, "collectives", end - start,
             collective=number)
        for number, (start, end) in enumerate(recorded)
    ]  # fmt: skip
    made, spans = absent_nodes(nodes, recorded, frozenset({0, 1}))
    works = [span for node, span in zip(made, spans, strict=True) if node.collective is None]
    assert len(works) == 2
    assert works[0][1] <= works[1][0]
    assert sum(node.seconds for node in made if node.collective is None) < 400e-6
