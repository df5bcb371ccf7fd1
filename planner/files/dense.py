"""``dense.json``: a model's dense part as a list of operators, written once and read anywhere."""

from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError
from costmodel.operators.operator_list import OperatorList, Size
from costmodel.operators.products import check_form
from planner.files.disk import read_text, source_name, write_text
from planner.files.json_text import dump_json
from planner.files.kinds import FileKind, check_kind
from planner.files.source import KeyPath, parse_json
from planner.files.validator import Validator, in_order

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
        found: OperatorList[Size] = OperatorList(**{
            name: _made(each) for name, each in values.items() if name != "schema_version"
        })
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
        "parameters": _data(operators.parameters),
        "embeddings": _data(operators.embeddings),
        "operators": _data(operators.operators),
    }


def _data(part: Any) -> Any:  # noqa: ANN401 - a part of a list of operators
    """Return a part as the file has it; fields with their default are left out, but for types."""
    if isinstance(part, Size):
        return _size_data(part)
    if isinstance(part, tuple):
        return list(map(_data, part))
    if isinstance(part, Enum):
        return part.value
    if not is_dataclass(part):
        return part
    given = ((each.name, getattr(part, each.name), each.default) for each in fields(part))
    return {
        name: _data(value) for name, value, usual in given if value != usual or name == "data_type"
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


def _made(written: Any) -> Any:  # noqa: ANN401 - a part of a file
    """Return what a validated part of a file stands for: objects of the domain, and tuples."""
    if isinstance(written, list | tuple):
        return tuple(map(_made, written))
    domain = getattr(written, "domain", None)
    return written if domain is None else domain(**{name: _made(each) for name, each in written})
