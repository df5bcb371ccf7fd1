import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from strategies import plans, workloads

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.workload import Pipeline
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.timeline import Timeline
from planner.validation.phases import Phase, predicted_phases

TWO_CORES = Topology(hardware=machine(device=Device.CPU), world_size=2, local_world_size=2)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    workload = draw(workloads(pipelines=(Pipeline.NONE, Pipeline.SPARSE_DIST)))
    return plan_timeline(workload, TWO_CORES, draw(plans(workload, TWO_CORES)))


@pytest.mark.slow
@given(timelines())
@settings(max_examples=30)
def test_phases_of_a_rank_add_up_to_its_part_of_the_step(timeline: Timeline) -> None:
    sums = [sum(predicted_phases(timeline, rank).values()) for rank in range(2)]
    assert max(sums) <= timeline.step_time * (1 + 1e-9)
    assert max(sums) >= timeline.step_time * 0.5


@pytest.mark.slow
@given(timelines())
@settings(max_examples=30)
def test_every_step_multiplies_and_updates(timeline: Timeline) -> None:
    phases = predicted_phases(timeline, 0)
    busy = timeline.busy(0)["compute"]
    optimizer = sum(seconds for stage, seconds in busy.items() if stage.value == "optimizer")
    assert phases[Phase.DENSE_FORWARD] > 0
    assert phases[Phase.OPTIMIZER] >= optimizer == pytest.approx(optimizer)
