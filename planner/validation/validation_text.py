"""A validation run as text and JSON: predicted and measured by plan and phase, a verdict."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from costmodel.base.units import Seconds
from planner.show.columns import (
    ERROR,
    SHARE,
    SPAN,
    Column,
    Keys,
    Quantity,
    json_column,
    plain,
    rows_data,
    times,
)
from planner.show.format import count, duration, durations, percent
from planner.show.layout import flow, rows_text, titled
from planner.validation.judge import MOST_FOREIGN, Outcome, Verdict, cpu_error, geomean_error
from planner.validation.machine_speed import slowdown_texts
from planner.validation.phases import Phase
from planner.validation.validate import Validation

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
    """Yield how much slower the machine was than when calibrated, and the error at that speed."""
    if validation.slowdown is None:
        return
    yield f"  machine    {', '.join(slowdown_texts(validation.slowdowns))} against the calibration"
    left, busy = geomean_error(validation.at_speed), cpu_error(validation.at_speed)
    yield (
        f"             {100 * (validation.slowdown - 1):+.0f}% in the median; at that speed: "
        f"error {percent(left)}, of processor time {percent(busy)}"
    )


def _worth_showing(validation: Validation) -> list[Outcome]:
    """Return the plans whose phases are shown: both of two, else the picked and the fastest one."""
    if len(validation.outcomes) <= _MOST_PHASE_TABLES:
        return list(validation.outcomes)
    wanted = {validation.verdict.picked, validation.verdict.fastest}
    return [each for each in validation.outcomes if each.name in wanted]


def _phases_text(each: Outcome, width: int) -> Iterator[Text]:
    """Yield predicted and measured phases of the busiest rank."""
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


_KEYS: Keys = {
    Verdict: {
        "cpu_error": "geomean_cpu_error",
        "tau": "kendall_tau",
        "told_apart": "num_pairs_told_apart",
        "tau_told_apart": "kendall_tau_told_apart",
    }
}


def outcome_columns(largest: Seconds = 0.0) -> list[Column[Outcome]]:
    """Return the columns of plans: predicted and measured steps."""
    time = times(largest)
    by_rank = Quantity(lambda seconds: "  ".join(durations(seconds, largest)))
    others = Quantity(lambda shares: SHARE(max(shares, default=0.0)))
    return [
        Column("Plan", lambda each: each.name, key="name"),
        Column("Step time", lambda each: each.predicted, time, key="step_time_s"),
        Column("90% interval", lambda each: each.prediction.interval, SPAN,
               key="step_time_interval_s", priority=1),
        Column("Measured", lambda each: each.measured, time, key="measured_s"),
        Column("±", lambda each: each.noise, time, key="noise_s", priority=1),
        Column("Within", lambda each: each.is_within, lambda within: "yes" if within else "no",
               key="within_interval"),
        Column("Error", lambda each: each.error, ERROR, key="error"),
        Column("CPU per rank", lambda each: each.cpu, by_rank, key="cpu_s", priority=3),
        Column("CPU predicted", lambda each: each.prediction.busy, by_rank, key="predicted_cpu_s",
               priority=4),
        Column("Others", lambda each: each.foreign, others, key="foreign_share", priority=2),
        json_column("rounds_s", lambda each: each.rounds),
        json_column("phases", _phases),
    ]  # fmt: skip


def _phases(each: Outcome) -> list[dict[str, Any]]:
    both = zip(each.prediction.phases, each.phases, strict=False)
    return [
        {"rank": rank, "predicted_s": ours, "measured_s": theirs}
        for rank, (ours, theirs) in enumerate(both)
    ]


def validation_data(validation: Validation) -> dict[str, Any]:
    """Return all predictions and measurements as plain data."""
    verdict, at_speed = validation.verdict, validation.at_speed
    return {
        "hardware": validation.hardware,
        "device": validation.device.value,
        "world_size": validation.job.world_size,
        "repeats": validation.job.repeats,
        "steps": validation.job.steps,
        "plans": rows_data(outcome_columns(), validation.outcomes),
        "machine_slowdown": plain(validation.slowdowns),
        "median_machine_slowdown": validation.slowdown,
        "geomean_error_at_that_speed": geomean_error(at_speed) if at_speed else None,
        "geomean_cpu_error_at_that_speed": cpu_error(at_speed) if at_speed else None,
        **plain(verdict, _KEYS),
        "success": verdict.success,
    }
