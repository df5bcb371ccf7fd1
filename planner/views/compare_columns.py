"""Columns of two tables: sharders beside each other, and tables placed differently."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.base.errors import PlannerError
from costmodel.domain.plan import ShardingType, TableSharding
from planner.files.plans import table_data
from planner.planned.report import Report, SearchReport, TableReport
from planner.show.columns import (
    CHANGE,
    COUNT,
    FULL,
    MEMORY,
    RATE,
    SPAN,
    TIME,
    Column,
    Quantity,
    json_column,
)
from planner.show.format import count, odds, printable, signed_duration
from planner.show.ranks import rank_list
from planner.verbs.diff import PlanDiff, TableChange
from planner.views.plan_columns import MOST_MEMORY, kind_text

_INITIALS = {
    ShardingType.DATA_PARALLEL: "dp",
    ShardingType.TABLE_WISE: "tw",
    ShardingType.COLUMN_WISE: "cw",
    ShardingType.ROW_WISE: "rw",
    ShardingType.TABLE_COLUMN_WISE: "twcw",
    ShardingType.TABLE_ROW_WISE: "twrw",
    ShardingType.GRID_SHARD: "grid",
}
"""Abbreviations of sharding types in TorchRec's statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharderRow:
    """The plan that some sharders found, or the error of one that found none."""

    sharders: Sequence[str]
    report: Report | None = None
    probability_fastest: float | None = None
    """Probability that this plan is the fastest; of all its finders together."""
    error: PlannerError | None = None

    @property
    def names(self) -> str:
        """The first sharder that found the plan, and how many more did."""
        more = f" and {len(self.sharders) - 1} more" if len(self.sharders) > 1 else ""
        return self.sharders[0] + more


def each_found(reports: Sequence[Report], errors: Mapping[str, PlannerError]) -> list[SharderRow]:
    """Return a row for every sharder, those without a plan last."""
    names = sharder_names(reports)
    plans = [SharderRow(sharders=(n,), report=r) for n, r in zip(names, reports, strict=True)]
    return [*plans, *(SharderRow(sharders=(name,), error=each) for name, each in errors.items())]


def together(reports: Sequence[Report]) -> list[SharderRow]:
    """Return one row for every plan, naming all sharders that found it, in the same order."""
    groups: dict[tuple[TableReport, ...], list[Report]] = {}
    for report in reports:
        groups.setdefault(report.tables, []).append(report)
    return [
        SharderRow(
            sharders=sharder_names(group),
            report=group[0],
            probability_fastest=sum(each.confidence.probability_fastest for each in group),
        )
        for group in groups.values()
    ]


def sharder_names(reports: Sequence[Report]) -> list[str]:
    """Return a name for each report: its sharder."""
    searches = [report.search for report in reports]
    return [s.sharder if s else f"plan {n}" for n, s in enumerate(searches, start=1)]


def sharder_columns(found: Sequence[SharderRow]) -> list[Column[SharderRow]]:
    """Return the columns of a table of sharders."""
    reports = [each.report for each in found if each.report]
    best = reports[0].step_time

    def of(value: Callable[[Report], Any]) -> Callable[[SharderRow], Any]:
        return lambda each: None if each.report is None else value(each.report)

    def searched(value: Callable[[SearchReport], Any]) -> Callable[[SharderRow], Any]:
        return of(lambda report: None if report.search is None else value(report.search))

    def full(each: SharderRow) -> str:
        report = each.report
        held = report.fullest.memory.tables if report else 0.0
        return FULL if report and held > MOST_MEMORY * report.usable_bytes else ""

    versus = of(lambda report: None if report is reports[0] else report.step_time / best)
    return [
        Column("Sharder", lambda each: each.names),
        Column("Step time", of(lambda report: report.step_time), TIME, none="no plan"),
        Column("vs best", versus, CHANGE, page="", priority=1),
        Column("90% interval", of(lambda report: report.interval), SPAN, priority=2),
        Column("Samples/s", of(lambda report: report.samples_per_second), RATE, in_text=False),
        Column("P(fastest)", lambda each: each.probability_fastest, Quantity(odds), page="",
               in_text=len(reports) > 1, priority=1),
        Column("Types", of(_types), page="", priority=3),
        Column("Imbalance", of(lambda report: report.imbalance), Quantity("{:.2f}".format),
               page="", priority=5),
        Column("Peak memory", of(lambda report: report.peak_memory_bytes), MEMORY, priority=4,
               style=full),
        Column("Plans looked at", searched(lambda search: search.evaluated), COUNT, in_text=False),
        Column("Search", searched(lambda search: search.time), Quantity("{:.2f} s".format),
               priority=1),
        Column("Searched", searched(lambda each: f"{count(each.evaluated, 'plan')}, {each.status}"),
               page="", priority=6),
        Column("No plan", lambda each: each.error, in_text=False, prose=True,
               page=None if any(each.error for each in found) else ""),
    ]  # fmt: skip


def _types(report: Report) -> str:
    """Return the number of tables of each sharding type, as ``14 tw, 12 cw``."""
    counts = Counter(table.sharding.sharding_type for table in report.tables)
    order = sorted(counts, key=lambda kind: (-counts[kind], kind))
    return ", ".join(f"{counts[kind]} {_INITIALS[kind]}" for kind in order)


def change_columns(diff: PlanDiff, names: tuple[str, str] = ("", "")) -> list[Column[TableChange]]:
    """Return the columns of a table of changed tables; ``names`` are the plans' names."""
    added = Quantity(signed_duration)
    return [
        Column("", lambda each: f"{_mark(each)} {printable(each.table)}", page=""),
        Column("", lambda each: each.table, key="name", page="Table", in_text=False),
        Column("", lambda each: _places(each, diff)[0], page=names[0]),
        Column("", lambda each: _places(each, diff)[1], page=names[1]),
        json_column("old", lambda each: each.old and table_data(each.old)),
        json_column("new", lambda each: each.new and table_data(each.new)),
        Column("", lambda each: each.step_time_change, added, key="step_time_change_s",
               page="Adds to the step", priority=1),
    ]  # fmt: skip


def _mark(each: TableChange) -> str:
    """Return a mark for an added, removed or changed table."""
    if each.old is None:
        return "+"
    return "-" if each.new is None else "~"


def _places(each: TableChange, diff: PlanDiff) -> tuple[str, str]:
    """Return where a changed table was and is, as two texts that differ."""
    old, new = _where(each.old, diff.old), _where(each.new, diff.new)
    return old, f"{new}, in other shards" if old == new else new


def _where(sharding: TableSharding | None, report: Report) -> str:
    if sharding is None:
        return ""
    share = sharding.cache_load_factor
    cached = "" if share is None else f", {100 * share:.3g}% cached"
    return f"{kind_text(sharding)}{cached} → {rank_list(sharding.ranks, report.world_size)}"
