"""Sharders beside each other, and plans beside each other, as text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap

from rich.text import Text

from costmodel.base.errors import PlannerError
from costmodel.base.units import Bytes
from costmodel.domain.plan import ShardingType, TableSharding
from planner.planned.report import Report, TableReport
from planner.show.format import (
    change,
    count,
    duration,
    durations,
    memories,
    odds,
    printable,
    rate,
    signed_duration,
    span,
)
from planner.show.layout import FULL, Column, table, table_text
from planner.verbs.diff import PlanDiff, TableChange
from planner.views.report_text import (
    MOST_MEMORY,
    headline_text,
    kind_text,
    notes_text,
    rank_list,
)
from planner.views.verdict_text import tied_sentence

_NO_SEARCH = "-"
_NO_PLAN = "no plan"
_INITIALS = {
    ShardingType.DATA_PARALLEL: "dp",
    ShardingType.TABLE_WISE: "tw",
    ShardingType.COLUMN_WISE: "cw",
    ShardingType.ROW_WISE: "rw",
    ShardingType.TABLE_COLUMN_WISE: "twcw",
    ShardingType.TABLE_ROW_WISE: "twrw",
    ShardingType.GRID_SHARD: "grid",
}
"""As TorchRec's statistics have them."""
_MOST_RIVALS = 3
_ROUNDING = 1e-6
"""Share of the step below which two are the same."""
_AS_FAST = 5e-3
_OTHERS = {"workload": "another workload", "machine": "another machine", "ranks": "other ranks"}


def sharders_text(
    reports: Sequence[Report], width: int, errors: Mapping[str, PlannerError] | None = None
) -> Iterator[Text]:
    """Yield what was planned, and a table of sharders, best first; those with one plan in a row.

    Where sharders tie, a sentence before it says so. Sharders without a plan come last, and below
    the table is why they have none.
    """
    yield from headline_text(reports[0], width)
    yield from notes_text(reports[0].notes, width)
    yield Text()
    tied = tied_sentence(reports)
    if tied:
        yield from map(Text, wrap(tied, width))
        yield Text()
    groups = list(_equal(reports).values())
    columns = _sharder_columns(groups)
    if errors:
        columns = [_with_rows(column, errors) for column in columns]
    yield from table_text(columns, width=width)
    yield from map(Text, _reasons(errors or {}, width))
    yield from map(Text, _same_plans(groups, width))
    yield from map(Text, _proofs(reports, width))
    yield from map(Text, _rivals([group[0] for group in groups], width))


def _equal(reports: Sequence[Report]) -> dict[tuple[TableReport, ...], list[Report]]:
    """Return reports by their plans, in the same order."""
    groups: dict[tuple[TableReport, ...], list[Report]] = {}
    for report in reports:
        groups.setdefault(report.tables, []).append(report)
    return groups


def _sharder_columns(groups: Sequence[Sequence[Report]]) -> list[Column]:
    reports = [group[0] for group in groups]
    best = reports[0].expected
    searches = [report.search for report in reports]
    return [
        Column(header="Sharder", cells=[_names(group) for group in groups]),
        Column(header="Step time", cells=durations(r.expected for r in reports), right=True),
        Column(
            header="vs best",
            cells=["", *(change(report.expected / best) for report in reports[1:])],
            right=True,
            priority=1,
        ),
        *_odds_columns(groups),
        Column(header="Types", cells=[_types(report) for report in reports], priority=3),
        Column(
            header="Imbalance",
            cells=[f"{report.imbalance:.2f}" for report in reports],
            right=True,
            priority=5,
        ),
        Column(
            header="Peak memory",
            cells=memories(report.peak_memory_bytes for report in reports),
            right=True,
            priority=4,
            styles=[
                FULL if _fullest(report) > MOST_MEMORY * report.usable_bytes else ""
                for report in reports
            ],
        ),
        Column(
            header="Search",
            cells=[f"{s.time:.2f} s" if s else _NO_SEARCH for s in searches],
            right=True,
            priority=1,
        ),
        Column(
            header="Searched",
            cells=[
                f"{count(s.evaluated, 'plan')}, {s.status}" if s else _NO_SEARCH for s in searches
            ],
            priority=6,
        ),
    ]


