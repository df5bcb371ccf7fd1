"""Steps as templates: what was written before, or is left out, changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import cases

from costmodel.execution.compiled import BatchLoads, CompiledStep
from costmodel.execution.loads import GroupLoad, group_loads
from costmodel.execution.synthesis import NUM_STEPS, Templates
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES, Feature
from costmodel.hardware import Topology
from costmodel.plan import ShardingPlan
from costmodel.workload import Workload

Case = tuple[Workload, Topology, ShardingPlan]
SETTINGS = settings(max_examples=40, deadline=None)


def signature(groups: tuple[GroupLoad, ...]) -> list[tuple[object, list[object]]]:
    return [(group.key, sorted(group.traffic)) for group in groups]


def loads_of(groups: tuple[GroupLoad, ...]) -> BatchLoads:
    """Return the loads of one plan."""
    return BatchLoads(
        rank={
            Feature(group.key, name): np.asarray(getattr(group, name))[None]
            for group in groups
            for name in RANK_FEATURES
        },
        plan={
            Feature(group.key, name): np.full((1, 1), getattr(group, name))
            for group in groups
            for name in PLAN_FEATURES
        },
        traffic={
            (group.key, kernel): rows[None]
            for group in groups
            for kernel, rows in group.traffic.items()
        },
    )


@given(cases())
@SETTINGS
def test_templates_written_before_change_nothing(case: Case) -> None:
    workload, topology, plan = case
    some = signature(group_loads(workload, topology, plan))
    templates = Templates(workload, topology)
    for groups in (some, some[1:], (), some):
        assert templates.of(groups) == Templates(workload, topology).of(groups)


@given(cases())
@SETTINGS
def test_a_plan_with_all_groups_needs_no_more_than_the_complete_step(case: Case) -> None:
    workload, topology, plan = case
    groups = group_loads(workload, topology, plan)
    made, loads = Templates(workload, topology).of(signature(groups)), loads_of(groups)
    any_plan, complete = CompiledStep.of(made), CompiledStep.of(made, complete=True)
    assert len(complete.kept) <= len(any_plan.kept)
    expected = any_plan.step_times(loads, NUM_STEPS)
    assert complete.step_times(loads, NUM_STEPS) == pytest.approx(expected, rel=1e-12)
