"""Tables of reports, described once for text (``layout``), pages (``html_tables``) and JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from costmodel.base.modelled import Modelled
from costmodel.base.units import Seconds
from planner.show.format import (
    change,
    duration,
    durations,
    memories,
    memory,
    percent,
    percent_fine,
    rate,
    span,
)

Row = TypeVar("Row")
WARNING, FULL, ASSUMED = "yellow", "red", "yellow"
"""Styles of waiting and warnings, of memory that is nearly full, and of numbers that nobody
measured. Words say the same."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """How numbers of a column are written; they are right-aligned, and sorted by value on pages."""

    one: Callable[[Any], str]
    alike: Callable[[Sequence[Any]], Sequence[str]] | None = None
    """Writes all numbers of a column of text in one unit; None: each is written alone, as on
    pages."""
    is_sorted: bool = True
    """Whether pages sort by it; a pair cannot be sorted by."""
    is_right: bool = True
    """Whether text is right-aligned."""

    def __call__(self, value: Any) -> str:  # noqa: ANN401 - a number, as a rule
        """Return one number as text."""
        return self.one(value)


def times(largest: Seconds) -> Quantity:
    """Return the quantity of durations, in the unit of the largest one given."""
    return Quantity(duration, partial(durations, largest=largest))


NUMBER, COUNT = Quantity(str), Quantity("{:,}".format)
TIME, MEMORY, RATE = times(0.0), Quantity(memory, memories), Quantity(rate)
SHARE, SHARE_FINE = Quantity(percent), Quantity(percent_fine)
CHANGE = Quantity(change)
"""Ratios written as changes: 1.067 is ``+6.7%``."""
SPAN = Quantity(span, is_sorted=False)
ERROR = Quantity(lambda error: change(1 + error))
"""Relative errors, signed: 0.067 is ``+6.7%``."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table: the value of a row, and how it is written."""

    title: str
    of: Callable[[Row], Any]
    """Returns a row's value; None: the row has none."""
    said: Callable[[Any], str] = str
    """Writes a value: a ``Quantity``, or a function that returns text."""
    _: KW_ONLY
    key: str = ""
    """The value's name in JSON; empty: it is not in JSON."""
    page: str | None = None
    """The title on pages, if it is another one; empty: the column is not on pages."""
    in_text: bool = True
    none: str = ""
    """Text of a missing value."""
    priority: int = 0
    """Columns of the highest number are dropped first from narrow text; 0: never dropped."""
    style: Callable[[Row], str] | None = None
    """Returns the style of a row's cell in text, as rich has it."""
    prose: bool = False
    """Whether cells are long, so that pages break them into lines."""
    sorted_by: Callable[[Row], float | None] | None = None
    """Returns what pages sort by, if not the value."""

    @property
    def is_right(self) -> bool:
        """Whether cells are right-aligned."""
        return isinstance(self.said, Quantity) and self.said.is_right

    @property
    def is_sorted(self) -> bool:
        """Whether pages sort rows by a number, not by the text."""
        said = self.said
        return self.sorted_by is not None or (isinstance(said, Quantity) and said.is_sorted)

    def texts(self, rows: Iterable[Row]) -> list[str]:
        """Return the cells as text, quantities in one unit."""
        values = list(map(self.of, rows))
        known = [value for value in values if value is not None]
        alike = self.said.alike if isinstance(self.said, Quantity) else None
        said = iter(map(self.said, known) if alike is None else alike(known))
        return [self.none if value is None else next(said) for value in values]


def part_columns(total: Seconds) -> list[Column[tuple[str, Seconds]]]:
    """Return the columns of parts of a total time: name, seconds and share."""
    return [
        Column("", lambda part: part[0]),
        Column("", lambda part: part[1], times(total)),
        Column("", lambda part: part[1] / total, SHARE),
    ]


def json_column(key: str, of: Callable[[Row], Any] | None = None) -> Column[Row]:
    """Return a column that only JSON has: the field named ``key``, or the value of ``of``."""
    return Column("", of or attrgetter(key), key=key, page="", in_text=False)


def rows_data(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them, with the columns that only JSON has."""
    keyed = [column for column in columns if column.key]
    return [{column.key: plain(column.of(row)) for column in keyed} for row in rows]


Keys: TypeAlias = Mapping[type, Mapping[str, str]]
"""JSON's name of fields, by dataclass, where it is another than the field's; empty: left out."""


def plain(value: Any, keys: Keys = MappingProxyType({})) -> Any:  # noqa: ANN401 - of a report
    """Return data as JSON has it: dataclasses by field, enumerations by value."""
    if isinstance(value, Modelled):
        return value.seconds
    if is_dataclass(value):
        own = keys.get(type(value), {})
        named = {
            field.name: own.get(field.name, field.name) for field in fields(value) if field.init
        }
        return {key: plain(getattr(value, name), keys) for name, key in named.items() if key}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item, keys) for key, item in value.items()}
    return [plain(item, keys) for item in value] if isinstance(value, tuple | list) else value
