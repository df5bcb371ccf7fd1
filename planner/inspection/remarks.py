"""What those are told who use counts of recorded ids for a model."""

from collections.abc import Iterable, Iterator
from itertools import chain

from costmodel.base.errors import suggestion
from planner.inspection.inspect import Inspection
from planner.inspection.kinds import Kind
from planner.inspection.statistics import TableObservation
from planner.show.format import count, percent

ORDERED = 0.1
"""Distinct rows that shuffled batches have more than consecutive ones, as a share, from which it is
said: sessions and users are told so, chance is not."""
UNCOVERED = 0.5
"""Coverage (Good-Turing) below which rows by distinct ids are a guess."""
FEW, LARGE = 1_000, 10**6
"""Rows for each distinct id, and in all, from which a table may be said to be nearly empty."""


def remarks(inspection: Inspection) -> Iterator[str]:
    """Yield remarks on the sample, on rows, and on names that do not fit the workload."""
    if inspection.interrupted:
        yield f"interrupted: these are the first {count(inspection.num_samples, 'sample')}"
    if inspection.spoilt_lines:
        yield f"{count(inspection.spoilt_lines, 'line')} with other numbers of fields, left out"
    yield from inspection.caveats
    yield from _of_sample(inspection)
    for table in inspection.tables:
        yield from _of_rows(table)
    yield from _of_names(inspection)


def _of_sample(inspection: Inspection) -> Iterator[str]:
    samples, planned = inspection.num_samples, inspection.planned_samples
    if samples < planned:
        yield (
            f"{count(samples, 'sample')} are less than a batch of {planned:,}: distinct rows of a "
            "batch are extrapolated from them, and may be a third off; read more"
        )
    ordered = [table for table in inspection.tables if table.order_effect > ORDERED]
    if ordered and not inspection.shuffled:
        most = max(ordered, key=lambda table: table.order_effect)
        yield (
            f"samples close to each other resemble each other: a shuffled batch has "
            f"{percent(most.order_effect)} more distinct rows of `{most.name}`"
            f"{_and_others(len(ordered) - 1)}; where training shuffles, `--shuffle`"
        )


def _and_others(number: int) -> str:
    return f" (and {count(number, 'table')} too)" if number else ""


def _of_rows(table: TableObservation) -> Iterator[str]:
    ids = count(table.num_distinct, "distinct id")
    if table.rows_from in {"given", "--hash", "the workload"}:
        return
    if table.kind in {Kind.RAW, Kind.CATEGORY} and table.coverage < UNCOVERED:
        yield (
            f"`{table.name}`: {ids}, nearly all of them once: its rows are a guess; "
            f"say `--rows {table.name}=N`, or `--hash {table.name}=N` as training does"
        )
    elif table.kind is Kind.RAW:
        yield (
            f"`{table.name}` has ids that are no rows ({ids} of up to {table.largest_id:,}): its "
            f"rows are those and {table.num_unseen:,} unseen ones (Chao1); training must map or "
            f"hash them: `--hash {table.name}=N`"
        )
    elif table.largest_id is not None and table.num_embeddings >= max(
        LARGE, FEW * table.num_distinct
    ):
        yield (
            f"`{table.name}` has {ids} of up to {table.largest_id:,}: unhashed ones, or few of "
            f"many rows; `--as {table.name}=raw` if they are no rows"
        )


def _of_names(inspection: Inspection) -> Iterator[str]:
    for name, lacking in inspection.absent.items():
        where = f"`{name}` stays as it is: this file lacks its {_quoted(lacking)}"
        yield f"{where}, and has others of its features"
    if inspection.unknown:
        there = [*inspection.missing, *chain(*inspection.absent.values())]
        meant = (suggestion(name, there) for name in inspection.unknown)
        hints = "".join(f"; {each}" for each in dict.fromkeys(filter(None, meant)))
        yield (
            f"features of no table of the workload, left out: {_quoted(inspection.unknown)}{hints}"
        )
    if inspection.missing:
        yield f"nothing recorded of: {', '.join(inspection.missing)}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
