"""Sharders beside each other, and plans beside each other, as text."""

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from costmodel.base.errors import PlannerError
from planner.planned.report import Report
from planner.show.format import count, duration, odds, rate, signed_duration, times_text
from planner.show.layout import rows_text, wrapped
from planner.verbs.diff import PlanDiff
from planner.views.compare_columns import (
    SharderRow,
    change_columns,
    sharder_columns,
    sharder_names,
    together,
)
from planner.views.report_text import groups_text, headline_text, interval_text, notes_text
from planner.views.verdict_text import tied_sentence

_MOST_RIVALS = 3
_ROUNDING = 1e-6
"""Share by which two steps must differ to be counted as different."""
_OTHERS = {
    "workload": "another workload",
    "machine": "another machine",
    "ranks": "other ranks",
    "averaging": "another averaging of replicas",
}


def sharders_text(
    reports: Sequence[Report], width: int, errors: Mapping[str, PlannerError] | None = None
) -> Iterator[Text]:
    """Yield the problem, and a table of sharders, best first; equal plans share a row.

    Where sharders tie, a sentence before the table says so; errors of sharders without a plan
    follow it.
    """
    yield from headline_text(reports[0], width)
    yield from notes_text(reports[0].notes, width)
    yield Text()
    tied = tied_sentence(reports)
    if tied:
        yield from wrapped(tied, width, indent=0)
        yield Text()
    found = together(reports)
    without = [SharderRow(sharders=(name,), error=error) for name, error in (errors or {}).items()]
    rows = [*found, *without]
    yield from rows_text(sharder_columns(rows), rows, width=width)
    for each in without:
        hint = f"; {each.error.hint}" if each.error and each.error.hint else ""
        yield from wrapped(f"{each.names} has no plan: {each.error}{hint}", width, then=2)
    for each in found:
        if len(each.sharders) > 1:
            yield from wrapped(f"{', '.join(each.sharders)} found the same plan.", width)
    for sentence in (*_proofs(reports), _beaten([each.report for each in found if each.report])):
        yield from wrapped(sentence, width)


def _proofs(reports: Sequence[Report]) -> Iterator[str]:
    """Yield how far each sharder got that minimises something else than the step."""
    for search in (report.search for report in reports):
        if search is None or search.proof is None or search.proof.bound is None:
            continue
        value, bound = duration(search.proof.value), duration(search.proof.bound)
        yield (
            f"{search.sharder}'s own objective, which is not quite the step time, is {value}; "
            f"none is below {bound} (gap {search.proof.gap:.1%})."
        )


def _beaten(reports: Sequence[Report]) -> str:
    """Return how likely the first plan is faster than the next ones; empty: there is one."""
    chances = [report.confidence.probability_beaten for report in reports]
    if len(reports) == 1:
        return ""
    first, *names = sharder_names(reports)
    rivals = list(zip(names, chances[1:], strict=True))[:_MOST_RIVALS]
    beaten = ", ".join(f"{name} with {odds(chance)}" for name, chance in rivals)
    return f"Given how far off the models have been, {first} beats {beaten}."


def diff_text(diff: PlanDiff, width: int) -> Iterator[Text]:
    """Yield one line per changed table, then their sum; a warning comes first if models differ."""
    yield from notes_text(diff.notes, width)
    if diff.differ_in:
        yield from wrapped(inputs_text(diff), width)
    if diff.changes:
        yield from rows_text(change_columns(diff), diff.changes, width=width)
    total = diff.new.step_time - diff.old.step_time
    if diff.changes or total:
        yield Text(f"  step {signed_duration(total)}: {_sum_text(diff)}")
    added = sum(each.old is None for each in diff.changes)
    removed = sum(each.new is None for each in diff.changes)
    changed = len(diff.changes) - added - removed
    tally = f"{added} added, {changed} changed, {removed} removed, {diff.num_unchanged} unchanged."
    steps = f"{duration(diff.old.step_time)} → {duration(diff.new.step_time)}{_verdict(diff)}"
    if abs(diff.throughput_ratio / diff.speedup - 1) <= _ROUNDING:  # as many samples a step
        yield Text(f"  {tally}    {steps}")
    else:
        yield Text(f"  {tally}")
        yield Text(f"  step {steps}")
        yield Text(f"  {throughput_change(diff)}")


def inputs_text(diff: PlanDiff) -> str:
    """Return the workload, machine, ranks or averaging that plans are for, where these differ."""
    told = {
        "workload": lambda report: f"local batch {report.local_batch_size:,}",
        "machine": lambda report: report.hardware,
        "ranks": _ranks_text,
        "averaging": _averaging_text,
    }
    pairs = {
        _OTHERS[what]: [told[what](r) for r in (diff.old, diff.new)] for what in diff.differ_in
    }
    said = [f"{what} ({old} → {new})" if old != new else what for what, (old, new) in pairs.items()]
    return f"The new plan is for {', '.join(said)}."


def _ranks_text(report: Report) -> str:
    """Return how many ranks there are, on how many nodes, and in which groups."""
    nodes = f"{report.num_ranks:,} on {count(report.num_nodes, 'node')}"
    if report.replicas is None:
        return nodes
    return f"{nodes} as {groups_text(report.replicas, report.world_size)}"


def _averaging_text(report: Report) -> str:
    """Return how often and by which strategy replicas are averaged."""
    if report.replicas is None:
        return "none"
    return f"{report.replicas.sharding_strategy}, {interval_text(report.replicas)}"


def _sum_text(diff: PlanDiff) -> str:
    """Return which parts add up to the change of the step."""
    if abs(diff.other_change) <= _ROUNDING * diff.old.step_time:
        return "the sum of these, made one after the other"
    told = [each.step_time_change for each in diff.changes if each.step_time_change is not None]
    tables = f"tables {signed_duration(sum(told))}, made one after the other; " if told else ""
    return f"{tables}{others_text(diff)} {signed_duration(diff.other_change)}"


def others_text(diff: PlanDiff) -> str:
    """Return what else the plans differ in, and the tables whose own part is unknown."""
    untold = sum(each.step_time_change is None for each in diff.changes)
    causes = [_OTHERS[what] for what in diff.differ_in] or ["the rest"]
    if untold:
        causes.append(f"{count(untold, 'table')} sharded otherwise for that")
    return " and ".join([", ".join(causes[:-1]), causes[-1]] if causes[1:] else causes)


def throughput_change(diff: PlanDiff) -> str:
    """Return the change of samples per second, which counts where the batch differs."""
    said = times_text(diff.throughput_ratio, "more", "fewer", "as many")
    before, after = (rate(each.samples_per_second) for each in (diff.old, diff.new))
    return f"{before} → {after} samples/s ({said})"


def _verdict(diff: PlanDiff) -> str:
    """Return in brackets how much faster the new plan is, and with which probability."""
    chance = diff.probability_faster
    sure, unsure = f"faster; P {odds(chance)}", f"slower; P {odds(1 - chance)}"
    return f" ({times_text(diff.speedup, sure, unsure, 'as fast')})"
