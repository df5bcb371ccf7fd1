"""What recorded ids say about tables, as text and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from costmodel.inputs.reuse import NUM_BINS
from planner.inspection.inspect import Inspection
from planner.inspection.statistics import SKEW_RANKS, TableObservation
from planner.show.format import change, count, percent, printable, significant
from planner.show.layout import Column, table_text


def inspection_text(inspection: Inspection, width: int) -> Iterator[Text]:
    """Yield the tables' statistics, and how often a batch hits their rows."""
    tables = inspection.tables
    samples = max(table.num_samples for table in tables)
    size = inspection.batch_samples
    batches = f"{samples // size:,} {'batch' if samples < 2 * size else 'batches'} of {size:,}"
    yield Text(f"{count(len(tables), 'table')}, {count(samples, 'sample')} in {batches}")
    yield Text("")
    yield from table_text(_statistics(tables), width=width)
    yield Text("")
    yield Text("  Distinct rows by their hits in one batch, in %", style="bold")
    yield from table_text(_reuse(tables), width=width, gap=2)
    if inspection.skipped:
        yield Text("")
        yield Text(f"  no ids, left out: {printable(', '.join(inspection.skipped))}")
    if inspection.length_spread is not None:
        yield Text("")
        yield Text(f"  ids of a rank's batch: {percent(inspection.length_spread)} deviation")
    if inspection.padding:
        features = (f"{number:,} of {name}" for name, number in inspection.padding.items())
        yield Text("")
        yield Text(
            f"  negative ids, taken as padding and not counted: {printable(', '.join(features))}"
        )


def inspection_data(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as plain data."""
    return {
        "source": inspection.source,
        "batch_samples": inspection.batch_samples,
        "tables": [_data(table) for table in inspection.tables],
        "skipped": list(inspection.skipped),
        "unknown": list(inspection.unknown),
        "missing": list(inspection.missing),
        "absent": {table: list(features) for table, features in inspection.absent.items()},
        "length_spread": inspection.length_spread,
        "padding": dict(inspection.padding),
    }


def _data(observed: TableObservation) -> dict[str, Any]:
    return {**asdict(observed), "unique_fraction": observed.unique_fraction}


def _statistics(tables: tuple[TableObservation, ...]) -> list[Column]:
    def column(header: str, cells: list[str], priority: int = 0) -> Column:
        return Column(header=header, cells=cells, right=True, priority=priority)

    return [
        Column(header="Table", cells=[printable(t.name) for t in tables]),
        column("Rows", [f"{t.num_embeddings:,}" for t in tables], 5),
        column("Pooling", [significant(t.pooling_factor) for t in tables]),
        column("Deviation", [significant(t.pooling_std) for t in tables], 5),
        column("Unique", [_share(t.unique_fraction) for t in tables]),
        column("Hottest row", [_share(t.hot_rows[0].lookup_share) for t in tables], 2),
        column("Half of all on", [count(t.half_rows, "row") for t in tables], 3),
        column("Zipf", [_zipf(t) for t in tables], 1),
        column("Misfit", [_misfit(t) for t in tables], 1),
        column(f"Skew of {SKEW_RANKS}", [f"{t.skew:.2f}" for t in tables], 2),
        column("Half batch", [change(1 + t.half_batch_error) for t in tables], 4),
    ]


def _reuse(tables: tuple[TableObservation, ...]) -> list[Column]:
    names = Column(header="Table", cells=[printable(table.name) for table in tables])
    bins = []
    for bin_ in range(NUM_BINS):
        most = 1 << min(bin_, NUM_BINS - 2)
        least = most // 2 + 1
        header = str(most) if bin_ < 2 else f"{_short(least)}+"
        if bin_ == NUM_BINS - 1:
            header = f">{_short(most)}"
        cells = [_cell(table.reuse_rows[bin_] / table.unique_rows) for table in tables]
        bins.append(Column(header=header, cells=cells, right=True))
    return [names, *bins]


def _short(number: int) -> str:
    return str(number) if number < 1024 else f"{number // 1024}k"


def _cell(share: float) -> str:
    if share == 0:
        return "·"
    if share < 0.001:
        return "<.1"
    return f"{100 * share:.1f}".removeprefix("0") if share < 0.0995 else f"{100 * share:.0f}"


def _share(share: float) -> str:
    return f"{significant(100 * share, 2 if share < 0.1 else 3)}%"


def _zipf(observed: TableObservation) -> str:
    fit = observed.zipf
    return "-" if fit is None else f"{fit.exponent:.3f} ± {max(fit.standard_error, 0.001):.3f}"


def _misfit(observed: TableObservation) -> str:
    return "-" if observed.zipf is None else percent(observed.zipf.histogram_error)
