"""Observations of tables from recorded ids, as text and as JSON."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from rich.text import Text

from costmodel.inputs.reuse import NUM_BINS, ZipfFit
from planner.inspection.inspect import Inspection
from planner.inspection.statistics import SKEW_RANKS, TableObservation
from planner.show.columns import COUNT, ERROR, SHARE, Column, Quantity, plain
from planner.show.format import count, percent, printable, significant
from planner.show.layout import rows_text, titled


def inspection_text(inspection: Inspection, width: int) -> Iterator[Text]:
    """Yield the tables' statistics, and how often a batch hits their rows."""
    tables = inspection.tables
    samples = max(table.num_samples for table in tables)
    size = inspection.batch_samples
    batches = f"{samples // size:,} {'batch' if samples < 2 * size else 'batches'} of {size:,}"
    yield Text(f"{count(len(tables), 'table')}, {count(samples, 'sample')} in {batches}")
    yield Text()
    yield from rows_text(_STATISTICS, tables, width=width)
    bins = [_STATISTICS[0], *map(_reuse_column, range(NUM_BINS))]
    reuse = rows_text(bins, tables, width=width, gap=2)
    yield from titled("  Distinct rows by their hits in one batch, in %", reuse)
    padded = ", ".join(f"{number:,} of {name}" for name, number in inspection.padding.items())
    spread = inspection.length_spread
    for known, said in (
        (inspection.skipped, f"no ids, left out: {printable(', '.join(inspection.skipped))}"),
        (spread is not None, f"ids of a rank's batch: {percent(spread or 0.0)} deviation"),
        (padded, f"negative ids, taken as padding and not counted: {printable(padded)}"),
    ):
        if known:
            yield Text()
            yield Text(f"  {said}")


def inspection_data(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as plain data."""
    tables = [
        {**plain(each), "unique_fraction": each.unique_fraction} for each in inspection.tables
    ]
    return {**plain(inspection), "tables": tables}


def _misfit(observed: TableObservation) -> float | None:
    return None if observed.zipf is None else observed.zipf.histogram_error


def _share(share: float) -> str:
    return f"{significant(100 * share, 2 if share < 0.1 else 3)}%"


def _zipf(fit: ZipfFit) -> str:
    return f"{fit.exponent:.3f} ± {max(fit.standard_error, 0.001):.3f}"


_SMALL, _SHARE = Quantity(significant), Quantity(_share)
_ROWS, _RATIO = Quantity(partial(count, thing="row")), Quantity("{:.2f}".format)
_STATISTICS: list[Column[TableObservation]] = [
    Column("Table", lambda table: table.name, printable),
    Column("Rows", lambda table: table.num_embeddings, COUNT, priority=5),
    Column("Pooling", lambda table: table.pooling_factor, _SMALL),
    Column("Deviation", lambda table: table.pooling_std, _SMALL, priority=5),
    Column("Unique", lambda table: table.unique_fraction, _SHARE),
    Column("Hottest row", lambda table: table.hot_rows[0].lookup_share, _SHARE, priority=2),
    Column("Half of all on", lambda table: table.half_rows, _ROWS, priority=3),
    Column("Zipf", lambda table: table.zipf, Quantity(_zipf), priority=1, none="-"),
    Column("Misfit", _misfit, SHARE, priority=1, none="-"),
    Column(f"Skew of {SKEW_RANKS}", lambda table: table.skew, _RATIO, priority=2),
    Column("Half batch", lambda table: table.half_batch_error, ERROR, priority=4),
]


def _reuse_column(number: int) -> Column[TableObservation]:
    """Return the column of one reuse bin: distinct rows with so many hits in a batch."""
    most = 1 << min(number, NUM_BINS - 2)
    title = str(most) if number < 2 else f"{_short(most // 2 + 1)}+"
    if number == NUM_BINS - 1:
        title = f">{_short(most)}"
    return Column(title, lambda each: each.reuse_rows[number] / each.unique_rows, Quantity(_cell))


def _short(number: int) -> str:
    return str(number) if number < 1024 else f"{number // 1024}k"


def _cell(share: float) -> str:
    """Return a share as percent in at most three characters."""
    if share == 0:
        return "·"
    if share < 0.001:
        return "<.1"
    return f"{100 * share:.1f}".removeprefix("0") if share < 0.0995 else f"{100 * share:.0f}"
