"""Tables of HTML, for notebooks and for pages on which they can be sorted and filtered."""

from collections.abc import Sequence
from html import escape

from planner.show.columns import Column, Row
from planner.show.format import printable

NOTEBOOK_ROWS = 60
"""Most rows in a notebook, which keeps its output in its file."""


def rows_html(
    columns: Sequence[Column[Row]], rows: Sequence[Row], most_rows: int | None = None
) -> str:
    """Return a table as HTML, with names escaped: they come from files."""
    shown, told = [column for column in columns if column.page != ""], rows[:most_rows]
    head = "".join(f"<th>{text(column.page or column.title)}</th>" for column in shown)
    body = "".join(f"<tr>{''.join(_cell(each, row) for each in shown)}</tr>\n" for row in told)
    rest = len(rows) - len(told)
    more = f'<tr><td colspan="{len(shown)}">{rest:,} more</td></tr>' if rest else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}{more}</tbody></table>"


def _cell(column: Column[Row], row: Row) -> str:
    value = column.of(row)
    said = column.none if value is None else column.said(value)
    attributes = ' class="prose"' if column.prose else ""
    if column.is_sorted:
        by = column.sorted_by(row) if column.sorted_by else value
        attributes = attributes or ' style="text-align:right"'
        attributes += ' data-v=""' if by is None else f' data-v="{by:.9g}"'
    return f"<td{attributes}>{text(said)}</td>"


def text(plain: str) -> str:
    """Return plain text escaped for HTML, without characters that do not print."""
    return escape(printable(plain))
