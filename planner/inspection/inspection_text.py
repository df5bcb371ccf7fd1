"""Observations of tables from recorded ids, as text and as JSON."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from costmodel.inputs.reuse import NUM_BINS, ZipfFit
from planner.inspection.inspect import Inspection
from planner.inspection.statistics import SKEW_RANKS, TableObservation
from planner.show.columns import (
    COUNT,
    ERROR,
    SHARE,
    SHARE_FINE,
    Column,
    Quantity,
    plain,
)
from planner.show.format import count, memory, percent, printable, significant
from planner.show.layout import rows_text, titled, wrapped

if TYPE_CHECKING:
    from planner.inspection.kinds import Kind

Dims = Callable[[str], int]
"""Returns the columns of a table's embeddings."""
_BYTES = 4
"""Bytes of a number of FP32."""
_LONGEST_NAME, _LONGEST_NAMES = 18, 26
"""Characters of a table's name on the first screen, and of names that are taken for the same."""


def inspection_text(inspection: Inspection, width: int, dims: Dims) -> Iterator[Text]:
    """Yield the tables, what columns are taken for, and what was left out of the counts."""
    tables, size = inspection.tables, inspection.batch_samples
    samples = inspection.num_samples
    batches = f"{samples // size:,} {'batch' if samples < 2 * size else 'batches'} of {size:,}"
    mixed = ", shuffled" if inspection.shuffled else ""
    yield Text(f"{count(len(tables), 'table')}, {count(samples, 'sample')} in {batches}{mixed}")
    yield Text()
    yield from rows_text(first_columns(dims, cut=True), tables, width=width, gap=2)
    whole = sum(_memory(table, dims) for table in tables)
    yield Text()
    yield Text(f"  {memory(whole)} of weights in fp32, optimizer not counted")
    taken = list(_taken(inspection, width))
    if taken:
        yield from titled("  What columns are taken for; `--as a=KIND` says otherwise", taken)
    for said in _left_out(inspection):
        yield Text()
        yield from wrapped(said, width)


def _left_out(inspection: Inspection) -> Iterator[str]:
    if inspection.length_spread is not None:
        yield f"ids of a rank's batch: {percent(inspection.length_spread)} deviation"
    if inspection.padding:
        ids = inspection.padding_ids
        padded = ", ".join(
            f"{number:,} of {name}" + (f" (id {ids[name]})" if name in ids else " (negative)")
            for name, number in inspection.padding.items()
        )
        yield f"padding, not counted: {printable(padded)}"
    if any(not table.is_exact for table in inspection.tables):
        yield (
            "distinct ids of tables with more than could be kept, and how often they are hit over "
            "all samples, are told by a share of the ids"
        )


def _taken(inspection: Inspection, width: int) -> Iterator[Text]:
    """Yield a line for every kind and reason, with the columns that are taken so."""
    groups: dict[tuple[Kind, str], list[str]] = {}
    for column in inspection.columns:
        groups.setdefault((column.kind, column.reason), []).append(column.name)
    rows = [(_few(names), kind.value, reason) for (kind, reason), names in groups.items()]
    left = width - 2 * 4
    named = min(_LONGEST_NAMES, max((cell_len(name) for name, _, _ in rows), default=0))
    kinds = max((len(kind) for _, kind, _ in rows), default=0)
    columns: list[Column[tuple[str, str, str]]] = [
        Column("", lambda row: _cut(row[0], _LONGEST_NAMES)),
        Column("", lambda row: row[1]),
        Column("", lambda row: _cut(row[2], max(12, left - named - kinds))),
    ]
    yield from rows_text(columns, rows, width=width, gap=2)


def _few(names: Sequence[str]) -> str:
    """Return names, of many the first and the last."""
    if len(names) == 1:
        return _shorter(names[0], _LONGEST_NAMES)
    listed = ", ".join(map(printable, names))
    if cell_len(listed) <= _LONGEST_NAMES:
        return listed
    first, last = (_shorter(name, 8) for name in (names[0], names[-1]))
    return f"{first} ... {last} ({len(names)})"


def _cut(text: str, most: int) -> str:
    """Return a text of at most so many columns."""
    shown = printable(text)
    if cell_len(shown) <= most:
        return shown
    while cell_len(shown) > most - 1:
        shown = shown[:-1]
    return f"{shown}…"


