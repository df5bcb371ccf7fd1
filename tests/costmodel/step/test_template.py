"""Steps as templates: what was written before, or is left out, changes nothing."""

from dataclasses import replace
from itertools import compress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import mixed
from strategies import Case, cases, fixed_cases

from costmodel.domain.workload import Pipeline
from costmodel.engine.timer import Signature
from costmodel.step.loads import GroupLoad, PlanLoads
from costmodel.step.synthesis import Templates

SETTINGS = settings(max_examples=40)


def signature(groups: tuple[GroupLoad, ...]) -> Signature:
    return tuple((group.key, tuple(sorted(group.traffic))) for group in groups)


@given(cases() | fixed_cases(), st.data())
@SETTINGS
def test_templates_written_before_change_nothing(case: Case, data: st.DataObject) -> None:
    workload, topology, plan = case
    every = signature(PlanLoads(workload, topology).groups(plan))
    templates = Templates(workload, topology)
    some = st.lists(st.booleans(), min_size=len(every), max_size=len(every))
    for groups in (every, *(tuple(compress(every, data.draw(some))) for _ in range(3)), every):
        assert templates.of(groups) == Templates(workload, topology).of(groups)


@pytest.mark.parametrize("accumulated", [1, 11])
@pytest.mark.parametrize("pipeline", [Pipeline.NONE, Pipeline.SPARSE_DIST])
def test_a_step_without_some_groups_is_the_one_that_is_written_without_them(
    pipeline: Pipeline, accumulated: int
) -> None:
    work, ranks, (placed, _) = mixed(pipeline)
    work = replace(work, gradient_accumulation_steps=accumulated)
    every = signature(PlanLoads(work, ranks).groups(placed))
    template = Templates(work, ranks).of(every)
    for left_out in range(len(every)):
        some = (*every[:left_out], *every[left_out + 1 :])
        alone = Templates(work, ranks).of(some)
        found = template.some([key for key, _ in some])
        assert [op.name for op in found.ops] == [op.name for op in alone.ops]
        assert [op.after for op in found.ops] == [op.after for op in alone.ops]
        assert [op.work for op in found.ops] == [op.work for op in alone.ops]
        assert (found.like, found.resources) == (alone.like, alone.resources)
    assert (template.like is None) == (accumulated == 1)
