"""A replay as text: simulated beside measured, where the time goes, and what if."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from costmodel.base.units import MS, US, Seconds
from planner.show.format import change, count, duration, durations, percent, printable
from planner.show.layout import Column, table, titled
from planner.traces.replay.breakdown import CATEGORIES, Breakdown, StreamUse, bound
from planner.traces.replay.classify import Category
from planner.traces.replay.modes import Replay, StepTime
from planner.traces.replay.replay_report import Answer, ReplayReport

_MOST_ROWS = 24
"""Steps and streams listed one by one."""
_MOST_STRETCHES = 10
_NAME_WIDTH = 36
"""Letters of a kernel's name."""
_MAIN_STREAMS = ("compute", "collectives")
_NAMES = {
    "graph": "the planner's simulator",
    "algorithm1": "the paper's Algorithm 1",
    "baseline": "the busiest stream's kernels",
}


def replay_text(report: ReplayReport, width: int) -> Iterator[Text]:
    """Yield the lines of a replay."""
    yield from map(Text, _headline(report))
    yield Text()
    yield from titled("  Step by step", table(_step_columns(report.replay), width=width))
    if report.breakdown is not None:
        yield from _breakdown_text(report.breakdown, width)
    if report.answers:
        yield Text()
        yield Text("  What if", style="bold")
        yield from map(Text, _answer_lines(report.replay, report.answers, width))


def _headline(report: ReplayReport) -> Iterator[str]:
    run, replay = report.run, report.replay
    steps = count(run.graph.num_steps, "step")
    yield f"{count(run.graph.world_size, 'rank')}, {steps} · timed by {_NAMES[replay.mode]}"
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


def _step_columns(replay: Replay) -> list[Column]:
    """Return every step, or where there are many those that are furthest off."""
    steps: Sequence[StepTime] = replay.steps
    if len(steps) > _MOST_ROWS:
        steps = sorted(steps, key=lambda step: -abs(step.error))[:_MOST_ROWS]
    steps = sorted(steps, key=lambda step: (step.step, step.rank))
    longest = max(max(step.measured, step.simulated) for step in steps)
    return [
        Column(header="Step", cells=[str(step.step) for step in steps], right=True),
        Column(header="Rank", cells=[str(step.rank) for step in steps], right=True),
        Column(
            header="Measured", cells=durations((s.measured for s in steps), longest), right=True
        ),
        Column(
            header="Simulated", cells=durations((s.simulated for s in steps), longest), right=True
        ),
        Column(header="Error", cells=[change(1 + step.error) for step in steps], right=True),
    ]


def _breakdown_text(breakdown: Breakdown, width: int) -> Iterator[Text]:
    merged = _merged(breakdown.streams)
    uses = merged[:_MOST_ROWS]
    unit, name = _unit(max(max([*use.busy.values(), use.waiting]) for use in uses))
    yield Text()
    lines = table(_stream_columns(uses, unit), width=width, gap=2)
    yield from titled(f"  Where the time goes, from the first event to the last, in {name}", lines)
    if len(merged) > _MOST_ROWS:
        yield Text("  and more: see --json")
    yield Text()
    yield from titled(
        f"  Communication in {name}, once all ranks have joined",
        table(_communication_columns(breakdown, unit), width=width),
    )
    yield Text()
    shares = ", ".join(f"{name} {percent(share)}" for name, share in breakdown.bounds.items())
    yield from titled(
        f"  Critical path of the last step, bound by {shares}",
        table(_path_columns(breakdown), width=width, indent=4),
    )
    yield Text()
    yield from titled(
        "  Its longest stretches, in order",
        table(_stretch_columns(breakdown), width=width, indent=4),
    )


def _unit(largest: Seconds) -> tuple[Seconds, str]:
    return (MS, "ms") if largest >= MS else (US, "us")


def _merged(streams: Sequence[StreamUse]) -> list[StreamUse]:
    """Return the streams with those that neither compute nor communicate added up, by rank."""
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


def _stream_columns(uses: Sequence[StreamUse], unit: Seconds) -> list[Column]:
    used = [name for name in CATEGORIES if any(name in use.busy for use in uses)]
    numbers = [
        *((_short(name), [use.busy.get(name, 0.0) for use in uses]) for name in used),
        ("Waiting", [use.waiting for use in uses]),
        ("Idle", [use.idle for use in uses]),
    ]
    return [
        Column(header="Rank", cells=[str(use.rank) for use in uses], right=True),
        Column(header="Stream", cells=[use.stream for use in uses]),
        *_number_columns(numbers, unit),
    ]


def _number_columns(
    numbers: Sequence[tuple[str, Sequence[Seconds]]], unit: Seconds
) -> Iterator[Column]:
    for header, values in numbers:
        cells = [f"{value / unit:,.2f}" if value else "" for value in values]
        yield Column(header=header, cells=cells, right=True)


def _short(category: Category) -> str:
    short = {Category.EMBEDDING_FORWARD: "Emb. fwd", Category.EMBEDDING_BACKWARD: "Emb. bwd"}
    return short.get(category, category.capitalize())


def _communication_columns(breakdown: Breakdown, unit: Seconds) -> list[Column]:
    rows = breakdown.communication[:_MOST_ROWS]
    columns = (
        ("Hidden", [row.hidden for row in rows]),
        ("Exposed", [row.exposed for row in rows]),
        ("Waiting for other ranks", [row.waiting for row in rows]),
    )
    ranks = [str(row.rank) for row in rows]
    return [Column(header="Rank", cells=ranks, right=True), *_number_columns(columns, unit)]


def _path_columns(breakdown: Breakdown) -> list[Column]:
    parts = breakdown.path
    return [
        Column(header="", cells=[part.category for part in parts]),
        Column(header="", cells=durations(part.seconds for part in parts), right=True),
        Column(
            header="",
            cells=[percent(part.seconds / breakdown.path_time) for part in parts],
            right=True,
        ),
        Column(
            header="",
            cells=["" if part.rank is None else f"rank {part.rank}" for part in parts],
        ),
        Column(header="", cells=[f"by {bound(part.category)}" for part in parts]),
    ]


def _stretch_columns(breakdown: Breakdown) -> list[Column]:
    longest = sorted(breakdown.stretches, key=lambda part: -part.seconds)[:_MOST_STRETCHES]
    parts = sorted(longest, key=lambda part: part.start)
    names = [printable(part.longest)[:_NAME_WIDTH] for part in parts]
    return [
        Column(header="At", cells=durations(part.start for part in parts), right=True),
        Column(header="Took", cells=durations(part.seconds for part in parts), right=True),
        Column(header="Rank", cells=[str(part.rank) for part in parts], right=True),
        Column(header="What", cells=[part.category for part in parts]),
        Column(header="Bound by", cells=[bound(part.category) for part in parts]),
        Column(header="Most of it in", cells=names),
    ]


def _answer_lines(replay: Replay, answers: Sequence[Answer], width: int) -> Iterator[str]:
    times = [answer.replay.step_time for answer in answers]
    lines = table(
        [
            Column(header="", cells=[answer.change for answer in answers]),
            Column(header="", cells=durations(times, replay.step_time), right=True),
            Column(
                header="", cells=[change(time / replay.step_time) for time in times], right=True
            ),
        ],
        width=width,
        indent=4,
    )
    common = set.intersection(*(set(answer.assumptions) for answer in answers))
    for line, answer in zip(lines, answers, strict=True):
        yield line
        yield from (f"      assumes {text}" for text in answer.assumptions if text not in common)
    shared = [text for text in answers[0].assumptions if text in common]
    yield from (f"    assumed: {text}" for text in shared)
