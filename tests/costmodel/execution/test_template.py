"""Steps as templates: what was written before, or is left out, changes nothing."""

import pytest
from hypothesis import given, settings
from strategies import cases

from costmodel.execution.compiled import CompiledStep
from costmodel.execution.loads import GroupLoad, group_loads
from costmodel.execution.synthesis import NUM_STEPS, Templates
from costmodel.hardware import Topology
from costmodel.objective import Objective, Signature
from costmodel.plan import ShardingPlan
from costmodel.workload import Workload

Case = tuple[Workload, Topology, ShardingPlan]
SETTINGS = settings(max_examples=40, deadline=None)


def signature(groups: tuple[GroupLoad, ...]) -> Signature:
    return tuple((group.key, tuple(sorted(group.traffic))) for group in groups)


@given(cases())
@SETTINGS
def test_templates_written_before_change_nothing(case: Case) -> None:
    workload, topology, plan = case
    some = signature(group_loads(workload, topology, plan))
    templates = Templates(workload, topology)
    for groups in (some, some[1:], (), some):
        assert templates.of(groups) == Templates(workload, topology).of(groups)


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_a_plan_with_all_groups_needs_no_more_than_the_complete_step(case: Case) -> None:
    workload, topology, plan = case
    groups = group_loads(workload, topology, plan)
    made = Templates(workload, topology).of(signature(groups))
    loads = Objective(workload, topology).stacked([groups], signature(groups))
    any_plan, complete = CompiledStep.of(made), CompiledStep.of(made, complete=True)
    assert len(complete.kept) <= len(any_plan.kept)
    expected = any_plan.step_times(loads, NUM_STEPS)
    assert complete.step_times(loads, NUM_STEPS) == pytest.approx(expected, rel=1e-12)
