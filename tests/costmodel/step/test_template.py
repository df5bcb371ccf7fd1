"""Steps as templates: what was written before, or is left out, changes nothing."""

from hypothesis import given, settings
from strategies import Case, cases

from costmodel.engine.timer import Signature
from costmodel.step.loads import GroupLoad, PlanLoads
from costmodel.step.synthesis import Templates

SETTINGS = settings(max_examples=40)


def signature(groups: tuple[GroupLoad, ...]) -> Signature:
    return tuple((group.key, tuple(sorted(group.traffic))) for group in groups)


@given(cases())
@SETTINGS
def test_templates_written_before_change_nothing(case: Case) -> None:
    workload, topology, plan = case
    some = signature(PlanLoads(workload, topology).groups(plan))
    templates = Templates(workload, topology)
    for groups in (some, some[1:], some):
        assert templates.of(groups) == Templates(workload, topology).of(groups)
