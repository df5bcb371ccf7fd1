"""An explanation as text: the critical path, why these choices, what would help."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import inf
from operator import add
from textwrap import wrap

from rich.text import Text

from costmodel.base.units import Seconds
from planner.planned.report import STAGE_NAMES, Report
from planner.show.format import change, duration, durations, memory, percent, printable, rate, span
from planner.show.layout import Column, table, table_text
from planner.verbs.alternatives import Alternatives
from planner.verbs.explanation import MOST_TOLD, Explanation, PathRow, TableExplanation
from planner.verbs.what_if import Remedy
from planner.views.confidence_text import confidence_text
from planner.views.report_text import kind_text, notes_text
from planner.views.verdict_text import turn_sentence

_MOST_ROWS = 24
_MOST_WAYS = 2
_CUT = "≤ "
"""Marks what a search found that was cut short."""
_SCALED = "~"
"""Marks an expected step that is scaled from the predicted one."""
_SAME = 5e-4
"""Steps that differ by less are written alike."""
_WORTH = 0.005
"""A change is worth printing from half a percent on."""


def explained_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield all but what would help, which takes longer to find."""
    report = explanation.report
    yield from notes_text(report.notes, width)
    predicted = f"{duration(report.step_time)} as predicted"
    if report.confidence is not None:
        expected, interval = duration(report.expected), span(report.confidence.interval)
        yield Text(f"{expected} expected per step ({interval}, 90%).")
    yield Text(f"{predicted}; rank {explanation.last_rank} is the last to finish. Critical path:")
    yield from _path_text(explanation, width)
    if explanation.report.confidence is not None:
        yield Text("  How sure this is", style="bold")
        yield from confidence_text(explanation.report, width)
    yield Text("  Why these choices", style="bold")
    yield from _choices_text(explanation, width)


def remedies_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield what would turn the choice, what would help, and what would not: all searched for.

    Of what was cut short and does not help yet it is not known.
    """
    if explanation.turn is not None:
        yield Text("  What the choice rests on", style="bold")
        yield from map(
            Text, (f"    {line}" for line in wrap(turn_sentence(explanation.turn), width - 4))
        )
    helpful = _helpful(explanation)
    yield Text("  What would help (expected; searched again from this plan)", style="bold")
    others = [each for each in explanation.remedies if each not in helpful]
    useless, unknown = ([each for each in others if each.is_cut is cut] for cut in (False, True))
    yield from _remedy_table(helpful, explanation.report, width)
    if not helpful:
        yield Text(f"    nothing {'so far' if unknown else 'that was tried'}")
    if useless or explanation.unplanned:
        yield Text("  What would not", style="bold")
    yield from _remedy_table(useless, explanation.report, width)
    for change_text, reason in explanation.unplanned:
        lines = wrap(f"{change_text}: {reason}", width - 6, subsequent_indent="  ")
        yield from (Text(f"    {line}") for line in lines)
    if unknown:
        yield Text("  What may help (cut short: more `--time-limit` says)", style="bold")
    yield from _remedy_table(unknown, explanation.report, width)
    notes = (f"{each.change}: {note}" for each in explanation.remedies for note in each.notes)
    yield from notes_text(notes, width, indent=4)
    if any(each.is_cut for each in explanation.remedies):
        yield Text(f"    {_CUT} cut short by `--time-limit`: more time may find a shorter step")
    if any(each.is_scaled for each in explanation.remedies):
        legend = (
            f"{_SCALED} no time was left for the models' errors: the predicted step, and as "
            "much more as this plan's expected one is"
        )
        yield from (Text(f"    {line}") for line in wrap(legend, width - 4))


def _path_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield the rows of the path, the shortest left out where there are many."""
    rows = explanation.path
    if len(rows) > _MOST_ROWS:
        limit = sorted((row.seconds for row in rows), reverse=True)[_MOST_ROWS - 1]
        rows = tuple(row for row in rows if row.seconds >= limit)
    yield from table_text(_path_columns(rows), width=width)
    left = len(explanation.path) - len(rows)
    if left:
        rest = explanation.report.step_time - sum(row.seconds for row in rows)
        yield Text(f"  and {left} shorter ones, {duration(rest)} in all")


def _path_columns(rows: tuple[PathRow, ...]) -> list[Column]:
    ends = max((row.start + row.seconds for row in rows), default=0.0)
    return [
        Column(header="at", cells=durations((r.start for r in rows), ends), right=True, priority=3),
        Column(header="took", cells=durations((r.seconds for r in rows), ends), right=True),
        Column(header="stage", cells=[STAGE_NAMES[row.stage] for row in rows]),
        Column(
            header="rank",
            cells=["all" if row.rank is None else str(row.rank) for row in rows],
            right=True,
        ),
        Column(header="bound by", cells=[row.bound_by for row in rows], priority=1),
        Column(header="from", cells=[row.source for row in rows], priority=2),
    ]


