"""The rules of the simulator, each on a graph small enough to time by hand."""

import pytest

from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.simulator import simulate
from costmodel.step.timeline import Timeline


def kernel(rank: int, resource: str, seconds: float, **more: object) -> Node:
    stage = Stage.DENSE_FORWARD
    return Node("k", NodeKind.KERNEL, stage, rank, resource, seconds, **more)  # type: ignore[arg-type]


def host(rank: int, seconds: float, **more: object) -> Node:
    return Node("h", NodeKind.HOST, Stage.HOST, rank, "main", seconds, **more)  # type: ignore[arg-type]


def collective(rank: int, seconds: float, number: int = 0, **more: object) -> Node:
    return Node(
        "c", NodeKind.COLLECTIVE, Stage.ALL_TO_ALL, rank, "world", seconds,
        collective=number, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def run(*nodes: Node, world_size: int = 1, drain: bool = False) -> Timeline:
    return simulate(ExecutionGraph(nodes=nodes, world_size=world_size), drain=drain)


def test_a_stream_runs_one_kernel_at_a_time_in_order() -> None:
    timeline = run(kernel(0, "compute", 3.0), kernel(0, "compute", 2.0))
    assert timeline.starts == [0.0, 3.0]
    assert timeline.step_time == 5.0


def test_streams_run_side_by_side() -> None:
    assert run(kernel(0, "compute", 3.0), kernel(0, "memcpy", 2.0)).step_time == 3.0


def test_a_kernel_starts_after_its_launch_and_the_latency() -> None:
    # launch ends at 1, the kernel reaches the device 0.5 later and takes 2
    timeline = run(host(0, 1.0), kernel(0, "compute", 2.0, launched_by=0, launch_delay=0.5))
    assert timeline.starts == [0.0, 1.5]
    assert timeline.step_time == 3.5


def test_the_host_runs_ahead_of_the_device() -> None:
    # two launches of 1 end at 2; the first kernel is busy until 6, so the second starts then
    timeline = run(
        host(0, 1.0),
        kernel(0, "compute", 5.0, launched_by=0),
        host(0, 1.0),
        kernel(0, "compute", 1.0, launched_by=2),
    )
    assert timeline.starts == [0.0, 1.0, 1.0, 6.0]


def test_a_wait_blocks_the_host() -> None:
    blocked = Node("w", NodeKind.WAIT, Stage.HOST, 0, "main", 0.5, after=(0,))
    timeline = run(kernel(0, "compute", 4.0), blocked, host(0, 1.0))
    assert timeline.ends == [4.0, 4.5, 5.5]


def test_a_collective_starts_with_its_last_member_and_ends_everywhere_at_once() -> None:
    timeline = run(
        kernel(0, "compute", 1.0), kernel(1, "compute", 3.0),
        collective(0, 2.0, after=(0,)), collective(1, 2.0, after=(1,)),
        world_size=2,
    )  # fmt: skip
    assert timeline.ends[2:] == [5.0, 5.0]
    assert timeline.waiting(0) == 2.0
    assert timeline.waiting(1) == 0.0


def test_the_critical_path_crosses_ranks_through_a_collective() -> None:
    timeline = run(
        kernel(0, "compute", 1.0), kernel(1, "compute", 3.0),
        collective(0, 2.0, after=(0,)), collective(1, 2.0, after=(1,)),
        kernel(0, "compute", 4.0, after=(2,)),
        world_size=2,
    )  # fmt: skip
    assert [(s.node, s.seconds) for s in timeline.critical_path()] == [(1, 3.0), (2, 2.0), (4, 4.0)]


def test_idle_is_when_the_compute_stream_has_nothing_to_do() -> None:
    timeline = run(kernel(0, "compute", 1.0), kernel(0, "memcpy", 4.0))
    assert timeline.idle(0) == 3.0


def test_collectives_of_different_groups_overlap() -> None:
    first, second = collective(0, 2.0, 0), collective(0, 2.0, 1)
    assert run(first, second).step_time == 4.0
    other = Node("c", NodeKind.COLLECTIVE, Stage.ALL_TO_ALL, 0, "cross", 2.0, collective=1)
    assert run(first, other).step_time == 2.0


def test_draining_delays_a_collective_to_the_end_of_the_running_kernel() -> None:
    # the kernel of 4 runs from 1 to 5; the collective is ready at 2
    nodes = (
        kernel(0, "compute", 1.0),
        kernel(0, "compute", 4.0),
        kernel(0, "memcpy", 2.0, fills_gpu=0.0),
        collective(0, 1.0, after=(2,)),
    )
    assert run(*nodes).ends[3] == 3.0
    drained = run(*nodes, drain=True)
    assert drained.ends[3] == 6.0
    assert drained.binding[3] == 1


def test_a_kernel_in_its_last_wave_has_room_for_others() -> None:
    # three quarters of 4 seconds: the GPU is full until 3
    wide, narrow = kernel(0, "compute", 4.0, fills_gpu=0.75), kernel(0, "side", 1.0, after=(0,))
    first = kernel(0, "memcpy", 1.0, fills_gpu=0.0)
    assert run(first, wide, narrow, drain=True).ends[2] == 4.0


def test_a_kernel_of_higher_priority_does_not_wait_for_room() -> None:
    first = kernel(0, "memcpy", 1.0, fills_gpu=0.0)
    wide, urgent = kernel(0, "compute", 4.0), kernel(0, "side", 1.0, after=(0,), priority=1)
    assert run(first, wide, urgent, drain=True).ends[2] == 2.0


def test_collectives_issued_in_different_orders_can_never_start() -> None:
    with pytest.raises(ValueError, match="4 nodes of the graph can never start"):
        run(
            collective(0, 1.0, 0), collective(0, 1.0, 1),
            collective(1, 1.0, 1), collective(1, 1.0, 0),
            world_size=2,
        )  # fmt: skip


def test_the_window_is_the_last_step() -> None:
    nodes = (kernel(0, "compute", 3.0), kernel(0, "compute", 2.0, step=1))
    timeline = simulate(ExecutionGraph(nodes=nodes, world_size=1, num_steps=2))
    assert timeline.window == (3.0, 5.0)
    assert timeline.breakdown() == {Stage.DENSE_FORWARD: 2.0}
