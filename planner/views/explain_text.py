"""An explanation as text: the critical path, why these choices, what would help."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import add

from rich.text import Text

from planner.planned.report import Report
from planner.show.columns import CHANGE, NUMBER, Column, Quantity
from planner.show.format import change, duration, durations, memory, percent, printable, rate, span
from planner.show.layout import rows_text, wrapped
from planner.verbs.explanation import MOST_TOLD, Explanation, TableExplanation
from planner.verbs.what_if import Remedy
from planner.views.confidence_text import confidence_text
from planner.views.plan_columns import alternatives_text, kind_text, path_columns
from planner.views.report_text import averaging_sentences, notes_text
from planner.views.verdict_text import is_baseline_slower, rival_sentences

_MOST_ROWS = 24
_MOST_WAYS = 2
_CUT = "≤ "
"""Marks a step whose search ran out of time."""
_SAME = 5e-4
"""Steps that differ by less than this share are written alike."""
_WORTH = 0.005
"""A change is printed if it gains at least this share."""


def explained_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield an explanation without its remedies, which take longer to find."""
    report = explanation.report
    yield from notes_text(report.notes, width)
    yield Text(f"{duration(report.step_time)} per step ({span(report.interval)}, 90%).")
    yield Text(
        f"{duration(report.modelled.seconds)} by the models, without their errors; rank "
        f"{explanation.last_rank} is the last to finish. Critical path:"
    )
    yield from _path_text(explanation, width)
    if report.replicas is not None:
        yield from wrapped(averaging_sentences(report, report.replicas), width)
    yield Text("  How sure this is", style="bold")
    yield from confidence_text(explanation.report, width)
    if explanation.rival is not None:
        matters = is_baseline_slower(report)
        for sentence in rival_sentences(explanation.rival, report.search, matters=matters):
            yield from wrapped(sentence, width)
    yield Text("  Why these choices", style="bold")
    yield from _choices_text(explanation, width)


def remedies_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield what would turn the choice, which remedies help, and which do not.

    A remedy whose search ran out of time before it helped is not known to be useless: its step so
    far, which may be many times longer, is no answer, and only in the JSON.
    """
    table = partial(rows_text, _remedy_columns(explanation.report), width=width, indent=4, gap=2)
    helpful = _helpful(explanation)
    others = [each for each in explanation.remedies if each not in helpful]
    useless, unknown = ([each for each in others if each.is_cut is cut] for cut in (False, True))
    yield Text("  What would help (searched again from this plan)", style="bold")
    yield from table(helpful)
    if not helpful:
        tried = "that was tried" if explanation.remedies or explanation.unplanned else "was tried"
        yield Text(f"    nothing {'so far' if unknown else tried}")
    if useless or explanation.unplanned:
        yield Text("  What would not", style="bold")
    yield from table(useless)
    for change_text, reason in explanation.unplanned:
        yield from wrapped(f"{change_text}: {reason}", width - 2, indent=4, then=2)
    if unknown:
        names = ", ".join(each.change for each in unknown)
        told = f"Not searched long enough to tell (more `--time-limit` does): {names}"
        yield from wrapped(told, width)
    notes = (f"{each.change}: {note}" for each in explanation.remedies for note in each.notes)
    yield from notes_text(notes, width, indent=4)
    if any(each.is_cut for each in helpful):
        yield Text(f"    {_CUT} cut short by `--time-limit`: more time may find a shorter step")


def _path_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield the rows of the critical path, without the shortest where there are many."""
    rows = explanation.path
    if len(rows) > _MOST_ROWS:
        limit = sorted((row.seconds for row in rows), reverse=True)[_MOST_ROWS - 1]
        rows = tuple(row for row in rows if row.seconds >= limit)
    end = max((row.start + row.seconds for row in rows), default=0.0)
    yield from rows_text(path_columns(end), rows, width=width)
    left = len(explanation.path) - len(rows)
    if left:
        rest = explanation.report.modelled.seconds - sum(row.seconds for row in rows)
        yield Text(f"  and {left} shorter ones, {duration(rest)} in all")


def _choices_text(explanation: Explanation, width: int) -> Iterator[Text]:
    """Yield the tables with most lookup time, and how many others there are."""
    choices = explanation.choices[:MOST_TOLD]
    columns: list[Column[TableExplanation]] = [
        Column("", lambda choice: choice.sharding.table, printable),
        Column("", _sharding_text),
        Column("", lambda choice: _why(choice, explanation.report)),
    ]
    yield from rows_text(columns, choices, width=width, indent=4, gap=4)
    left = len(explanation.choices) - len(choices)
    if left:
        yield Text(f"    {left:,} more, looked up less: `--json` and `--html` have every table")


def _sharding_text(choice: TableExplanation) -> str:
    sharding = choice.sharding
    if len(sharding.shards) == 1:
        return f"{kind_text(sharding)} → {sharding.shards[0].rank}"
    return f"{kind_text(sharding)} ×{len(sharding.shards)}"


def _why(choice: TableExplanation, report: Report) -> str:
    """Return a table's size and lookups, and the step if it alone were sharded otherwise."""
    about = f"{memory(choice.weight_bytes)}, {percent(choice.lookup_share)} of the lookups"
    if choice.others is None:
        return about
    if choice.others.fixed:
        return f"{about}; {alternatives_text(choice.others)}"
    ways = dict(islice(choice.others.ratios.items(), _MOST_WAYS))
    if ways and all(abs(ratio - 1) < _SAME for ratio in ways.values()):
        return f"{about}; {' or '.join(ways)} is as good{_spare(choice, report)}"
    nearest = replace(choice.others, ratios=ways)
    others = alternatives_text(nearest, choice.effect)
    narrow = ""
    if choice.wider_ratio is not None:
        narrow = f"; blocks twice as wide {change(choice.wider_ratio)}"
    return f"{about}; otherwise {others}{narrow}"


def _spare(choice: TableExplanation, report: Report) -> str:
    """Return why the table's place does not matter: how much its busiest rank has to spare."""
    lookups = {rank.rank: rank.lookup for rank in report.ranks}
    rank = max(choice.sharding.ranks, key=lookups.__getitem__)
    spare = max(lookups.values()) - lookups[rank]
    if spare < _SAME * report.step_time:
        return f", though rank {rank} looks up longest"
    return f": rank {rank} looks up {duration(spare)} less than the busiest"


def _helpful(explanation: Explanation) -> list[Remedy]:
    """Return the remedies that train at least half a percent more samples per second."""
    least = (1 + _WORTH) * explanation.report.samples_per_second
    return [each for each in explanation.remedies if each.samples_per_second > least]


def _cut_marked(remedies: Sequence[Remedy]) -> list[str]:
    """Return the steps as text, marked where time was short for the search."""
    times = durations(each.step_time for each in remedies)
    return list(map(add, (_CUT if each.is_cut else "" for each in remedies), times))


def _remedy_columns(before: Report) -> list[Column[Remedy]]:
    now = before.samples_per_second
    return [
        Column("", lambda each: each.change),
        Column("", lambda each: each, Quantity(str, _cut_marked)),
        Column("", lambda each: each.step_time / before.step_time, CHANGE, priority=1),
        Column("", lambda each: f"{rate(each.samples_per_second)} samples/s", NUMBER, priority=2),
        Column("", lambda each: f"{each.samples_per_second / now:.2f}×", NUMBER, priority=4),
        Column("", lambda each: each.effect, priority=3),
    ]