def _choices_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield the tables looked up most, and where the others are."""
    choices = explanation.choices[:MOST_TOLD]
    columns = [
        Column(header="", cells=[printable(choice.sharding.table) for choice in choices]),
        Column(header="", cells=[_how(choice) for choice in choices]),
        Column(header="", cells=[_why(choice, explanation.report) for choice in choices]),
    ]
    yield from map(Text, table(columns, width=width, indent=4, gap=4))
    left = len(explanation.choices) - len(choices)
    if left:
        yield Text(f"    {left:,} more, looked up less: `--json` and `--html` have every table")


def _how(choice: TableExplanation) -> str:
    sharding = choice.sharding
    if len(sharding.shards) == 1:
        return f"{kind_text(sharding)} → {sharding.shards[0].rank}"
    return f"{kind_text(sharding)} ×{len(sharding.shards)}"


def _why(choice: TableExplanation, report: Report) -> str:
    """Say what a table is, and what the step would be were it alone sharded otherwise."""
    step_time = report.step_time
    about = f"{memory(choice.weight_bytes)}, {percent(choice.lookup_share)} of the lookups"
    if choice.others is None:
        return about
    if choice.others.fixed:
        return f"{about}; {alternatives_text(choice.others, step_time)}"
    ways = dict(islice(choice.others.step_times.items(), _MOST_WAYS))
    if ways and all(abs(seconds / step_time - 1) < _SAME for seconds in ways.values()):
        return f"{about}; {' or '.join(ways)} is as good{_spare(choice, report)}"
    nearest = replace(choice.others, step_times=ways)
    others = alternatives_text(nearest, step_time, choice.effect)
    narrow = ""
    if choice.wider_step_time is not None:
        narrow = f"; blocks twice as wide {change(choice.wider_step_time / step_time)}"
    return f"{about}; otherwise {others}{narrow}"


def _spare(choice: TableExplanation, report: Report) -> str:
    """Say why it is the same wherever a table is: how far its busiest rank is from the last one."""
    lookups = {rank.rank: rank.lookup for rank in report.ranks}
    rank = max(choice.sharding.ranks, key=lookups.__getitem__)
    spare = max(lookups.values()) - lookups[rank]
    if spare < _SAME * report.step_time:
        return f", though rank {rank} looks up longest"
    return f": rank {rank} looks up {duration(spare)} less than the busiest"


def _helpful(explanation: Explanation) -> list[Remedy]:
    """Return what trains more samples a second, by half a percent: a shorter step alone may not."""
    before = explanation.report
    return [
        each
        for each in explanation.remedies
        if each.samples_per_second > (1 + _WORTH) * before.samples_per_second
    ]


def _cut_marked(remedies: list[Remedy]) -> list[str]:
    """Return the expected steps, with a mark where they were searched or sampled too little."""
    times = durations(each.step_time for each in remedies)
    marks = [
        f"{_SCALED if each.is_scaled else ''}{_CUT if each.is_cut else ''}" for each in remedies
    ]
    return list(map(add, marks, times))


def _remedy_table(remedies: list[Remedy], before: Report, width: int) -> Iterator[Text]:
    if remedies:
        columns = _remedy_columns(remedies, before)
        yield from map(Text, table(columns, width=width, indent=4, gap=2))


def _remedy_columns(remedies: list[Remedy], before: Report) -> list[Column]:
    more = [each.samples_per_second / before.samples_per_second for each in remedies]
    changes = [change(each.step_time / before.expected) for each in remedies]
    rates = [f"{rate(each.samples_per_second)} samples/s" for each in remedies]
    return [
        Column(header="", cells=[each.change for each in remedies]),
        Column(header="", cells=_cut_marked(remedies), right=True),
        Column(header="", cells=changes, right=True, priority=1),
        Column(header="", cells=rates, right=True, priority=2),
        Column(header="", cells=[f"{ratio:.2f}×" for ratio in more], right=True, priority=4),
        Column(header="", cells=[each.effect for each in remedies], priority=3),
    ]


def alternatives_text(others: Alternatives, step_time: Seconds, effect: str = "") -> str:
    """Return the changes of the step, the least first; those that do not fit are only named.

    ``effect`` says what the nearest way of another type changes most.
    """
    if others.fixed:
        return "on your `ranks`"
    if not others.step_times:
        return "no other way is allowed"
    nearest = others.nearest and others.nearest.sharding_type.value
    return ", ".join(
        _way_text(name, seconds / step_time, effect if name == nearest else "")
        for name, seconds in others.step_times.items()
    )


def _way_text(name: str, ratio: float, effect: str) -> str:
    if ratio == inf:
        return f"{name} does not fit"
    return f"{name} {change(ratio)}" + (f" ({effect})" if effect else "")
