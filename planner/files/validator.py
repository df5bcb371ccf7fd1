"""Errors of pydantic in the user's words and at the user's line and column."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from costmodel.base.errors import Problem, suggestion
from costmodel.base.limits import shown
from costmodel.domain.workload import TORCH_TYPES
from planner.files.source import MOST_PROBLEMS, Document, KeyPath

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""The right type, as text, for each of pydantic's errors about a wrong type."""

_CHOICE = {"enum", "literal_error"}
_MANY_DIGITS = 1e15
"""Smallest number that is written with an exponent."""
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}
_BATCH, _BATCH_FACTORS = "local_batch_size", {"k": 1024.0, "m": 1024.0**2}
"""A field whose letters say what `sweep --local-batch` takes them for."""
_KEY = "[key]"
"""Pydantic's name of a mapping's key that is wrong."""
OWN_MESSAGE = "own_message"
"""Error type of our own validators: their message follows the name of the field."""


_LABELS = dict.fromkeys(("forward", "backward", "precision", "output_type"), "data type")
"""Nouns for a field's values, where the field's name is none."""


class Validator:
    """Checks parts of one document against models, and keeps every problem found."""

    def __init__(self, document: Document, synonyms: Mapping[str, str] | None = None) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self._noted: set[Problem] = set()
        self._synonyms = synonyms or {}
        """Names that people write by mistake, and the hint that each gets."""

    def whole(self, model: "type[BaseModel]", data: object, path: KeyPath) -> dict[str, Any] | None:
        """Return the fields of some data, lists as tuples; None if any is wrong."""
        values, bad = self._validated(model, data, path, model)
        return None if bad else values

    def fields(
        self,
        model: "type[BaseModel]",
        data: object,
        path: KeyPath,
        *,
        known: "type[BaseModel] | None" = None,
    ) -> tuple[dict[str, Any], bool]:
        """Return the valid fields of some data, and whether all are valid.

        The model must require no field. ``known`` is a model with more names to suggest.
        """
        values, bad = self._validated(model, data, path, known or model)
        if bad and isinstance(data, dict):
            usable = {key: value for key, value in data.items() if key not in bad}
            return _given(model.model_validate(usable)), False
        return values, not bad

    def _validated(
        self, model: "type[BaseModel]", data: object, path: KeyPath, known: "type[BaseModel]"
    ) -> tuple[dict[str, Any], set[str | int]]:
        """Return the fields, and the first keys of wrong ones after noting each problem."""
        from pydantic import ValidationError

        try:
            return _given(model.model_validate(data)), set()
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details[:MOST_PROBLEMS]:
            self._note(known, detail, path)
        return {}, {(*detail["loc"], "")[0] for detail in details}

    def note(
        self, message: str, path: KeyPath, *, at_key: bool = False, hint: str | None = None
    ) -> None:
        """Note a problem, unless the same one is noted already."""
        if self.full:
            return
        problem = self.document.problem(message, path, at_key=at_key, hint=hint)
        if problem not in self._noted:
            self._noted.add(problem)
            self.problems.append(problem)

    @property
    def full(self) -> bool:
        """Whether so many problems are noted that more are of no use."""
        return len(self.problems) >= MOST_PROBLEMS

    def _note(self, model: "type[BaseModel]", detail: "ErrorDetails", path: KeyPath) -> None:
        """Note one of pydantic's errors in our words."""
        where = (*path, *detail["loc"])
        name = _field_name(detail["loc"])
        kind = detail["type"]
        if kind == "extra_forbidden":
            fields = _fields_at(model, detail["loc"])
            hint = self._synonyms.get(name) or suggestion(name, fields) or _one_of(fields)
            self.note(f"unknown field `{name}`", where, at_key=True, hint=hint)
        elif kind == "missing":
            self.note(f"missing field `{name}`", where[:-1])
        elif kind in _CHOICE and name == _KEY:
            key, choices = str(detail["input"]), _allowed_values(detail)
            hint = suggestion(key, choices) or _one_of(choices)
            self.note(f"unknown field `{key}`", where[:-1], at_key=True, hint=hint)
        elif kind in _CHOICE:
            self._note_choice(name, detail, where)
        elif kind in _WANTED:
            self._note_type(detail, where)
        elif kind == OWN_MESSAGE:
            self.note(f"{_path_name(where)}{detail['msg']}", where)
        else:
            self.note(f"{_path_name(where)}{_reworded(detail)}", where)

    def _note_choice(self, name: str, detail: "ErrorDetails", where: KeyPath) -> None:
        """Note a value that is none of those allowed."""
        given = detail["input"]
        choices = _allowed_values(detail)
        label = _LABELS.get(name, name.removesuffix("s").replace("_", " "))
        hint: str | None
        if isinstance(given, str) and detail["type"] == "enum":
            meant = TORCH_TYPES.get(given.lower().removeprefix("torch."), given)
            hint = suggestion(meant, choices) or _one_of(choices)
            self.note(f"unknown {label} `{given}`", where, hint=hint)
        else:
            raw = self.document.raw(where)
            hint = f"YAML reads {raw} as {_given_text(given)}" if isinstance(given, bool) else None
            wanted = f"must be one of {', '.join(choices)}"
            self.note(f"`{name}` {wanted}, got {_given_text(given)}", where, hint=hint)

    def _note_type(self, detail: "ErrorDetails", where: KeyPath) -> None:
        """Note a value of a wrong type."""
        given, wanted = detail["input"], _WANTED[detail["type"]]
        raw = self.document.raw(where)
        hint_for = _HINTS.get(wanted)
        hint = hint_for(given, raw) if hint_for else None
        if where[-1:] == (_BATCH,) and isinstance(given, str):
            hint = _number_hint(given, raw, _BATCH_FACTORS)
        self.note(
            f"{_path_name(where)}must be {wanted}, got {_given_text(given)}", where, hint=hint
        )