def _with_rows(column: Column, errors: Mapping[str, PlannerError]) -> Column:
    """Return a column with a row for every sharder that has no plan."""
    said = {"Sharder": list(errors), "Step time": [_NO_PLAN] * len(errors)}
    blank = [""] * len(errors)
    styles = [*column.styles, *blank] if column.styles else ()
    return replace(column, cells=[*column.cells, *said.get(column.header, blank)], styles=styles)


def _reasons(errors: Mapping[str, PlannerError], width: int) -> list[str]:
    """Say why sharders have no plan, and what helps."""
    lines = []
    for name, error in errors.items():
        hint = f"; {error.hint}" if error.hint else ""
        lines += wrap(f"{name} has no plan: {error}{hint}", width - 2, subsequent_indent="  ")
    return [f"  {line}" for line in lines]


def _sharder(report: Report) -> str:
    return report.search.sharder if report.search else _NO_SEARCH


def _names(group: Sequence[Report]) -> str:
    """Return who found a plan: the first, and how many more."""
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return _sharder(group[0]) + more


def _same_plans(groups: Sequence[Sequence[Report]], width: int) -> list[str]:
    """Name those that the table only counts."""
    lines = []
    for group in groups:
        names = list(map(_sharder, group))
        if len(names) > 1:
            lines += wrap(f"{', '.join(names)} found the same plan.", width - 2)
    return [f"  {line}" for line in lines]


def _fullest(report: Report) -> Bytes:
    """Return the bytes of tables on the fullest rank."""
    return max(rank.memory.tables for rank in report.ranks)


def _types(report: Report) -> str:
    """Return how many tables have which sharding type, short: ``14 tw, 12 cw``."""
    counts = Counter(table.sharding.sharding_type for table in report.tables)
    order = sorted(counts, key=lambda kind: (-counts[kind], kind))
    return ", ".join(f"{counts[kind]} {_INITIALS[kind]}" for kind in order)


def _proofs(reports: Sequence[Report], width: int) -> list[str]:
    """Say how far sharders got that minimise something else than the step."""
    lines = []
    for search in (report.search for report in reports):
        if search is None or search.proof is None or search.proof.bound is None:
            continue
        value, bound = duration(search.proof.value), duration(search.proof.bound)
        text = (
            f"{search.sharder}'s own objective, which is not quite the step time, is {value}; "
            f"none is below {bound} (gap {search.proof.gap:.1%})."
        )
        lines += [f"  {line}" for line in wrap(text, width - 2)]
    return lines


def _odds_columns(groups: Sequence[Sequence[Report]]) -> list[Column]:
    """Return intervals and odds, where all reports have them; those of one plan add up."""
    known = [group[0].confidence for group in groups if group[0].confidence is not None]
    if len(known) < len(groups):
        return []
    spans = [span(confidence.interval) for confidence in known]
    columns = [Column(header="90% interval", cells=spans, right=True, priority=2)]
    if len(known) > 1:
        chances = [
            odds(sum(r.confidence.probability_fastest for r in group if r.confidence))
            for group in groups
        ]
        columns.append(Column(header="P(fastest)", cells=chances, right=True, priority=1))
    return columns


def _rivals(reports: Sequence[Report], width: int) -> list[str]:
    """Say how likely the first plan is faster than those that come next."""
    names = list(map(_sharder, reports))
    chances = [report.confidence.probability_beaten for report in reports if report.confidence]
    if len(chances) < len(reports) or len(reports) == 1:
        return []
    rivals = list(zip(names, chances, strict=True))[1 : 1 + _MOST_RIVALS]
    beaten = ", ".join(f"{name} with {odds(chance)}" for name, chance in rivals)
    text = f"Given how far off the models have been, {names[0]} beats {beaten}."
    return [f"  {line}" for line in wrap(text, width - 2)]


