"""Steps of a CPU: kernels on the calling thread, collectives beside it, on the same core."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, topology
from numpy.typing import NDArray
from strategies import plans, workloads

from costmodel.execution.expansion import expand
from costmodel.execution.graph import NodeKind, Stage
from costmodel.execution.program import Program, ProgramBuilder
from costmodel.execution.simulator import simulate
from costmodel.execution.synthesis import synthesize
from costmodel.execution.timeline import Timeline
from costmodel.hardware import Device, Topology
from costmodel.units import MS, US
from costmodel.workload import Pipeline

CORE = machine(device=Device.CPU)
THREAD = ("main", "autograd", "compute")


def builder() -> ProgramBuilder:
    return ProgramBuilder(CORE, world_size=2, local_world_size=2)


def timed(program: Program, steps: int = 1) -> Timeline:
    return simulate(expand(program, steps))


def end(timeline: Timeline, name: str, rank: int = 0) -> float:
    nodes = timeline.graph.nodes
    return timeline.ends[next(i for i, n in enumerate(nodes) if (n.name, n.rank) == (name, rank))]


def test_the_thread_goes_on_when_its_kernel_is_done() -> None:
    # two operators of 10 us issue two kernels of 1 ms each, one after the other
    writing = builder()
    for name in ("first", "second"):
        writing.kernel(name, Stage.DENSE_FORWARD, 1 * MS)
    assert timed(writing.build()).step_time == pytest.approx(2 * MS + 2 * 10 * US)


def test_launches_cost_nothing_and_streams_are_one() -> None:
    writing = builder()
    writing.kernel("copy", Stage.MEMORY_COPY, 1 * MS, stream="memcpy", num_launches=100)
    writing.kernel("kernel", Stage.DENSE_FORWARD, 1 * MS)
    assert timed(writing.build()).step_time == pytest.approx(2 * MS + 2 * 10 * US)


def test_the_next_step_waits_for_the_last_kernel() -> None:
    writing = builder()
    writing.host("zero gradients")
    writing.kernel("optimizer", Stage.OPTIMIZER, 1 * MS)
    assert timed(writing.build(), steps=3).step_time == pytest.approx(1 * MS + 2 * 10 * US)


def test_work_beside_a_collective_pays_for_it() -> None:
    # 5 operators of 10 us issue a collective of 2 ms, whose copies hold the kernel up
    writing = builder()
    sent = writing.collective("send", Stage.ALL_TO_ALL, 2 * MS)
    writing.kernel("work", Stage.DENSE_FORWARD, 3 * MS)
    writing.wait("wait", (sent,))
    timeline = timed(writing.build())
    assert end(timeline, "send") == pytest.approx(50 * US + 2 * MS)
    assert end(timeline, "work") == pytest.approx(50 * US + 2 * MS + 10 * US + 3 * MS)


def test_a_rank_without_other_work_only_waits() -> None:
    writing = builder()
    sent = writing.collective("send", Stage.ALL_TO_ALL, 2 * MS)
    writing.wait("wait", (sent,))
    # the host's time to return from waiting: 8 us
    assert timed(writing.build()).step_time == pytest.approx(50 * US + 2 * MS + 8 * US)


def test_a_rank_that_waits_for_its_peer_works_meanwhile() -> None:
    # rank 1 comes 4 ms later; rank 0 has 3 ms of work of its own, done by then
    writing = builder()
    writing.kernel("before", Stage.LOOKUP_FORWARD, _per_rank(0.0, 4 * MS))
    sent = writing.collective("send", Stage.ALL_TO_ALL, 1 * MS)
    writing.kernel("work", Stage.DENSE_FORWARD, _per_rank(3 * MS, 0.0))
    writing.wait("wait", (sent,))
    expected = 10 * US + 4 * MS + 50 * US + 1 * MS + 8 * US
    assert timed(writing.build()).step_time == pytest.approx(expected)


def _per_rank(*seconds: float) -> NDArray[np.float64]:
    return np.array(seconds)


def test_an_exchange_counts_what_a_core_sends_and_receives() -> None:
    writing = builder()
    # two ranks, 8 MB in all: the same whether one holds it all or both a half
    assert writing.all_to_all_size(8e6, 8e6) == writing.all_to_all_size(0.0, 8e6) == 4e6


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_even_exchange_is_what_it_was(ranks: int) -> None:
    even = ProgramBuilder(CORE, world_size=ranks, local_world_size=ranks)
    assert even.all_to_all_size(1e6, ranks * 1e6) == pytest.approx(1e6)


def test_a_gpus_link_counts_the_larger_direction() -> None:
    link = ProgramBuilder(machine(), world_size=2, local_world_size=2)
    assert link.all_to_all_size(8e6, 8e6) == 8e6


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    ranks = draw(st.sampled_from([1, 2, 4]))
    place: Topology = topology(ranks, hardware=CORE)
    workload = draw(workloads(pipelines=(Pipeline.NONE, Pipeline.SPARSE_DIST)))
    return simulate(synthesize(workload, place, draw(plans(workload, place))))


@pytest.mark.slow
@given(timelines())
@settings(max_examples=40, deadline=None)
def test_a_rank_does_one_thing_at_a_time(timeline: Timeline) -> None:
    for rank in range(timeline.graph.world_size):
        spans = sorted(
            (timeline.starts[i], timeline.ends[i])
            for i, node in enumerate(timeline.graph.nodes)
            if node.rank == rank
            and node.resource in THREAD
            and timeline.ends[i] > timeline.starts[i]
        )
        for (_, ended), (began, _) in pairwise(spans):
            assert began >= ended - 1e-12


@pytest.mark.slow
@given(timelines())
@settings(max_examples=40, deadline=None)
def test_a_step_is_no_shorter_than_a_ranks_work_and_collectives(timeline: Timeline) -> None:
    begin, _ = timeline.window
    for rank in range(timeline.graph.world_size):
        last = timeline.graph.num_steps - 1
        busy = sum(
            node.seconds
            for node in timeline.graph.nodes
            if node.rank == rank and node.step == last and node.kind is not NodeKind.COLLECTIVE
        )
        assert begin >= 0
        assert timeline.step_time >= busy * (1 - 1e-9)


def test_other_profiles_stay_as_they_are() -> None:
    assert machine().device is Device.CUDA
    assert replace(CORE, device=Device.CUDA) == machine()
