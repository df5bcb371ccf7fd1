"""A validation run as text: predicted beside measured, per plan and per phase, and the verdict."""

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from costmodel.base.units import Seconds
from planner.show.format import change, count, duration, durations, percent
from planner.show.layout import Column, flow, table
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
    yield Text("")
    yield from map(Text, table(_columns(outcomes), width=width))
    yield Text("")
    yield from map(Text, _verdict(validation.verdict, len(outcomes), width))
    yield from map(Text, _machine(validation))
    for each in _worth_showing(validation):
        if each.prediction.phases:
            yield Text("")
            yield Text(f"  {each.name}: the slowest rank's thread by phase", style="bold")
            yield from map(Text, table(_phase_columns(each), width=width, indent=4))
    if any(each.disturbed for each in outcomes):
        yield Text("")
        text = f"  other processes had more than {percent(MOST_FOREIGN)} of a busy rank's core: "
        yield Text(f"{text}measure again on an idle machine", style="yellow")


def _columns(outcomes: Sequence[Outcome]) -> list[Column]:
    largest = max(each.measured for each in outcomes)
    noise = durations([each.noise for each in outcomes], largest)
    return [
        Column(header="Plan", cells=[each.name for each in outcomes]),
        _times("Predicted", [each.predicted for each in outcomes], largest),
        _times("Measured", [each.measured for each in outcomes], largest),
        Column(header="±", cells=noise, right=True, priority=1),
        Column(header="Error", cells=[change(1 + each.error) for each in outcomes], right=True),
        Column(
            header="CPU per rank",
            cells=["  ".join(durations(each.cpu, largest)) for each in outcomes],
            right=True,
            priority=3,
        ),
        Column(
            header="CPU predicted",
            cells=["  ".join(durations(each.prediction.busy, largest)) for each in outcomes],
            right=True,
            priority=4,
        ),
        Column(
            header="Others",
            cells=[percent(max(each.foreign, default=0.0)) for each in outcomes],
            right=True,
            priority=2,
        ),
    ]


def _times(header: str, values: Sequence[Seconds], largest: Seconds) -> Column:
    return Column(header=header, cells=durations(values, largest), right=True)


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


def _phase_columns(each: Outcome) -> list[Column]:
    """Return predicted and measured phases of the rank that works longest."""
    rank = max(range(len(each.cpu)), key=each.cpu.__getitem__)
    ours = each.prediction.phases[rank]
    theirs: Mapping[str, Seconds] = each.phases[rank] if each.phases else {}
    phases = [p for p in Phase if max(ours.get(p, 0.0), theirs.get(p, 0.0)) > 0]
    largest = max([*ours.values(), *theirs.values()])
    columns = [
        Column(header="Phase", cells=[phase.replace("_", " ") for phase in phases]),
        _times("Predicted", [ours.get(phase, 0.0) for phase in phases], largest),
    ]
    if theirs:
        columns.append(_times("Measured ¹", [theirs.get(phase, 0.0) for phase in phases], largest))
        total = duration(sum(theirs.values()))
        columns.append(
            Column(
                header="",
                cells=[f"¹ profiler attached, {total} in all"] + [""] * (len(phases) - 1),
                priority=1,
            )
        )
    return columns
