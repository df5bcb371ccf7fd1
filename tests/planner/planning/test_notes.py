from dataclasses import replace

from machines import topology

from costmodel.domain.workload import DataType
from planner.examples import example_workload
from planner.files.profiles import load_profile
from planner.planning.notes import notes_on


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
