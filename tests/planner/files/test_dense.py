"""``dense.json``: what is written is read again; what a stranger changes is refused in words."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costmodel.base.errors import InputError
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    ElementType,
    EmbeddingOutput,
    OperatorList,
    OperatorTensor,
    Pass,
    SequenceSize,
    SequenceTerms,
    Size,
)
from planner.files.dense import load_operators, operators_data, parse_operators, save_operators
from planner.files.workload_reading import parse_workload


def tensor(*sizes: Size, storage: int, expanded: tuple[int, ...] = ()) -> OperatorTensor[Size]:
    return OperatorTensor(
        sizes=sizes, data_type=ElementType.FLOAT32, storage=storage, expanded=expanded
    )


SAMPLES, WIDTH = Size(samples=1), Size(constant=8)
LONGEST = Size(-1, sequences=(SequenceTerms(longest=0.5),))
IDS = Size(sequences=(SequenceTerms(ids=2),))
POSITIONS = Size(sequences=(SequenceTerms(), SequenceTerms(positions=1)))
INPUT = tensor(SAMPLES, WIDTH, storage=-1)
LISTED = OperatorList(
    name="mine:model",
    operators=(
        DenseOperator(
            name="aten::mm", direction=Pass.FORWARD,
            inputs=(INPUT, tensor(WIDTH, Size(constant=4), storage=-2)),
            outputs=(tensor(SAMPLES, Size(constant=4), storage=0),), reads=(0,),
        ),
        DenseOperator(
            name="aten::convolution_backward", direction=Pass.BACKWARD,
            inputs=(
                tensor(SAMPLES, LONGEST, WIDTH, storage=1, expanded=(2,)),
                tensor(IDS, POSITIONS, WIDTH, storage=2),
                tensor(WIDTH, WIDTH, WIDTH, storage=-3),
            ),
            outputs=(tensor(WIDTH, WIDTH, WIDTH, storage=3),),
            parameters=(0,), embeddings=(0,), transposed=True, causal=True,
        ),
        DenseOperator(
            name="c10d::allreduce_", direction=Pass.BACKWARD,
            inputs=(tensor(SAMPLES, WIDTH, storage=4),), outputs=(), ranks=4,
        ),
    ),
    parameters=(
        DenseParameter(name="weight", num_elements=32),
        DenseParameter(
            name="frozen", num_elements=1, data_type=ElementType.BFLOAT16, trained=False
        ),
    ),
    embeddings=(EmbeddingOutput(name="tables", tensor=INPUT),),
    recorded=BatchSize(50, (SequenceSize(20, 300), SequenceSize(0, 0))),
    groups=(("seen", "other"), ("bought",)),
    assumed=("batches are made up",),
    unexplained=("2 sizes of aten::nonzero",),
)  # fmt: skip


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    save_operators(LISTED, tmp_path / "dense.json")
    assert load_operators(tmp_path / "dense.json") == LISTED


def test_plain_sizes_are_plain_numbers() -> None:
    sizes = (SAMPLES, WIDTH, *(Size(constant=each) for each in (0, -3, 2.5)))
    operator, *_ = LISTED.operators
    changed = replace(operator, outputs=(tensor(*sizes, storage=0),))
    (first, *_) = operators_data(replace(LISTED, operators=(changed,)))["operators"]
    written = [{"samples": 1}, 8, 0, {"constant": -3}, {"constant": 2.5}]
    assert first["outputs"][0]["sizes"] == written


def with_operator(**fields: object) -> Callable[[Any], object]:
    return lambda data: data["operators"][0].update(fields)


def with_size(size: object) -> Callable[[Any], object]:
    return lambda data: data["operators"][0]["inputs"][0]["sizes"].__setitem__(0, size)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_operator(kind="mm"), "unknown field `kind`"),
        (with_operator(direction="sideways"), "unknown direction `sideways`"),
        (with_operator(reads=[1]), "reads are from 0 to 0, got 1"),
        (with_operator(parameters=[2]), "parameters are from 0 to 1, got 2"),
        (with_operator(parameters=[-1]), "greater than or equal to 0"),
        (with_operator(inputs=[]), "`aten::mm` needs an output and 2 inputs of 2 dimensions"),
        (with_operator(ranks=2), "`aten::mm` has 2 ranks, and is no collective"),
        (with_operator(ranks=0), "greater than or equal to 1"),
        (with_size({"samples": 1e300}), "less than or equal to"),
        (with_size({"samples": 1e15}), "elements of a tensor must be at most"),
        (with_size({"batch": 1}), "batch"),
        (with_size(-1), "an item of `sizes` must be at least 0, got -1"),
        (with_size("two"), "an item of `sizes` must be a mapping, got the text `two`"),
        (lambda data: data.update(operators=[]), "`operators` is not usable: list should have"),
        (lambda data: data.update(schema_version=2), "schema_version"),
        (lambda data: data.pop("recorded"), "recorded"),
        (lambda data: data["parameters"][0].update(data_type="float3"), "unknown data type"),
        (lambda data: data["parameters"][0].update(num_elements=10**18), "less than or equal to"),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[Any], object], message: str) -> None:
    data = json.loads(json.dumps(operators_data(LISTED)))
    change(data)
    with pytest.raises(InputError, match=message):
        parse_operators(json.dumps(data), "dense.json")


def test_another_file_is_named() -> None:
    with pytest.raises(InputError, match="this is a workload file, and a file of a dense model's"):
        parse_operators('{"tables": []}', "tables.json")
    with pytest.raises(InputError, match="this is a file of a dense model's operators"):
        parse_workload(json.dumps(operators_data(LISTED)), "dense.json")
