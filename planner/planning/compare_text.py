"""Sharders beside each other, and plans beside each other, as text."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.text import Text

from costmodel.domain.plan import TableSharding
from planner.planning.confidence_text import odds, span
from planner.planning.diff import PlanDiff, TableChange
from planner.planning.report import Report
from planner.planning.report_text import rank_list
from planner.planning.verdict_text import tied_sentence
from planner.show.format import (
    change,
    count,
    duration,
    durations,
    memory,
    printable,
    signed_duration,
)
from planner.show.layout import Column, table

_NO_SEARCH = "-"
_MOST_RIVALS = 3


def sharders_text(reports: Sequence[Report], width: int) -> Iterator[Text]:
    """Yield a sentence where sharders tie, and a table of them, best first."""
    tied = tied_sentence(reports)
    if tied:
        yield from map(Text, wrap(tied, width))
        yield Text()
    best = reports[0].expected
    searches = [report.search for report in reports]
    columns = [
        Column(header="Sharder", cells=[s.sharder if s else _NO_SEARCH for s in searches]),
        Column(header="Step time", cells=durations(r.expected for r in reports), right=True),
        Column(
            header="vs best",
            cells=["", *(change(report.expected / best) for report in reports[1:])],
            right=True,
            priority=1,
        ),
        *_odds_columns(reports),
        Column(
            header="Imbalance",
            cells=[f"{report.imbalance:.2f}" for report in reports],
            right=True,
            priority=5,
        ),
        Column(
            header="Peak memory",
            cells=[memory(report.peak_memory_bytes) for report in reports],
            right=True,
            priority=2,
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
            priority=4,
        ),
    ]
    lines = table(columns, width=width)
    yield Text(lines[0], style="bold")
    yield from map(Text, lines[1:])
    yield from map(Text, _proofs(reports, width))
    yield from map(Text, _rivals(reports, width))


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


def _odds_columns(reports: Sequence[Report]) -> list[Column]:
    """Return intervals and odds, where all reports have them."""
    known = [report.confidence for report in reports if report.confidence is not None]
    if len(known) < len(reports):
        return []
    spans = [span(confidence.interval) for confidence in known]
    columns = [Column(header="90% interval", cells=spans, right=True, priority=2)]
    if len(known) > 1:
        chances = [odds(confidence.probability_fastest) for confidence in known]
        columns.append(Column(header="P(fastest)", cells=chances, right=True, priority=1))
    return columns


def _rivals(reports: Sequence[Report], width: int) -> list[str]:
    """Say how likely the first plan is faster than those that come next."""
    names = [report.search.sharder if report.search else _NO_SEARCH for report in reports]
    chances = [report.confidence.probability_beaten for report in reports if report.confidence]
    if len(chances) < len(reports) or len(reports) == 1:
        return []
    rivals = list(zip(names, chances, strict=True))[1 : 1 + _MOST_RIVALS]
    beaten = ", ".join(f"{name} with {odds(chance)}" for name, chance in rivals)
    text = f"Given how far off the models have been, {names[0]} beats {beaten}."
    return [f"  {line}" for line in wrap(text, width - 2)]


def diff_text(diff: PlanDiff, width: int) -> Iterator[Text]:
    """Yield one line per changed table, then the tally."""
    if diff.changes:
        yield from map(Text, table(_diff_columns(diff), width=width))
    added = sum(each.old is None for each in diff.changes)
    removed = sum(each.new is None for each in diff.changes)
    changed = len(diff.changes) - added - removed
    yield Text(
        f"  {added} added, {changed} changed, {removed} removed, {diff.num_unchanged} unchanged."
        f"    {duration(diff.old.expected)} → {duration(diff.new.expected)}{_verdict(diff)}"
    )


def _verdict(diff: PlanDiff) -> str:
    if abs(diff.speedup - 1) < 5e-3:
        return " (as fast)"
    if diff.speedup > 1:
        return f" ({diff.speedup:.2f}× faster; P {odds(diff.probability_faster)})"
    return f" ({1 / diff.speedup:.2f}× slower; P {odds(1 - diff.probability_faster)})"


def _diff_columns(diff: PlanDiff) -> list[Column]:
    changes = diff.changes
    return [
        Column(header="", cells=[f"{_mark(each)} {printable(each.table)}" for each in changes]),
        Column(header="", cells=[_where(each.old, diff.old) for each in changes]),
        Column(header="", cells=[_where(each.new, diff.new) for each in changes]),
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


def _where(sharding: TableSharding | None, report: Report) -> str:
    if sharding is None:
        return ""
    return f"{sharding.sharding_type} → {rank_list(sharding.ranks, report.world_size)}"
