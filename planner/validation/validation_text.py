"""A validation run as text: predicted beside measured, per plan and per phase, and the verdict."""

from collections.abc import Iterator

from rich.text import Text

from planner.show.columns import Column, times
from planner.show.format import count, duration, percent
from planner.show.layout import flow, rows_text, titled
from planner.validation.judge import MOST_FOREIGN, Outcome, Verdict, cpu_error, geomean_error
from planner.validation.machine_speed import slowdown_texts
from planner.validation.phases import Phase
from planner.validation.validate import Validation
from planner.validation.validation_data import outcome_columns

_MOST_PHASE_TABLES = 2
_MOST_OPEN_PAIRS = 12


def validation_text(validation: Validation, width: int) -> Iterator[Text]:
    """Yield the lines of the report."""
    outcomes, job = validation.outcomes, validation.job
    yield Text(
        f"{count(len(outcomes), 'plan')} · {job.world_size} × {job.device} · "
        f"{count(job.repeats, 'round')} of {count(job.steps, 'step')} · {validation.hardware}"
    )
    yield Text()
    largest = max(each.measured for each in outcomes)
    yield from rows_text(outcome_columns(largest), outcomes, width=width)
    yield Text()
    yield from map(Text, _verdict(validation.verdict, len(outcomes), width))
    yield from map(Text, _machine(validation))
    for each in _worth_showing(validation):
        if each.prediction.phases:
            title = f"  {each.name}: the slowest rank's thread by phase"
            yield from titled(title, _phases_text(each, width))
    if any(each.disturbed for each in outcomes):
        yield Text()
        text = f"  other processes had more than {percent(MOST_FOREIGN)} of a busy rank's core: "
        yield Text(f"{text}measure again on an idle machine", style="yellow")


def _verdict(verdict: Verdict, num_plans: int, width: int) -> Iterator[str]:
    busy = f"; of processor time {percent(verdict.cpu_error)}" if verdict.cpu_error else ""
    yield f"  error      {percent(verdict.geomean_error)} (geometric mean){busy}"
    if num_plans < 2:
        return
    pairs = num_plans * (num_plans - 1) // 2
    sure = f"{verdict.tau_told_apart:.2f} over the {verdict.told_apart} that noise can tell apart"
    yield f"  rank       Kendall's tau {verdict.tau:.2f} over {count(pairs, 'pair')}; {sure}"
    said = "success" if verdict.success else "failure"
    away = f"{percent(verdict.regret)} slower than {verdict.fastest}, the fastest"
    where = "the fastest" if verdict.picked == verdict.fastest else away
    yield f"  pick       {verdict.picked}: {where} ({said}: within 10% counts)"
    shown = [f"{a} | {b}" for a, b in verdict.open_pairs[:_MOST_OPEN_PAIRS]]
    if shown:
        more = len(verdict.open_pairs) - len(shown)
        shown += [f"{more} more"] if more else []
        lines = flow(shown, width=width, indent=13)
        yield "  open       " + lines[0]
        yield from (" " * 13 + line for line in lines[1:])


def _machine(validation: Validation) -> Iterator[str]:
    """Yield how much slower the machine was than when calibrated, and the error beside that."""
    if validation.slowdown is None:
        return
    yield f"  machine    {', '.join(slowdown_texts(validation.slowdowns))} against the calibration"
    left, busy = geomean_error(validation.at_speed), cpu_error(validation.at_speed)
    yield (
        f"             {100 * (validation.slowdown - 1):+.0f}% in the median; at that speed: "
        f"error {percent(left)}, of processor time {percent(busy)}"
    )


def _worth_showing(validation: Validation) -> list[Outcome]:
    """Return the plans whose phases are shown: all of two, else the picked and the fastest."""
    if len(validation.outcomes) <= _MOST_PHASE_TABLES:
        return list(validation.outcomes)
    wanted = {validation.verdict.picked, validation.verdict.fastest}
    return [each for each in validation.outcomes if each.name in wanted]


def _phases_text(each: Outcome, width: int) -> Iterator[Text]:
    """Yield predicted and measured phases of the rank that works longest."""
    rank = max(range(len(each.cpu)), key=each.cpu.__getitem__)
    ours = each.prediction.phases[rank]
    theirs = dict(each.phases[rank]) if each.phases else {}
    phases = [p for p in Phase if max(ours.get(p, 0.0), theirs.get(p, 0.0)) > 0]
    time = times(max([*ours.values(), *theirs.values()]))
    note = f"¹ profiler attached, {duration(sum(theirs.values()))} in all"
    columns: list[Column[Phase]] = [
        Column("Phase", lambda phase: phase.replace("_", " ")),
        Column("Predicted", lambda phase: ours.get(phase, 0.0), time),
    ]
    if theirs:
        columns += [
            Column("Measured ¹", lambda phase: theirs.get(phase, 0.0), time),
            Column("", lambda phase: note if phase is phases[0] else None, priority=1),
        ]
    yield from rows_text(columns, phases, width=width, indent=4)
