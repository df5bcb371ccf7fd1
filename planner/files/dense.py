"""``dense.json``: a model's dense part as a list of operators, written once and read anywhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.base.errors import InputError
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    EmbeddingOutput,
    OperatorList,
    OperatorTensor,
    SequenceSize,
    SequenceTerms,
    Size,
)
from costmodel.operators.products import check_form
from planner.files.disk import read_text, source_name, write_text
from planner.files.json_text import dump_json
from planner.files.kinds import FileKind, check_kind
from planner.files.source import KeyPath, parse_json
from planner.files.validator import Validator, in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.files import dense_schema as schema

SCHEMA_VERSION = 1


def load_operators(path: str | Path) -> OperatorList[Size]:
    """Read a dense model's file (``-`` is standard input).

    Raises
    ------
    InputError
        It is no such file; with every problem and its position.

    """
    return parse_operators(read_text(path), source_name(path))


def parse_operators(text: str, source: str) -> OperatorList[Size]:
    """Read it from a text; `source` is what messages call it."""
    document = parse_json(text, source)
    check_kind(document, FileKind.DENSE)
    validator = Validator(document)
    found = read_operators(validator, document.data, ())
    if found is None:
        raise InputError(source, in_order(validator.problems), text)
    return found


def read_operators(validator: Validator, data: object, path: KeyPath) -> OperatorList[Size] | None:
    """Return the operators at a path of a document; None: something is wrong, which is noted."""
    from planner.files.dense_schema import DenseFile

    values = validator.whole(DenseFile, data, path)
    if values is None:
        return None
    try:
        found = _operator_list(values)
        for operator in found.operators:
            check_form(operator)
        found.at(found.recorded)
    except ValueError as error:
        validator.note(str(error), path)
        return None
    return found


def save_operators(operators: OperatorList[Size], path: str | Path) -> None:
    """Write a dense model's file (``-`` is standard output)."""
    write_text(path, dump_json(operators_data(operators), separators=(",", ":")) + "\n")


def operators_data(operators: OperatorList[Size]) -> dict[str, Any]:
    """Return the file as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": operators.name,
        **({"groups": list(map(list, operators.groups))} if operators.groups else {}),
        "recorded": {
            "samples": operators.recorded.samples,
            "sequences": [each._asdict() for each in operators.recorded.sequences],
        },
        "assumed": list(operators.assumed),
        "unexplained": list(operators.unexplained),
        "parameters": [
            {
                "name": each.name,
                "num_elements": each.num_elements,
                "data_type": each.data_type.value,
                **({} if each.trained else {"trained": False}),
            }
            for each in operators.parameters
        ],
        "embeddings": [
            {"name": each.name, "tensor": _tensor_data(each.tensor)}
            for each in operators.embeddings
        ],
        "operators": list(map(_operator_data, operators.operators)),
    }


def _operator_data(operator: DenseOperator[Size]) -> dict[str, Any]:
    lists = {
        "inputs": list(map(_tensor_data, operator.inputs)),
        "outputs": list(map(_tensor_data, operator.outputs)),
        "reads": list(operator.reads),
        "parameters": list(operator.parameters),
        "embeddings": list(operator.embeddings),
    }
    return {
        "name": operator.name,
        "direction": operator.direction.value,
        **{name: each for name, each in lists.items() if each},
        **({"transposed": True} if operator.transposed else {}),
        **({"causal": True} if operator.causal else {}),
        **({"ranks": operator.ranks} if operator.ranks > 1 else {}),
    }


def _tensor_data(tensor: OperatorTensor[Size]) -> dict[str, Any]:
    return {
        "sizes": list(map(_size_data, tensor.sizes)),
        "data_type": tensor.data_type.value,
        "storage": tensor.storage,
        **({"expanded": list(tensor.expanded)} if tensor.expanded else {}),
    }


def _size_data(size: Size) -> int | dict[str, Any]:
    """Return what is not 0 of a size; a plain number if it has only that."""
    given: dict[str, Any] = {
        name: _whole(value)
        for name, value in (("constant", size.constant), ("samples", size.samples))
        if value
    }
    if size.sequences:
        given["sequences"] = [
            {name: _whole(value) for name, value in each._asdict().items() if value}
            for each in size.sequences
        ]
    constant = given.get("constant", 0)
    if set(given) <= {"constant"} and isinstance(constant, int) and constant >= 0:
        return constant
    return given


def _whole(value: float) -> float:
    """Return a number as it is written: whole ones without a point."""
    return int(value) if value == int(value) else value


def _operator_list(values: dict[str, Any]) -> OperatorList[Size]:
    recorded = values["recorded"]
    return OperatorList(
        name=values.get("name", ""),
        operators=tuple(map(_operator, values["operators"])),
        parameters=tuple(
            DenseParameter(
                name=each.name,
                num_elements=each.num_elements,
                data_type=each.data_type,
                trained=each.trained,
            )
            for each in values.get("parameters", ())
        ),
        embeddings=tuple(
            EmbeddingOutput(name=each.name, tensor=_tensor(each.tensor))
            for each in values.get("embeddings", ())
        ),
        recorded=BatchSize(
            recorded.samples,
            tuple(SequenceSize(each.longest, each.ids) for each in recorded.sequences),
        ),
        groups=tuple(map(tuple, values.get("groups", ()))),
        assumed=tuple(values.get("assumed", ())),
        unexplained=tuple(values.get("unexplained", ())),
    )


def _operator(entry: "schema.DenseOperatorEntry") -> DenseOperator[Size]:
    return DenseOperator(
        name=entry.name,
        direction=entry.direction,
        inputs=_tensors(entry.inputs),
        outputs=_tensors(entry.outputs),
        reads=tuple(entry.reads),
        parameters=tuple(entry.parameters),
        embeddings=tuple(entry.embeddings),
        transposed=entry.transposed,
        causal=entry.causal,
        ranks=entry.ranks,
    )


def _tensors(entries: "Sequence[schema.TensorEntry]") -> tuple[OperatorTensor[Size], ...]:
    return tuple(map(_tensor, entries))


def _tensor(entry: "schema.TensorEntry") -> OperatorTensor[Size]:
    sizes = (
        Size(
            each.constant,
            each.samples,
            tuple(SequenceTerms(own.longest, own.positions, own.ids) for own in each.sequences),
        )
        for each in entry.sizes
    )
    return OperatorTensor(
        sizes=tuple(sizes),
        data_type=entry.data_type,
        storage=entry.storage,
        expanded=tuple(entry.expanded),
    )
