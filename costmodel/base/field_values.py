"""Converting the values of a record's fields to the types that the fields are declared with."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import EnumType
from functools import cache
from reprlib import repr as repr_of
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from costmodel.base.limits import LEAST

_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class _Declared(NamedTuple):
    """The declared type of a field."""

    name: str
    kind: Any
    """Class of the value, or of each entry; a tuple of classes if records of several are
    allowed."""
    is_tuple: bool
    """Whether the field is a tuple of any number of such values."""
    may_be_none: bool


def make_plain(record: Any) -> None:  # noqa: ANN401 - any dataclass
    """Convert a new record's values to the declared types of its fields.

    Numbers of numpy become Python's (theirs overflow, and JSON has none), names of members of an
    enumeration members, whole numbers written as floats integers, and lists tuples. Only fields of
    numbers, texts, enumerations, records and tuples of these are converted.

    Raises
    ------
    ValueError
        A value is none of that; the message names the field, and what it may be.

    """
    own: Any = type(record)
    for name, kind, is_tuple, may_be_none in _declared_fields(own):
        value = getattr(record, name)
        if kind is float and type(value) is float and 0 < abs(value) < LEAST:
            raise ValueError(f"{name} must be 0, or at least {LEAST:g}, got {value:g}")
        if (type(value) is kind and not is_tuple) or (value is None and may_be_none):
            continue
        plain = _entries(name, kind, value) if is_tuple else _converted(name, kind, value)
        if plain is not value:
            object.__setattr__(record, name, plain)


def _entries(name: str, kind: Any, values: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a field's
    """Return values as a tuple of entries of the declared kind."""
    if type(values) is tuple and all(type(each) is kind for each in values):
        return values
    if not isinstance(values, tuple | list):
        wrong = f"{name} must be a tuple or a list, got {repr_of(values)}"
        raise ValueError(wrong)  # noqa: TRY004 - one error for all that is wrong with a record
    return tuple(_converted(f"{name}[{n}]", kind, each) for n, each in enumerate(values))


def _converted(name: str, kind: Any, value: Any) -> Any:  # noqa: ANN401 - a field's
    """Return a value converted to the declared kind."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(kind, EnumType):
        members: Sequence[Any] = list(kind)
        found = next((member for member in members if member.value == value), None)
        if found is None:
            known = ", ".join(member.value for member in members)
            raise ValueError(f"{name} must be one of {known}, got {repr_of(value)}")
        return found
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    accepted = (int, float) if kind is float else kind
    if isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
        return value
    classes = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(_NAMES.get(each, each.__name__) for each in classes)
    raise ValueError(f"{name} must be {wanted}, got {repr_of(value)}")


@cache
def _declared_fields(record: Any) -> Sequence[_Declared]:  # noqa: ANN401 - any dataclass
    """Return the declared types of a class's fields, of those that are converted."""
    hints = get_type_hints(record)
    found = (_declared_field(each.name, hints[each.name]) for each in fields(record) if each.init)
    return [declared for declared in found if declared is not None]


def _declared_field(name: str, hint: Any) -> _Declared | None:  # noqa: ANN401 - a type, of any form
    """Return the declared type of one field; None: such fields are not converted."""
    is_union = get_origin(hint) in {Union, UnionType}
    kinds = [each for each in get_args(hint) if each is not NoneType] if is_union else [hint]
    is_tuple = get_origin(kinds[0]) is tuple
    if is_tuple:
        *kinds, rest = get_args(kinds[0])
        if rest is not ...:
            return None
    kinds = [get_origin(each) or each for each in kinds]
    if not all(
        each in _NAMES or isinstance(each, EnumType) or is_dataclass(each) for each in kinds
    ):
        return None
    if len(kinds) > 1 and not all(map(is_dataclass, kinds)):
        return None
    kind = kinds[0] if len(kinds) == 1 else tuple(kinds)
    return _Declared(name, kind, is_tuple, NoneType in get_args(hint))
