from dataclasses import replace

import pytest
from dense_operators import listed_step
from machines import topology

from costmodel.base.units import MS
from costmodel.domain.hardware import Device
from costmodel.domain.workload import DataType, DenseModel, Optimizer
from costmodel.operators.operator_list import BatchSize
from planner.examples import example_workload
from planner.files.profiles import load_profile
from planner.planned.notes import note_on_change, notes_on, notes_on_reading, untrained


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
    assert "no speed of bf16 units (GPUs before Ampere have none): the dense layers" in first
    assert f"the weights of `{fp8.name}` in fp8" in second


def test_of_a_hopper_gpu_it_is_the_profile_that_has_no_fp8_and_all_tables_are_counted() -> None:
    machine = replace(topology(2), hardware=load_profile("h100-sxm"))
    workload = example_workload(3)
    tables = tuple(replace(table, data_type=DataType.FP8) for table in workload.tables)
    (note,) = notes_on(replace(workload, tables=tables), machine)
    assert "has no speed of fp8 units (GPUs before Hopper and Ada have none)" in note
    assert "the weights of 3 tables in fp8 may be slower" in note


@pytest.mark.parametrize(
    ("device", "kinds"), [(Device.CUDA, ("fp32", "fp16", "fp8")), (Device.CPU, ("fp32", "fp16"))]
)
def test_weights_that_no_lookup_trains_are_named(device: Device, kinds: tuple[str, ...]) -> None:
    workload = example_workload(3)
    types = set(DataType) - {DataType.TF32}
    said = {
        kind: list(
            untrained(
                replace(workload, tables=(*workload.tables[:2], replace(last, data_type=kind))),
                device,
            )
        )
        for last in workload.tables[2:]
        for kind in types
    }
    assert {kind for kind, notes in said.items() if not notes} == set(kinds)
    (note,) = said[DataType.INT8]
    machines = "CPUs" if device is Device.CPU else "GPUs"
    assert note == (
        f"weights of `{workload.tables[2].name}`: int8 cannot be trained, FBGEMM's lookups on "
        f"{machines} have {', '.join(kinds)}"
    )


def test_cpus_have_fewer_outputs_and_optimizers() -> None:
    workload = replace(example_workload(2), output_type=DataType.BF16, optimizer=Optimizer.ADAM)
    assert not list(untrained(workload, Device.CUDA))
    first, second = untrained(workload, Device.CPU)
    assert first.startswith("outputs of embeddings: bf16 cannot be trained")
    name = workload.tables[0].name
    assert second.startswith(f"optimizer of `{name}`: adam cannot be trained")
    assert second.endswith("have sgd, adagrad, rowwise_adagrad")


@pytest.mark.parametrize(
    ("forward", "backward", "fails"),
    [
        (None, None, False),
        (DataType.FP32, DataType.FP32, False),
        (None, DataType.FP16, True),
        (DataType.FP32, DataType.INT8, True),
        (DataType.FP16, DataType.FP32, False),
        (DataType.INT8, None, False),
        (DataType.FP16, DataType.FP16, False),
    ],
)
def test_outputs_of_two_bytes_are_not_sent_by_a_codec_of_fp32(
    forward: DataType | None, backward: DataType | None, *, fails: bool
) -> None:
    # as two ranks of TorchRec 1.9.2 trained, or failed to: pooled and not, table_wise and row_wise
    workload = replace(example_workload(2), comms_forward=forward, comms_backward=backward)
    assert not list(untrained(workload, Device.CUDA))
    halved = replace(workload, output_type=DataType.FP16)
    said = list(untrained(halved, Device.CUDA))
    assert len(said) == fails
    assert all("fp16 cannot be sent as it is where gradients are sent in" in each for each in said)


@pytest.mark.parametrize(
    ("before", "said"), [(None, 0), (1.005 * MS, 0), (2 * MS, 1), (0.5 * MS, 1)]
)
def test_a_plan_that_is_timed_otherwise_than_when_it_was_made_is_spoken_of(
    before: float | None, said: int
) -> None:
    notes = list(note_on_change(before, 1 * MS))
    assert len(notes) == said
    assert all("now expected to take 1.00 ms" in note for note in notes)


def test_a_list_of_one_batch_is_said_to_be_of_it() -> None:
    listed = listed_step()
    workload = replace(example_workload(2), dense=DenseModel(operators=listed))
    assert not any("no size grows" in note for note in notes_on_reading(workload))
    fixed = replace(listed, operators=listed.operators[2:3], parameters=(), embeddings=())
    scalar = replace(fixed.operators[0], inputs=fixed.operators[0].outputs)
    fixed = replace(fixed, operators=(scalar,))
    (note,) = notes_on_reading(replace(workload, dense=DenseModel(operators=fixed)))
    samples = f"{workload.local_batch_size:,}"
    assert f"no size grows with the samples: with {samples} they are what they were" in note
    same = replace(fixed, recorded=BatchSize(workload.local_batch_size))
    assert list(notes_on_reading(replace(workload, dense=DenseModel(operators=same)))) == []