def _shorter(name: str, most: int) -> str:
    """Return a name of at most so many columns, which keeps its end: it tells names apart."""
    shown = printable(name)
    if cell_len(shown) <= most:
        return shown
    half = (most - 1) // 2
    return f"{_cut(shown, most - half)}{shown[-half:]}" if half > 1 else _cut(shown, most)


def _memory(table: TableObservation, dims: Dims) -> float:
    return float(table.num_embeddings * dims(table.name) * _BYTES)


def inspection_data(inspection: Inspection, dims: Dims) -> dict[str, Any]:
    """Return the inspection as plain data."""
    tables = [
        {
            **plain(each),
            "unique_fraction": each.unique_fraction,
            "weight_bytes": _memory(each, dims),
        }
        for each in inspection.tables
    ]
    return {**plain(inspection), "tables": tables}


def _misfit(observed: TableObservation) -> float | None:
    return None if observed.zipf is None else observed.zipf.histogram_error


def _share(share: float) -> str:
    return f"{significant(100 * share, 2 if share < 0.1 else 3)}%"


def _zipf(fit: ZipfFit) -> str:
    return f"{fit.exponent:.3f} ± {max(fit.standard_error, 0.001):.3f}"


def _unique(table: TableObservation) -> tuple[float, float | None]:
    """Return distinct rows over lookups, and half of its interval."""
    if table.unique_interval is None:
        return table.unique_fraction, None
    low, high = table.unique_interval
    return table.unique_fraction, (high - low) / 2 / table.num_lookups


def _unique_text(unique: tuple[float, float | None]) -> str:
    share, error = unique
    if error is None:
        return _share(share)
    return f"{_share(share)} ±{significant(max(100 * error, 0.01), 2 if error >= 0.0995 else 1)}"


_SMALL, _SHARE = Quantity(significant), Quantity(_share)
_ROWS, _RATIO = Quantity(partial(count, thing="row")), Quantity("{:.2f}".format)


def first_columns(dims: Dims, *, cut: bool = False) -> list[Column[TableObservation]]:
    """Return the columns of the first screen; long names are cut there."""
    longest = _LONGEST_NAME if cut else 1000
    return [
        Column("Table", lambda table: table.name, lambda name: _shorter(name, longest)),
        Column("Kind", lambda table: table.kind.value),
        Column("Rows", lambda table: table.num_embeddings, COUNT),
        Column("Ids/sample", lambda table: table.pooling_factor, _SMALL),
        Column("Unique", _unique, Quantity(_unique_text, is_sorted=False)),
        Column("Hottest", lambda table: table.hot_rows[0].lookup_share, _SHARE),
        Column("Memory", lambda table: _memory(table, dims), Quantity(memory)),
    ]


MORE_COLUMNS: list[Column[TableObservation]] = [
    Column("Table", lambda table: table.name, printable),
    Column("Rows from", lambda table: table.rows_from),
    Column("Distinct", lambda table: table.num_distinct, COUNT),
    Column("Unseen", lambda table: table.num_unseen, COUNT),
    Column("Covered", lambda table: table.coverage, SHARE_FINE),
    Column("Deviation", lambda table: table.pooling_std, _SMALL),
    Column("Longest", lambda table: table.longest_bag, COUNT),
    Column("Half of all on", lambda table: table.half_rows, _ROWS),
    Column("Zipf", lambda table: table.zipf, Quantity(_zipf, is_sorted=False), none="-"),
    Column("Misfit", _misfit, SHARE, none="-"),
    Column(f"Skew of {SKEW_RANKS}", lambda table: table.skew, _RATIO),
    Column("Shuffled", lambda table: table.order_effect, ERROR),
]
"""What the first screen has no room for."""


def wide_text(inspection: Inspection) -> Iterator[Text]:
    """Yield what the first screen has no room for, however wide that is."""
    everything = 10_000
    more = rows_text(MORE_COLUMNS, inspection.tables, width=everything)
    yield from titled("  More of each table", more)
    reuse = rows_text(REUSE_COLUMNS, inspection.tables, width=everything, gap=2)
    yield from titled("  Distinct rows by their hits in one batch, in %", reuse)


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


REUSE_COLUMNS = [MORE_COLUMNS[0], *map(_reuse_column, range(NUM_BINS))]
"""Shares of the distinct rows of a batch in every reuse bin."""
