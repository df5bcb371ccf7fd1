"""Steps as templates: what was written before, or is left out, changes nothing."""

from itertools import compress

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, cases, fixed_cases

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
