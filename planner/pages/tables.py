"""Tables of HTML: what notebooks show, and what pages let sort and filter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from planner.show.columns import Column, Quantity, Row
from planner.show.format import printable

NOTEBOOK_ROWS = 60
"""A notebook keeps what it shows in its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlColumn:
    """One column of a table."""

    header: str
    cells: Sequence[str]
    values: Sequence[float | None] = ()
    """What numbers are sorted by; none: the cells are text."""
    prose: bool = False
    """Whether cells are long, and broken into lines."""

    @classmethod
    def of_values(
        cls, header: str, values: Sequence[float | None], said: Callable[[float], str]
    ) -> "HtmlColumn":
        """Return a column of numbers as they are said; None is an empty cell."""
        cells = ["" if value is None else said(value) for value in values]
        return cls(header=header, cells=cells, values=values)


def rows_html(
    columns: Sequence[Column[Row]], rows: Sequence[Row], most_rows: int | None = None
) -> str:
    """Return a table; names come from files, and are escaped."""
    return html_table([_described(each, rows) for each in columns if each.page != ""], most_rows)


def _described(column: Column[Row], rows: Sequence[Row]) -> HtmlColumn:
    values = list(map(column.of, rows))
    sorts: Sequence[float | None] = ()
    if column.sorted_by is not None:
        sorts = list(map(column.sorted_by, rows))
    elif isinstance(column.said, Quantity) and column.said.is_sorted:
        sorts = values
    return HtmlColumn(
        header=column.page or column.title,
        cells=[column.none if value is None else column.said(value) for value in values],
        values=sorts,
        prose=column.prose,
    )


def html_table(columns: Sequence[HtmlColumn], most_rows: int | None = NOTEBOOK_ROWS) -> str:
    """Return a table; names come from files, and are escaped."""
    num_rows = len(columns[0].cells)
    shown = num_rows if most_rows is None else min(num_rows, most_rows)
    head = "".join(f"<th>{text(column.header)}</th>" for column in columns)
    rows = "".join(
        f"<tr>{''.join(_cell(column, row) for column in columns)}</tr>\n" for row in range(shown)
    )
    rest = num_rows - shown
    more = f'<tr><td colspan="{len(columns)}">{rest:,} more</td></tr>' if rest else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}{more}</tbody></table>"


def _cell(column: HtmlColumn, row: int) -> str:
    attributes = ' class="prose"' if column.prose else ""
    if column.values:
        value = column.values[row]
        attributes = attributes or ' style="text-align:right"'
        attributes += ' data-v=""' if value is None else f' data-v="{value:.9g}"'
    return f"<td{attributes}>{text(column.cells[row])}</td>"


def text(plain: str) -> str:
    """Return text as HTML has it, without what does not print."""
    return escape(printable(plain))
