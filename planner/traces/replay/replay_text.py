"""A replay as text: simulated beside measured steps, where the time goes, and what-ifs."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from costmodel.base.units import MS, US
from planner.show.columns import NUMBER, Column, Quantity
from planner.show.format import change, count, duration, percent
from planner.show.layout import rows_text, titled
from planner.traces.replay.breakdown import CATEGORIES, Breakdown, CommunicationTimes, StreamUse
from planner.traces.replay.classify import Category
from planner.traces.replay.modes import Replay, StepTime
from planner.traces.replay.replay_data import (
    STRETCH_COLUMNS,
    answer_columns,
    path_columns,
    step_columns,
)
from planner.traces.replay.replay_report import Answer, ReplayReport

_MOST_ROWS = 24
"""Most steps and streams listed one by one."""
_MOST_STRETCHES = 10
_MAIN_STREAMS = ("compute", "collectives")
_NAMES = {
    "graph": "the planner's simulator",
    "algorithm1": "the paper's Algorithm 1",
    "baseline": "the busiest stream's kernels",
}


def replay_text(report: ReplayReport, width: int) -> Iterator[Text]:
    """Yield the lines of a replay."""
    yield from map(Text, _headline(report))
    steps = _shown_steps(report.replay)
    longest = max(max(step.measured, step.simulated) for step in steps)
    yield from titled("  Step by step", rows_text(step_columns(longest), steps, width=width))
    yield from _left_out(report.replay.steps)
    if report.breakdown is not None:
        yield from _breakdown_text(report.breakdown, width)
    if report.answers:
        yield from titled("  What if", _answers_text(report.replay, report.answers, width))


def _headline(report: ReplayReport) -> Iterator[str]:
    run, replay = report.run, report.replay
    steps = count(run.graph.num_steps, "step")
    whole = run.job.is_whole
    ranks = count(len(run.job.recorded), "rank") if whole else run.job.text
    others = "" if whole else " · the other ranks as recorded"
    yield f"{ranks}, {steps} · timed by {_NAMES[replay.mode]}{others}"
    waits = run.waits
    yield (
        f"{len(run.graph.nodes):,} nodes · waits between streams: {waits.recorded:,} recorded, "
        f"{waits.inferred:,} inferred from order and time"
    )
    yield from run.notes
    yield ""
    for name, simulated, measured in (
        ("makespan ", replay.simulated_makespan, replay.measured_makespan),
        ("step time", replay.step_time, replay.measured_step_time),
    ):
        error = change(simulated / measured)
        yield f"  {name}   {duration(simulated)} simulated, {duration(measured)} measured ({error})"
    worst, mean = _share(replay.worst_error), _share(replay.mean_error)
    yield f"  error       {worst} on the worst step of a rank, {mean} on the mean"


def _share(error: float) -> str:
    return f"{100 * error:.2f}%"


def _shown_steps(replay: Replay) -> list[StepTime]:
    """Return all steps; of many, those with the largest errors."""
    steps: Sequence[StepTime] = replay.steps
    if len(steps) > _MOST_ROWS:
        steps = sorted(steps, key=lambda step: -abs(step.error))[:_MOST_ROWS]
    return sorted(steps, key=lambda step: (step.step, step.rank))


def _left_out(rows: Sequence[object]) -> Iterator[Text]:
    """Yield where rows are that are not shown, if there are more than are."""
    if len(rows) > _MOST_ROWS:
        yield Text(f"  and {len(rows) - _MOST_ROWS:,} more: see --json")


def _breakdown_text(found: Breakdown, width: int) -> Iterator[Text]:
    merged = _merged(found.streams)
    uses = merged[:_MOST_ROWS]
    largest = max(max([*use.busy.values(), use.waiting]) for use in uses)
    unit, name = (MS, "ms") if largest >= MS else (US, "us")
    amount = Quantity(lambda seconds: f"{seconds / unit:,.2f}" if seconds else "")
    title = f"  Where the time goes, from the first event to the last, in {name}"
    yield from titled(title, rows_text(_stream_columns(uses, amount), uses, width=width, gap=2))
    yield from _left_out(merged)
    communication: list[Column[CommunicationTimes]] = [
        Column("Rank", lambda row: row.rank, NUMBER),
        Column("Hidden", lambda row: row.hidden, amount),
        Column("Exposed", lambda row: row.exposed, amount),
        Column("Waiting for other ranks", lambda row: row.waiting, amount),
    ]
    title = f"  Communication in {name}, once all ranks have joined"
    rows = found.communication[:_MOST_ROWS]
    yield from titled(title, rows_text(communication, rows, width=width))
    yield from _left_out(found.communication)
    shares = ", ".join(f"{name} {percent(share)}" for name, share in found.bounds.items())
    title = f"  Critical path of the last step, limited by {shares}"
    path = rows_text(path_columns(found.path_time), found.path, width=width, indent=4)
    yield from titled(title, path)
    longest = sorted(found.stretches, key=lambda part: -part.seconds)[:_MOST_STRETCHES]
    parts = sorted(longest, key=lambda part: part.start)
    stretches = rows_text(STRETCH_COLUMNS, parts, width=width, indent=4)
    yield from titled("  Its longest stretches, in order", stretches)


def _merged(streams: Sequence[StreamUse]) -> list[StreamUse]:
    """Return streams; those that neither compute nor communicate are added up by rank."""
    merged = []
    for rank in sorted({use.rank for use in streams}):
        mine = [use for use in streams if use.rank == rank]
        rest = [use for use in mine if not use.stream.startswith(_MAIN_STREAMS)]
        merged += [use for use in mine if use.stream.startswith(_MAIN_STREAMS)]
        if rest:
            busy = {
                name: sum(use.busy.get(name, 0.0) for use in rest)
                for name in CATEGORIES
                if any(name in use.busy for use in rest)
            }
            idle = min(use.idle for use in rest)
            name = f"{len(rest)} others" if len(rest) > 1 else rest[0].stream
            merged.append(StreamUse(rank=rank, stream=name, busy=busy, waiting=0.0, idle=idle))
    return merged


def _stream_columns(uses: Sequence[StreamUse], amount: Quantity) -> list[Column[StreamUse]]:
    def busy(category: Category) -> Column[StreamUse]:
        return Column(_short(category), lambda use: use.busy.get(category, 0.0), amount)

    return [
        Column("Rank", lambda use: use.rank, NUMBER),
        Column("Stream", lambda use: use.stream),
        *(busy(each) for each in CATEGORIES if any(each in use.busy for use in uses)),
        Column("Waiting", lambda use: use.waiting, amount),
        Column("Idle", lambda use: use.idle, amount),
    ]


def _short(category: Category) -> str:
    short = {Category.EMBEDDING_FORWARD: "Emb. fwd", Category.EMBEDDING_BACKWARD: "Emb. bwd"}
    return short.get(category, category.capitalize())


def _answers_text(replay: Replay, answers: Sequence[Answer], width: int) -> Iterator[Text]:
    lines = rows_text(answer_columns(replay.step_time), answers, width=width, indent=4)
    common = set.intersection(*(set(answer.assumptions) for answer in answers))
    for line, answer in zip(lines, answers, strict=True):
        yield line
        own = (text for text in answer.assumptions if text not in common)
        yield from (Text(f"      assumes {text}") for text in own)
    shared = (text for text in answers[0].assumptions if text in common)
    yield from (Text(f"    assumed: {text}") for text in shared)
