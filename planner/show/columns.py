"""Tables of reports, described once: as text (``layout``), on pages (``pages.tables``), as JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

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
"""Styles of what deserves a look: waiting and warnings, memory that is nearly full, numbers that
nobody measured. What they mean is said in words, too."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """How numbers are said: their columns are right-aligned, and sorted by value on pages."""

    one: Callable[[Any], str]
    alike: Callable[[Sequence[Any]], Sequence[str]] | None = None
    """Those of a column of text, in one unit; None: as each is alone, and as it is on pages."""
    is_sorted: bool = True
    """Whether it is a number to sort by on pages; a pair is not."""
    is_right: bool = True
    """Whether text is aligned to the right."""

    def __call__(self, value: Any) -> str:  # noqa: ANN401 - a number, as a rule
        """Say one of them."""
        return self.one(value)


def times(largest: Seconds) -> Quantity:
    """Return durations in the unit of the largest, which need not be among them."""
    return Quantity(duration, partial(durations, largest=largest))


NUMBER, COUNT = Quantity(str), Quantity("{:,}".format)
TIME, MEMORY, RATE = times(0.0), Quantity(memory, memories), Quantity(rate)
SHARE, SHARE_FINE = Quantity(percent), Quantity(percent_fine)
CHANGE = Quantity(change)
"""Of ratios: 1.067 is ``+6.7%``."""
SPAN = Quantity(span, is_sorted=False)
ERROR = Quantity(lambda error: change(1 + error))
"""Relative and signed: 0.067 is ``+6.7%``."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table: what it has of every row, and how that is said."""

    title: str
    of: Callable[[Row], Any]
    """None: there is no such value of a row."""
    said: Callable[[Any], str] = str
    """A ``Quantity``, or the column is of text."""
    _: KW_ONLY
    key: str = ""
    """The name in JSON, where the value is as it is; empty: not there."""
    page: str | None = None
    """The title on pages where it is another; empty: not there."""
    in_text: bool = True
    none: str = ""
    """What is said where there is no value."""
    priority: int = 0
    """Of text, columns with the highest number are dropped first; 0 is never dropped."""
    style: Callable[[Row], str] | None = None
    """How cells of text look, as rich has it."""
    prose: bool = False
    """Whether cells are long, and broken into lines on pages."""
    sorted_by: Callable[[Row], float | None] | None = None
    """What rows are sorted by on pages, where it is not the value."""

    @property
    def is_right(self) -> bool:
        """Whether cells are aligned to the right."""
        return isinstance(self.said, Quantity) and self.said.is_right

    @property
    def is_sorted(self) -> bool:
        """Whether rows are sorted by a number on pages, not by what is said."""
        said = self.said
        return self.sorted_by is not None or (isinstance(said, Quantity) and said.is_sorted)

    def texts(self, rows: Iterable[Row]) -> list[str]:
        """Return the cells of text, whose quantities are in one unit."""
        values = list(map(self.of, rows))
        known = [value for value in values if value is not None]
        alike = self.said.alike if isinstance(self.said, Quantity) else None
        said = iter(map(self.said, known) if alike is None else alike(known))
        return [self.none if value is None else next(said) for value in values]


def part_columns(total: Seconds) -> list[Column[tuple[str, Seconds]]]:
    """Return the columns of parts of a time, under their names: how long, and what share."""
    return [
        Column("", lambda part: part[0]),
        Column("", lambda part: part[1], times(total)),
        Column("", lambda part: part[1] / total, SHARE),
    ]


def untold(key: str, of: Callable[[Row], Any] | None = None) -> Column[Row]:
    """Return a column that only JSON has: of what has that name, unless told otherwise."""
    return Column("", of or attrgetter(key), key=key, page="", in_text=False)


def rows_data(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them, those that people do not read included."""
    keyed = [column for column in columns if column.key]
    return [{column.key: plain(column.of(row)) for column in keyed} for row in rows]


Keys: TypeAlias = Mapping[type, Mapping[str, str]]
"""By dataclass what JSON calls its fields, with their units, where that is not their name; empty:
they are left out."""


def plain(value: Any, keys: Keys = MappingProxyType({})) -> Any:  # noqa: ANN401 - of a report
    """Return data as JSON has it: dataclasses by their fields, enumerations by value."""
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
