from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from formulas import IDS, built
from hypothesis import given
from hypothesis import strategies as st
from machines import machine, topology

from costmodel.base.errors import PlanMismatchError
from costmodel.base.units import GB, MIB, US
from costmodel.domain.hardware import Bound, CollectiveOp, Device, Source
from costmodel.domain.workload import LaunchMode
from costmodel.step.builder import Mark, StepBuilder
from costmodel.step.exchange_operations import add_collective
from costmodel.step.graph import Resource, Stage
from costmodel.step.issue import COLLECTIVE, Issue
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import Linear, WorkKind


def builder(world_size: int = 4, local_world_size: int = 2) -> StepBuilder:
    return StepBuilder(topology(world_size, local_world_size))


def test_a_kernel_costs_its_operators_and_launches() -> None:
    # 2 operators of 10 us and 3 launches of 5 us
    made = builder()
    made.kernel("k", Stage.DENSE_FORWARD, 1e-3, issue=Issue(2, 3))
    launch, kernel = built(made).ops
    assert launch.seconds.tolist() == pytest.approx([35 * US] * 4)
    assert (kernel.resource, kernel.launched_by) == ("compute", 0)


def test_a_rank_without_work_launches_nothing() -> None:
    made = builder()
    made.kernel("k", Stage.DENSE_FORWARD, made.stream_time(IDS))
    launch, _ = built(made, ids=[0.0, 1e9, 0.0, 0.0]).ops
    assert launch.seconds.tolist() == pytest.approx([0.0, 15 * US, 0.0, 0.0])


def test_autograd_has_its_own_operator_time() -> None:
    made = builder()
    made.join(Resource.AUTOGRAD)
    made.host("op")
    assert built(made).ops[-1].seconds[0] == pytest.approx(12 * US)


def test_a_collective_costs_the_host_what_the_trace_shows() -> None:
    made = builder()
    made.collective("c", Stage.ALL_TO_ALL, 1e-3)
    launch, _ = built(made).ops
    assert launch.seconds[0] == pytest.approx(COLLECTIVE.num_ops * 10 * US + 5 * US)


def test_marks_are_waited_for_in_the_next_step() -> None:
    made = builder()
    done = Mark("done")
    made.wait("w", (*made.latest(done), Mark("never set")))
    made.mark(done, made.kernel("k", Stage.DENSE_FORWARD, 1e-3))
    assert made.latest(done) == (2,)
    assert built(made).ops[0].after_previous == (2,)


def test_a_stream_moves_bytes_after_its_latency() -> None:
    # 1 MB at 1000 GB/s is 1 us, after 2 us
    made = builder(2)
    made.kernel("k", Stage.DENSE_FORWARD, made.stream_time(IDS))
    assert built(made, ids=[1e6, 0.0]).ops[-1].seconds == pytest.approx([3 * US, 0.0])


def test_uneven_messages_count_as_the_largest_of_the_group() -> None:
    sizes = np.array([1.0, 2.0, 3.0, 4.0]) * MIB

    def times(group: ProcessGroup) -> np.ndarray:
        made = builder()
        add_collective(made, "c", CollectiveOp.ALL_TO_ALL, IDS, group=group)
        return built(made, ids=sizes).ops[-1].seconds

    assert np.ptp(times(ProcessGroup.WORLD)) == 0
    assert np.ptp(times(ProcessGroup.CROSS_NODE)) == 0
    inside = times(ProcessGroup.INTRA_NODE)
    # 10 us and half of 2 (4) MiB at 100 GB/s
    assert inside[0] == inside[1] == pytest.approx(10 * US + MIB / (100 * GB))
    assert inside[2] == inside[3] == pytest.approx(10 * US + 2 * MIB / (100 * GB))


def test_an_exchange_is_bound_by_what_bounds_its_largest_message() -> None:
    def bound(*sizes: float) -> tuple[Bound | None, Source | None, bool]:
        made = builder(2)
        add_collective(made, "c", CollectiveOp.ALL_TO_ALL, IDS)
        return built(made, ids=sizes).ops[-1].basis

    # the made-up machine has links of 100 GB/s and no curves
    assert bound(8.0, 8.0) == (Bound.LINK_LATENCY, Source.ASSUMED, True)
    assert bound(8.0, 1e9) == (Bound.LINK_BANDWIDTH, Source.ASSUMED, True)


def test_a_duration_without_features_is_a_constant() -> None:
    fixed, load = StepBuilder.linear_time(Linear.of(2 * US)), StepBuilder.linear_time(IDS)
    assert (fixed.kind, fixed.seconds) == (WorkKind.CONSTANT, 2 * US)
    assert (load.kind, load.amount) == (WorkKind.LINEAR, IDS)


def test_only_graphs_need_gpus() -> None:
    cores = StepBuilder(topology(2, hardware=machine(device=Device.CPU)))
    for launch in LaunchMode:
        refused = launch is LaunchMode.CUDA_GRAPHS
        with (
            pytest.raises(PlanMismatchError) if refused else nullcontext(),
            cores.called_as(launch),
        ):
            pass


RUNS = st.lists(
    st.tuples(st.floats(0, 100), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=8
)


@given(RUNS, st.floats(0, 300), st.sampled_from(Device), st.sampled_from(LaunchMode))
def test_kernels_written_as_one_end_when_the_last_of_them_would(
    run: list[tuple[float, int, int]], before: float, device: Device, launch: LaunchMode
) -> None:
    if device is Device.CPU and launch is LaunchMode.CUDA_GRAPHS:
        return
    timed = [(seconds * US, Issue(ops, launches)) for seconds, ops, launches in run]

    def ends(*, as_one: bool) -> list[float]:
        made = StepBuilder(replace(topology(1), hardware=machine(device=device)))
        made.kernel("before", Stage.DENSE_FORWARD, before * US)
        with made.called_as(launch):
            if as_one:
                made.kernels("run", Stage.DENSE_FORWARD, timed)
            for seconds, issue in () if as_one else timed:
                made.kernel("one", Stage.DENSE_FORWARD, seconds, issue=issue)
        made.kernel("after", Stage.DENSE_FORWARD, 7 * US)
        made.host("host after", num_ops=1.0)
        return list(operation_timeline(built(made), 2).ends[-2:])

    assert ends(as_one=True) == pytest.approx(ends(as_one=False))
