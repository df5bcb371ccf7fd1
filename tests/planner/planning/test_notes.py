from dataclasses import replace

import pytest
from machines import topology

from costmodel.base.units import MS
from costmodel.domain.workload import DataType
from planner.examples import example_workload
from planner.files.profiles import load_profile
from planner.planning.notes import note_on_change, notes_on


def test_what_the_profile_has_is_not_spoken_of() -> None:
    machine = replace(topology(2), hardware=load_profile("h100-sxm"))
    workload = example_workload(2)
    dense = replace(workload.dense, precision=DataType.BF16)
    assert list(notes_on(replace(workload, dense=dense), machine)) == []


def test_bf16_on_a_v100_and_fp8_are_warned_of() -> None:
    machine = replace(topology(2), hardware=load_profile("v100-nvlink"))
    workload = example_workload(2)
    dense = replace(workload.dense, precision=DataType.BF16)
    fp8 = replace(workload.tables[0], data_type=DataType.FP8)
    asked = replace(workload, dense=dense, tables=(fp8, workload.tables[1]))
    first, second = notes_on(asked, machine)
    assert "has no bf16 (GPUs before Ampere have none): the dense layers in bf16" in first
    assert f"the weights of `{fp8.name}` in fp8" in second


@pytest.mark.parametrize(
    ("before", "said"), [(None, 0), (1.005 * MS, 0), (2 * MS, 1), (0.5 * MS, 1)]
)
def test_a_plan_that_is_predicted_otherwise_than_when_it_was_made_is_spoken_of(
    before: float | None, said: int
) -> None:
    notes = list(note_on_change(before, 1 * MS))
    assert len(notes) == said
    assert all("now predicted to take 1.00 ms" in note for note in notes)