def _given(model: "BaseModel") -> dict[str, Any]:
    """Return the fields that were given to a model, lists as tuples."""
    values = {name: getattr(model, name) for name in model.model_fields_set}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }


def in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return problems in the order of the file; those without a position come first."""
    return tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))


def _number_hint(given: object, raw: str, factors: Mapping[str, float] = _FACTORS) -> str | None:
    """Return how to write a number that YAML reads as text; None: it is none."""
    if not isinstance(given, str):
        return None
    digits = given.replace("_", "").replace(",", "")
    factor = factors.get(digits[-1:].lower(), 1.0)
    try:
        number = float(digits[:-1] if factor > 1 else digits) * factor
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    why = "YAML reads this as text" if raw == given else "a comma ends a number"
    return f"{why}; write {_plain(number)}"


def _plain(number: float) -> str:
    """Return a number as YAML text: with a point if it has an exponent."""
    if number == int(number) and abs(number) < _MANY_DIGITS:
        return f"{int(number):_}"
    return f"{number:e}" if "e" in repr(number) else repr(number)


def _whole_number_hint(given: object, raw: str) -> str | None:
    if isinstance(given, float) and abs(given) < _MANY_DIGITS:
        return f"write {round(given):_}"
    return _number_hint(given, raw)


def _misread(given: object, raw: str) -> str | None:
    """Return a hint to quote a text that YAML reads as another type; None: it is one."""
    if raw and not isinstance(given, str):
        return f'YAML reads {raw} as {_given_text(given)}; write "{raw}"'
    return None


def _flag_hint(given: object, raw: str) -> str | None:
    del raw
    return "write it without quotes" if str(given).lower() in {"true", "false"} else None


def _list_hint(given: object, raw: str) -> str | None:
    return f"write [{raw}]" if raw and given is not None else None


_HINTS: dict[str, Callable[[object, str], str | None]] = {
    "a whole number": _whole_number_hint,
    "a number": _number_hint,
    "text": _misread,
    "true or false": _flag_hint,
    "a list": _list_hint,
}


def _given_text(given: object) -> str:
    """Return a given value as messages write it."""
    if given is None:
        return "nothing"
    if isinstance(given, bool):
        return "True" if given else "False"
    if isinstance(given, str):
        return f"the text `{given if len(given) <= 40 else given[:37] + '...'}`"
    if isinstance(given, int | float):
        return f"the number {given if abs(given) < 10**20 else shown(given)}"
    return "a list" if isinstance(given, list) else "a mapping"


def _allowed_values(detail: "ErrorDetails") -> list[str]:
    """Return the values that pydantic's error says are allowed."""
    expected = str(detail.get("ctx", {}).get("expected", ""))
    parts = [part.strip("' ") for chunk in expected.split(" or ") for part in chunk.split(",")]
    return [part for part in parts if part]


def _one_of(choices: Sequence[str]) -> str:
    return f"one of: {', '.join(choices)}"


def _field_name(loc: tuple[int | str, ...]) -> str:
    return next((part for part in reversed(loc) if isinstance(part, str)), "")


def _path_name(path: KeyPath) -> str:
    """Return the name of the value at a path and a space; empty: the path names nothing.

    The ``value`` of a number that is written with its source goes by the number's name.
    """
    path = path[:-1] if path[-1:] == ("value",) else path
    name = _field_name(path)
    if not name:
        return "the file "
    return f"an item of `{name}` " if isinstance(path[-1], int) else f"`{name}` "


def _reworded(detail: "ErrorDetails") -> str:
    """Return pydantic's message, to follow the name of a field."""
    message = detail["msg"].removeprefix("Value error, ")
    if message.startswith("Input should "):
        return f"must {message.removeprefix('Input should ')}, got {_given_text(detail['input'])}"
    return f"is not usable: {message[:1].lower()}{message[1:]}"


def _fields_at(model: "type[BaseModel]", loc: tuple[int | str, ...]) -> list[str]:
    """Return the field names of the model in which a location's last part is looked for."""
    for part in loc[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            model = _inner_model(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _inner_model(annotation: object) -> "type[BaseModel] | None":
    """Return the first model in a type expression such as ``list[Table] | None``."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_inner_model, get_args(annotation))), None)
