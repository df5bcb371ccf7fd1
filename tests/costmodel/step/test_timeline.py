"""What is read off a timed graph: two ranks, one collective, worked by hand.

Rank 0 computes 3 s, rank 1 only 1 s; both join a collective of 2 s and compute 1 s more: the step
ends at 6 s. Two like steps follow each other.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import topology
from plans import plan, table, workload

from costmodel.domain.plan import ShardingType
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.program_timeline import plan_timeline
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


def test_time_between_launch_and_kernel_is_the_host_s() -> None:
    nodes = [
        Node("launch", NodeKind.HOST, Stage.HOST, 0, "main", 1.0),
        Node("k", NodeKind.KERNEL, Stage.DENSE_FORWARD, 0, "compute", 2.0,
             launched_by=0, launch_delay=0.5),
    ]  # fmt: skip
    made = simulate(ExecutionGraph(nodes=nodes, world_size=1))
    assert made.breakdown() == {Stage.DENSE_FORWARD: 2.0, Stage.HOST: 1.5}


@given(st.sampled_from(list(ShardingType)), st.sampled_from([(1, 1), (2, 2), (4, 2)]))
def test_no_resource_works_longer_than_the_step(kind: ShardingType, ranks: tuple[int, int]) -> None:
    where, work = topology(*ranks), workload(table())
    made = plan_timeline(work, where, plan(work, where, {"t": (kind, (0,))}))
    for rank in range(where.world_size):
        for stages in made.busy(rank).values():
            assert sum(stages.values()) <= made.step_time * (1 + 1e-9)
        assert 0 <= made.idle_times[rank] <= made.step_time
        assert made.waiting_times[rank] >= 0
    assert sum(made.breakdown().values()) == pytest.approx(made.step_time)
