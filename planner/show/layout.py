"""Tables of text: columns below each other, the least important dropped when it gets narrow."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.text import Text

from planner.show.columns import Column as Described
from planner.show.columns import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table; its cells are never cut."""

    header: str
    cells: Sequence[str]
    right: bool = False
    """Whether it is aligned to the right."""
    priority: int = 0
    """Columns with the highest number are dropped first; 0 is never dropped."""
    styles: Sequence[str] = ()
    """How cells look, as rich has it; none: they are plain."""

    @property
    def width(self) -> int:
        """Width of the widest cell or the header."""
        return max(map(cell_len, (self.header, *self.cells)), default=0)


def table(columns: Sequence[Column], *, width: int, indent: int = 2, gap: int = 3) -> list[str]:
    """Return the lines of a table, the headers first unless all are empty."""
    shown = _fitting(columns, width=width, indent=indent, gap=gap)
    rows = list(zip(*(column.cells for column in shown), strict=True))
    if any(column.header for column in shown):
        rows.insert(0, tuple(column.header for column in shown))
    return [_row(shown, row, " " * gap, " " * indent) for row in rows]


def table_text(
    columns: Sequence[Column], *, width: int, indent: int = 2, gap: int = 3
) -> Iterator[Text]:
    """Yield the lines of a table, the headers bold and cells in their styles."""
    shown = _fitting(columns, width=width, indent=indent, gap=gap)
    has_header = any(column.header for column in shown)
    for number, line in enumerate(table(shown, width=width, indent=indent, gap=gap)):
        row, styled, start = number - has_header, Text(line), indent
        if row < 0:
            styled.stylize("bold")
        for column in shown:
            if row >= 0 and column.styles:
                styled.stylize(column.styles[row], start, start + column.width)
            start += column.width + gap
        yield styled


def titled(title: str, lines: Iterable[Text]) -> Iterator[Text]:
    """Yield an empty line, a bold title, and the lines below it."""
    yield Text()
    yield Text(title, style="bold")
    yield from lines


def wrapped(
    text: str, width: int, *, indent: int = 2, then: int = 0, style: str = ""
) -> Iterator[Text]:
    """Yield a text as lines, all but the first indented by so many more columns."""
    for line in wrap(text, width - indent, subsequent_indent=" " * then):
        yield Text(" " * indent + line, style=style)


def flow(items: Sequence[str], *, width: int, indent: int, gap: int = 4) -> list[str]:
    """Return items side by side on as many lines as they need; an item is never cut."""
    lines: list[str] = []
    for item in items:
        longer = f"{lines[-1]}{' ' * gap}{item}" if lines else ""
        if lines and indent + cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(item)
    return lines


def _fitting(columns: Sequence[Column], *, width: int, indent: int, gap: int) -> list[Column]:
    shown = list(columns)
    while indent + sum(c.width for c in shown) + gap * (len(shown) - 1) > width:
        least = max(shown, key=lambda column: column.priority)
        if least.priority == 0:
            break
        shown.remove(least)
    return shown


def _row(columns: Sequence[Column], cells: Sequence[str], gap: str, indent: str) -> str:
    padded = []
    for column, cell in zip(columns, cells, strict=True):
        space = " " * (column.width - cell_len(cell))
        padded.append(space + cell if column.right else cell + space)
    return (indent + gap.join(padded)).rstrip()


def rows_text(
    columns: Sequence[Described[Row]],
    rows: Sequence[Row],
    *,
    width: int,
    indent: int = 2,
    gap: int = 3,
) -> Iterator[Text]:
    """Yield the lines of a table."""
    laid = [
        Column(
            header=each.title,
            cells=each.texts(rows),
            right=each.is_right,
            priority=each.priority,
            styles=[each.style(row) for row in rows] if each.style else (),
        )
        for each in columns
        if each.in_text
    ]
    yield from table_text(laid, width=width, indent=indent, gap=gap)
