"""What is read off a timed graph: two ranks, one collective, worked by hand.

Rank 0 computes 3 s, rank 1 only 1 s; both join a collective of 2 s and compute 1 s more: the step
ends at 6 s. Two like steps follow each other.
"""

import pytest
from hypothesis import given
from strategies import Case, cases

from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.simulator import simulate
from costmodel.step.timeline import Timeline


def timeline(num_steps: int = 2) -> Timeline:
    nodes: list[Node] = []
    for step in range(num_steps):
        base, ends = len(nodes), tuple(range(len(nodes) - 2, len(nodes)))
        for rank, seconds in enumerate((3.0, 1.0)):
            nodes.append(
                Node("lookup", NodeKind.KERNEL, Stage.LOOKUP_FORWARD, rank, "compute", seconds,
                     after=ends if step else (), step=step)
            )  # fmt: skip
        nodes += [
            Node("outputs", NodeKind.COLLECTIVE, Stage.ALL_TO_ALL, rank, "world", 2.0,
                 after=(base + rank,), collective=step, step=step)
            for rank in range(2)
        ]  # fmt: skip
        nodes += [
            Node("mlp", NodeKind.KERNEL, Stage.DENSE_FORWARD, rank, "compute", 1.0,
                 after=(base + 2 + rank,), step=step)
            for rank in range(2)
        ]  # fmt: skip
    return simulate(ExecutionGraph(nodes=nodes, world_size=2, num_steps=num_steps))


def test_the_step_is_the_last_one() -> None:
    made = timeline()
    assert made.step_ends == [6.0, 12.0]
    assert made.window == (6.0, 12.0)
    assert made.step_time == 6.0


def test_one_step_starts_at_zero() -> None:
    assert timeline(1).window == (0.0, 6.0)


def test_the_critical_path_is_the_slow_rank_s_lookup() -> None:
    path = timeline().critical_path()
    assert [(segment.stage, segment.start, segment.seconds) for segment in path] == [
        (Stage.LOOKUP_FORWARD, 6.0, 3.0), (Stage.ALL_TO_ALL, 9.0, 2.0),
        (Stage.DENSE_FORWARD, 11.0, 1.0),
    ]  # fmt: skip


def test_the_breakdown_is_the_critical_path_largest_first() -> None:
    assert list(timeline().breakdown().items()) == [
        (Stage.LOOKUP_FORWARD, 3.0), (Stage.ALL_TO_ALL, 2.0), (Stage.DENSE_FORWARD, 1.0),
    ]  # fmt: skip


def test_waiting_is_not_work() -> None:
    made = timeline()
    assert made.waiting_times.tolist() == [0.0, 2.0]
    assert made.busy(1) == {
        "compute": {Stage.LOOKUP_FORWARD: 1.0, Stage.DENSE_FORWARD: 1.0},
        "world": {Stage.ALL_TO_ALL: 2.0},
    }


def test_idle_is_what_the_compute_stream_does_not_use() -> None:
    made = timeline()
    assert made.idle_times.tolist() == [2.0, 4.0]


def test_collectives_that_wait_at_once_are_waited_for_once() -> None:
    """Rank 1 is at two collectives from 1 s on, and rank 0 from 3 s on."""
    nodes: list[Node] = []
    for rank, seconds in enumerate((3.0, 1.0)):
        first = len(nodes)
        nodes += [
            Node("lookup", NodeKind.KERNEL, Stage.LOOKUP_FORWARD, rank, "compute", seconds),
            Node("inputs", NodeKind.COLLECTIVE, Stage.INPUT_DIST, rank, "world", 2.0,
                 after=(first,), collective=0),
            Node("outputs", NodeKind.COLLECTIVE, Stage.ALL_TO_ALL, rank, "intra_node", 1.0,
                 after=(first,), collective=1),
        ]  # fmt: skip
    made = simulate(ExecutionGraph(nodes=nodes, world_size=2))
    assert made.waiting_times.tolist() == [0.0, 2.0]
    assert {name: each.tolist() for name, each in made.waiting_by_stream.items()} == {
        "world": [0.0, 2.0], "intra_node": [0.0, 2.0],
    }  # fmt: skip
    exchanged = [each for each in made.graph.groups() if each.first.collective is not None]
    assert made.work_times(exchanged).tolist() == [2.0, 2.0]  # 3 to 5 s, and 3 to 4 s
    assert made.work_times([]).tolist() == [0.0, 0.0]


def test_time_between_launch_and_kernel_is_the_host_s() -> None:
    nodes = [
        Node("launch", NodeKind.HOST, Stage.HOST, 0, "main", 1.0),
        Node("k", NodeKind.KERNEL, Stage.DENSE_FORWARD, 0, "compute", 2.0,
             launched_by=0, launch_delay=0.5),
    ]  # fmt: skip
    made = simulate(ExecutionGraph(nodes=nodes, world_size=1))
    assert made.breakdown() == {Stage.DENSE_FORWARD: 2.0, Stage.HOST: 1.5}


@given(cases())
def test_a_stream_works_waits_and_is_idle_for_a_step(case: Case) -> None:
    made = plan_timeline(*case)
    most = made.step_time * (1 + 1e-9)
    nothing = 0.0 * made.waiting_times
    streams = {stream: nothing for stream, _ in made.busy_times}
    for (stream, _), seconds in made.busy_times.items():
        assert (seconds >= 0).all()
        streams[stream] = streams[stream] + seconds
    for stream, seconds in made.waiting_by_stream.items():
        streams[stream] = streams[stream] + seconds
        assert (seconds <= made.waiting_times * (1 + 1e-9)).all()
    assert all((seconds <= most).all() for seconds in streams.values())
    assert streams["compute"] + made.idle_times == pytest.approx(made.step_time)
    assert (made.waiting_times <= most).all()
    together = sum(made.waiting_by_stream.values(), start=nothing)
    assert (made.waiting_times <= together + 1e-15).all()