def diff_text(diff: PlanDiff, width: int) -> Iterator[Text]:
    """Yield one line per changed table, then the tally; before it whether the models differ."""
    yield from notes_text(diff.notes, width)
    if diff.changes:
        yield from map(Text, table(_diff_columns(diff), width=width))
    total = diff.new.step_time - diff.old.step_time
    if diff.changes or total:
        yield Text(f"  predicted step {signed_duration(total)}: {_sum_text(diff)}")
    added = sum(each.old is None for each in diff.changes)
    removed = sum(each.new is None for each in diff.changes)
    changed = len(diff.changes) - added - removed
    tally = f"{added} added, {changed} changed, {removed} removed, {diff.num_unchanged} unchanged."
    steps = f"{duration(diff.old.expected)} → {duration(diff.new.expected)}{_verdict(diff)}"
    if abs(diff.throughput_ratio / diff.speedup - 1) <= _ROUNDING:  # as many samples a step
        yield Text(f"  {tally}    {steps}")
    else:
        yield Text(f"  {tally}")
        yield Text(f"  step {steps}")
        yield Text(f"  {throughput_change(diff)}")


def _sum_text(diff: PlanDiff) -> str:
    """Say what the change of the predicted step is the sum of."""
    if abs(diff.other_change) <= _ROUNDING * diff.old.step_time:
        return "the sum of these, made one after the other"
    told = [each.step_time_change for each in diff.changes if each.step_time_change is not None]
    tables = f"tables {signed_duration(sum(told))}, made one after the other; " if told else ""
    return f"{tables}{others_text(diff)} {signed_duration(diff.other_change)}"


def others_text(diff: PlanDiff) -> str:
    """Name what the plans differ in, and the tables whose part cannot be told from it."""
    untold = sum(each.step_time_change is None for each in diff.changes)
    causes = [_OTHERS[what] for what in diff.differ_in] or ["the rest"]
    if untold:
        causes.append(f"{count(untold, 'table')} sharded otherwise for that")
    return " and ".join([", ".join(causes[:-1]), causes[-1]] if causes[1:] else causes)


def throughput_change(diff: PlanDiff) -> str:
    """Compare samples per second: what counts where a step has more of them, or fewer."""
    ratio = diff.throughput_ratio
    said = "as many"
    if abs(ratio - 1) >= _AS_FAST:
        said = f"{ratio:.2f}× more" if ratio > 1 else f"{1 / ratio:.2f}× fewer"
    before, after = (rate(each.samples_per_second) for each in (diff.old, diff.new))
    return f"{before} → {after} samples/s ({said})"


def _verdict(diff: PlanDiff) -> str:
    if abs(diff.speedup - 1) < _AS_FAST:
        return " (as fast)"
    if diff.speedup > 1:
        return f" ({diff.speedup:.2f}× faster; P {odds(diff.probability_faster)})"
    return f" ({1 / diff.speedup:.2f}× slower; P {odds(1 - diff.probability_faster)})"


def _diff_columns(diff: PlanDiff) -> list[Column]:
    changes = diff.changes
    places = [where_texts(each, diff) for each in changes]
    return [
        Column(header="", cells=[f"{_mark(each)} {printable(each.table)}" for each in changes]),
        Column(header="", cells=[old for old, _ in places]),
        Column(header="", cells=[new for _, new in places]),
        Column(
            header="",
            cells=[
                "" if each.step_time_change is None else signed_duration(each.step_time_change)
                for each in changes
            ],
            right=True,
            priority=1,
        ),
    ]


def _mark(each: TableChange) -> str:
    if each.old is None:
        return "+"
    return "-" if each.new is None else "~"


def where_texts(each: TableChange, diff: PlanDiff) -> tuple[str, str]:
    """Return how and where a table was and is: two texts that differ, as the shardings do."""
    old, new = _where(each.old, diff.old), _where(each.new, diff.new)
    return old, f"{new}, in other shards" if old == new else new


def _where(sharding: TableSharding | None, report: Report) -> str:
    if sharding is None:
        return ""
    share = sharding.cache_load_factor
    cached = "" if share is None else f", {100 * share:.3g}% cached"
    return f"{kind_text(sharding)}{cached} → {rank_list(sharding.ranks, report.world_size)}"
