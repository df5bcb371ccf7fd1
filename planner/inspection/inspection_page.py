"""Recorded ids as a page: what ``inspect --html`` writes."""

from collections.abc import Iterator

from planner.inspection.inspect import Inspection
from planner.inspection.inspection_text import (
    MORE_COLUMNS,
    REUSE_COLUMNS,
    Dims,
    first_columns,
)
from planner.inspection.kinds import ColumnKind
from planner.inspection.remarks import remarks
from planner.pages.charts import Spec, field, spec, tooltip
from planner.pages.document import Panel, html_page
from planner.pages.html_tables import rows_html
from planner.show.columns import Column
from planner.show.format import count, percent_fine

_MOST_LINES = 20
"""Tables of a chart, those with most lookups; more cannot be told apart."""
_COLUMNS: list[Column[ColumnKind]] = [
    Column("Column", lambda column: column.name),
    Column("Taken for", lambda column: column.kind.value),
    Column("Because", lambda column: column.reason, prose=True),
]


def inspection_page(inspection: Inspection, dims: Dims) -> str:
    """Return the page of recorded ids: tables, columns, rank and frequency, lengths."""
    tables = inspection.tables
    panels = [
        Panel(title="Remarks", lines=list(remarks(inspection))),
        Panel(title="Tables", table=rows_html(first_columns(dims), tables)),
        Panel(
            title="How often rows are hit",
            note="Share of all lookups by a row's rank, the hottest first; both axes are "
            "logarithmic, so that a Zipf law is a line.",
            chart=rank_frequency_spec(inspection),
        ),
        *_lengths(inspection),
        Panel(title="More of each table", table=rows_html(MORE_COLUMNS, tables)),
        Panel(
            title="Distinct rows by their hits in one batch, in %",
            table=rows_html(REUSE_COLUMNS, tables),
        ),
        Panel(title="What columns are taken for", table=rows_html(_COLUMNS, inspection.columns)),
    ]
    facts = [
        ("samples", f"{inspection.num_samples:,}"),
        ("a batch", count(inspection.batch_samples, "sample")),
        ("tables", f"{len(tables):,}"),
    ]
    title = f"Ids of {inspection.source}"
    return html_page(title, facts, [panel for panel in panels if _has_content(panel)])


def _has_content(panel: Panel) -> bool:
    return bool(panel.chart or panel.table or panel.lines)


def rank_frequency_spec(inspection: Inspection) -> Spec:
    """Return the chart of lookups by rank, a line for every table."""
    shown = sorted(inspection.tables, key=lambda table: -table.num_lookups)[:_MOST_LINES]
    rows = [
        {"table": table.name, "rank": rank, "share": share, "text": percent_fine(share)}
        for table in shown
        for rank, share in table.rank_frequency
    ]
    scale = {"type": "log"}
    return spec(
        rows,
        height=320,
        mark={"type": "line", "point": True},
        encoding={
            "x": field("rank", "rank of the row", scale=scale),
            "y": field("share", "share of lookups", scale=scale, axis={"format": "~%"}),
            "color": field("table", "table", "nominal"),
            "tooltip": tooltip(table="table", rank="rank", text="share of lookups"),
        },
    )


def _lengths(inspection: Inspection) -> Iterator[Panel]:
    """Yield the chart of ids a sample, of tables whose samples differ."""
    shown = [table for table in inspection.tables if len(table.lengths) > 1][:_MOST_LINES]
    rows = [
        {
            "table": table.name,
            "ids": length,
            "share": number / table.num_samples,
            "text": percent_fine(number / table.num_samples),
        }
        for table in shown
        for length, number in table.lengths
    ]
    if rows:
        encoding = {
            "x": field("ids", "ids a sample"),
            "y": field("share", "share of samples", axis={"format": "~%"}),
            "color": field("table", "table", "nominal"),
            "tooltip": tooltip(table="table", ids="ids", text="share of samples"),
        }
        chart = spec(rows, height=260, mark={"type": "line", "point": True}, encoding=encoding)
        yield Panel(title="Ids a sample", note="1,024 stands for more, too.", chart=chart)
