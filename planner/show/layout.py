"""Tables as text; the least important columns are dropped where it is narrow."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.text import Text

from planner.show.columns import Column, Row


@dataclass(frozen=True, slots=True)
class _TextColumn:
    """One column of text, title first; cells are never cut."""

    cells: Sequence[str]
    styles: Sequence[str]
    is_right: bool
    priority: int

    @classmethod
    def of(cls, column: Column[Row], rows: Sequence[Row]) -> "_TextColumn":
        styles = ["", *map(column.style, rows)] if column.style else [""] * (1 + len(rows))
        cells = [column.title, *column.texts(rows)]
        return cls(cells, styles, column.is_right, column.priority)

    @property
    def width(self) -> int:
        return max(map(cell_len, self.cells))

    def padded(self, row: int) -> str:
        cell = self.cells[row]
        space = " " * (self.width - cell_len(cell))
        return space + cell if self.is_right else cell + space


def rows_text(
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    *,
    width: int,
    indent: int = 2,
    gap: int = 3,
) -> Iterator[Text]:
    """Yield the lines of a table: bold titles, unless all are empty, and rows."""
    laid = [_TextColumn.of(column, rows) for column in columns if column.in_text]
    shown = _fitting(laid, width - indent, gap)
    has_titles = any(column.cells[0] for column in shown)
    for row in range(0 if has_titles else 1, 1 + len(rows)):
        cells = (" " * gap).join(column.padded(row) for column in shown)
        line, start = Text((" " * indent + cells).rstrip()), indent
        if row == 0:
            line.stylize("bold")
        for column in shown:
            line.stylize(column.styles[row], start, start + column.width)
            start += column.width + gap
        yield line


def _fitting(columns: Sequence[_TextColumn], width: int, gap: int) -> list[_TextColumn]:
    """Return the columns that fit into the width; those of the highest priority leave first."""
    shown = list(columns)
    while sum(column.width + gap for column in shown) - gap > width:
        least = max(shown, key=lambda column: column.priority)
        if least.priority == 0:
            break
        shown.remove(least)
    return shown


def titled(title: str, lines: Iterable[Text]) -> Iterator[Text]:
    """Yield an empty line, a bold title, and the lines below it."""
    yield Text()
    yield Text(title, style="bold")
    yield from lines


def wrapped(
    text: str, width: int, *, indent: int = 2, then: int = 0, style: str = ""
) -> Iterator[Text]:
    """Yield the lines of a text; lines after the first are indented by ``then`` more columns."""
    for line in wrap(text, width - indent, subsequent_indent=" " * then):
        yield Text(" " * indent + line, style=style)


def flow(items: Sequence[str], *, width: int, indent: int, gap: int = 4) -> list[str]:
    """Return lines of items side by side, as many lines as needed; items are never cut."""
    lines: list[str] = []
    for item in items:
        longer = f"{lines[-1]}{' ' * gap}{item}" if lines else ""
        if lines and indent + cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(item)
    return lines
