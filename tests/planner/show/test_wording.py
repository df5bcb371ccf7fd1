"""Names are for the screen: whatever operations are called, nothing that is computed changes."""

from dataclasses import replace

from hypothesis import given, settings
from strategies import Case, cases

from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.synthesis import step_operations
from costmodel.step.timeline import Timeline
from costmodel.uncertainty.error_model import cause_of
from planner.planned.extrapolation import extrapolations
from planner.validation.phases import predicted_phases
from planner.verbs.explanation import path_rows


def said(timeline: Timeline) -> tuple[object, ...]:
    """Return what reports say of a step, but for names."""
    return (
        timeline.breakdown(),
        path_rows(timeline),
        [replace(each, kernels=()) for each in extrapolations(timeline)],
        [predicted_phases(timeline, rank) for rank in range(timeline.graph.world_size)],
    )


@given(cases())
@settings(max_examples=15)
def test_names_of_operations_decide_nothing(case: Case) -> None:
    made, ranks = step_operations(*case), case[1]
    renamed = replace(made, ops=tuple(replace(op, name="renamed") for op in made.ops))
    assert [cause_of(op, ranks) for op in renamed.ops] == [cause_of(op, ranks) for op in made.ops]
    before, after = map(operation_timeline, (made, renamed))
    assert said(after) == said(before)
