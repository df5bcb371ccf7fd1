"""Steps of a CPU: kernels on the calling thread, collectives beside it, on the same core."""

from dataclasses import replace
from itertools import pairwise

import pytest
from formulas import FEATURES, IDS, built
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, topology
from strategies import plans, workloads
from timelines import simulated

from costmodel.base.units import GB, MS, US
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.workload import Pipeline
from costmodel.step.builder import StepBuilder
from costmodel.step.graph import NodeKind, Resource, Stage
from costmodel.step.issue import Issue
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.step_operations import StepOperations
from costmodel.step.template import Linear
from costmodel.step.timeline import Timeline

CORE = machine(device=Device.CPU)
THREAD = ("main", "autograd", "compute")


def builder(ranks: int = 2) -> StepBuilder:
    return StepBuilder(topology(ranks, hardware=CORE))


def timed(program: StepOperations, steps: int = 1) -> Timeline:
    return simulated(program, steps)


def end(timeline: Timeline, name: str, rank: int = 0) -> float:
    nodes = timeline.graph.nodes
    return timeline.ends[next(i for i, n in enumerate(nodes) if (n.name, n.rank) == (name, rank))]


def test_the_thread_goes_on_when_its_kernel_is_done() -> None:
    # two operators of 10 us issue two kernels of 1 ms each, one after the other
    writing = builder()
    for name in ("first", "second"):
        writing.kernel(name, Stage.DENSE_FORWARD, 1 * MS)
    assert timed(built(writing)).step_time == pytest.approx(2 * MS + 2 * 10 * US)


def test_launches_cost_nothing_and_streams_are_one() -> None:
    writing = builder()
    with writing.on(Resource.MEMCPY):
        writing.kernel("copy", Stage.MEMORY_COPY, 1 * MS, issue=Issue(1, 100))
    writing.kernel("kernel", Stage.DENSE_FORWARD, 1 * MS)
    assert timed(built(writing)).step_time == pytest.approx(2 * MS + 2 * 10 * US)


def test_the_next_step_waits_for_the_last_kernel() -> None:
    writing = builder()
    writing.host("zero gradients")
    writing.kernel("optimizer", Stage.OPTIMIZER, 1 * MS)
    assert timed(built(writing), steps=3).step_time == pytest.approx(1 * MS + 2 * 10 * US)


def test_work_beside_a_collective_pays_for_it() -> None:
    # 5 operators of 10 us issue a collective of 2 ms, whose copies hold the kernel up
    writing = builder()
    sent = writing.collective("send", Stage.ALL_TO_ALL, 2 * MS)
    writing.kernel("work", Stage.DENSE_FORWARD, 3 * MS)
    writing.wait("wait", (sent,))
    timeline = timed(built(writing))
    assert end(timeline, "send") == pytest.approx(50 * US + 2 * MS)
    assert end(timeline, "work") == pytest.approx(50 * US + 2 * MS + 10 * US + 3 * MS)


def test_a_rank_without_other_work_only_waits() -> None:
    writing = builder()
    sent = writing.collective("send", Stage.ALL_TO_ALL, 2 * MS)
    writing.wait("wait", (sent,))
    # the host's time to return from waiting: 8 us
    assert timed(built(writing)).step_time == pytest.approx(50 * US + 2 * MS + 8 * US)


def test_a_rank_that_waits_for_its_peer_works_meanwhile() -> None:
    # rank 1 comes 4 ms later; rank 0 has 3 ms of work of its own, done by then
    writing = builder()
    writing.kernel("before", Stage.LOOKUP_FORWARD, writing.stream_time(IDS))
    sent = writing.collective("send", Stage.ALL_TO_ALL, 1 * MS)
    writing.kernel("work", Stage.DENSE_FORWARD, writing.stream_time(FEATURES))
    writing.wait("wait", (sent,))
    # kernels take 2 us, and a ms for each GB: 4 ms on one rank and 3 ms on the other
    made = built(writing, ids=[0.0, 3.998 * GB], features=[2.998 * GB, 0.0])
    assert [op.seconds.max() for op in made.ops if op.name in {"before", "work"}] == pytest.approx([
        4 * MS,
        3 * MS,
    ])
    expected = 10 * US + 4 * MS + 50 * US + 1 * MS + 8 * US
    assert timed(made).step_time == pytest.approx(expected)


@pytest.mark.parametrize(
    ("writing", "own", "total", "excess", "expected"),
    [
        # two cores, 8 MB in all: the same whether one holds it all or both a half
        (builder(2), 8e6, 8e6, 0.0, 4e6), (builder(2), 0.0, 8e6, 0.0, 4e6),
        # ((W - 2) own + total) / (2 (W - 1)), so that an even exchange is what it was
        (builder(4), 6e6, 9e6, 0.0, (2 * 6e6 + 9e6) / 6),
        (builder(4), 1e6, 4e6, 0.0, 1e6), (builder(8), 1e6, 8e6, 0.0, 1e6),
        # the other way the fullest has half a mean more; the mean of both ways on a core
        (builder(4), 1e6, 4e6, 0.5, 1.25e6), (StepBuilder(topology(4)), 1e6, 4e6, 0.5, 1.5e6),
        # a GPU's link carries both ways at once
        (StepBuilder(topology(2)), 8e6, 8e6, 0.0, 8e6),
    ],
)  # fmt: skip
def test_the_even_exchange_that_an_uneven_one_costs_as_much_as(
    writing: StepBuilder, own: float, total: float, excess: float, expected: float
) -> None:
    size = writing.all_to_all_size(Linear.of(own), Linear.of(total), excess)
    assert size.constant == pytest.approx(expected)
    assert not size.weights


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    ranks = draw(st.sampled_from([1, 2, 4]))
    place: Topology = topology(ranks, hardware=CORE)
    workload = draw(workloads(pipelines=(Pipeline.NONE, Pipeline.SPARSE_DIST)))
    return plan_timeline(workload, place, draw(plans(workload, place)))


@pytest.mark.slow
@given(timelines())
@settings(max_examples=20)
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
@settings(max_examples=20)
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
