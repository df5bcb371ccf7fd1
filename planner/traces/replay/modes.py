"""Three predictions of a profiled run from its own durations, beside the measured one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from costmodel.base.units import Seconds
from costmodel.step.graph import ExecutionGraph
from costmodel.step.simulator import simulate
from costmodel.step.timeline import DEVICE_KINDS, Timeline
from planner.traces.chrome_trace import StepSpan
from planner.traces.replay.algorithm1 import algorithm1
from planner.traces.replay.importing import ImportedRun
from planner.traces.replay.rank_graph import StepMark


class Mode(StrEnum):
    """Ways of timing a run."""

    GRAPH = "graph"
    """The simulator that times candidate plans, with the rule of draining kernels."""
    ALGORITHM1 = "algorithm1"
    """The paper's Algorithm 1, as printed."""
    BASELINE = "baseline"
    """The maximum over streams of summed kernel time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step of one rank, simulated and measured."""

    rank: int
    step: int
    measured: Seconds
    simulated: Seconds
    on_host: Seconds | None = None
    """The same between the host's marks, where the device may take longer."""

    @property
    def error(self) -> float:
        """Return the error of the simulated time, relative to the measured one."""
        return self.simulated / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A simulated run."""

    mode: Mode
    steps: Sequence[StepTime]
    measured_makespan: Seconds
    simulated_makespan: Seconds
    timeline: Timeline | None = None
    """Timeline of the graph mode; None in others."""

    @property
    def step_time(self) -> Seconds:
        """Return the mean simulated step on its slowest rank, in seconds.

        Where devices fall behind their hosts, ranks do so in different steps: then it is that of
        the rank whose steps are longest in all.
        """
        hosts = _slowest(
            (each.step, each.simulated if each.on_host is None else each.on_host)
            for each in self.steps
        )
        by_rank: dict[int, list[Seconds]] = defaultdict(list)
        for each in self.steps:
            by_rank[each.rank].append(each.simulated)
        return max(hosts, *(sum(times) / len(times) for times in by_rank.values()))

    @property
    def measured_step_time(self) -> Seconds:
        """Return the mean measured step on its slowest rank, in seconds."""
        return _slowest((step.step, step.measured) for step in self.steps)

    @property
    def worst_error(self) -> float:
        """The largest relative error of any step, without its sign."""
        return max(abs(step.error) for step in self.steps)

    @property
    def mean_error(self) -> float:
        """The mean relative error of all steps, without signs."""
        return sum(abs(step.error) for step in self.steps) / len(self.steps)


def _timed(mark: StepMark, simulated: Seconds, on_host: Seconds | None = None) -> StepTime:
    """Return a step as measured, and as simulated."""
    return StepTime(
        rank=mark.rank,
        step=mark.step,
        measured=mark.measured,
        simulated=simulated,
        on_host=on_host,
    )


def _slowest(times: Iterable[tuple[int, Seconds]]) -> Seconds:
    """Return the mean over all steps of the slowest rank's time."""
    slowest: dict[int, Seconds] = defaultdict(float)
    for step, seconds in times:
        slowest[step] = max(slowest[step], seconds)
    return sum(slowest.values()) / len(slowest)


def replay(run: ImportedRun, mode: Mode = Mode.GRAPH) -> Replay:
    """Return a run with its steps on every rank timed."""
    if mode is Mode.GRAPH:
        return replay_graph(run, run.graph)
    return _algorithm1(run) if mode is Mode.ALGORITHM1 else _baseline(run)


def replay_graph(run: ImportedRun, graph: ExecutionGraph, now: Timeline | None = None) -> Replay:
    """Return a run timed by its graph, or by a changed one with the same nodes.

    A step is what repeats: the host's, or the device's where it falls further behind the host than
    in ``now``, the timeline of the run as it was. Without that, it is the host's.
    """
    timeline = simulate(graph, drain=True)
    times = _step_times(run, timeline, timeline if now is None else now)
    return Replay(
        mode=Mode.GRAPH,
        steps=[
            _timed(mark, seconds, on_host=timeline.ends[mark.end] - timeline.ends[mark.begin])
            for mark, seconds in zip(run.marks, times, strict=True)
        ],
        measured_makespan=run.makespan,
        simulated_makespan=max(timeline.ends),
        timeline=timeline,
    )


def _step_times(run: ImportedRun, timeline: Timeline, now: Timeline) -> list[Seconds]:
    """Return the length of every rank's steps, in the order of its marks.

    A step ends with the host's mark, or later: when its last kernel is as far behind the mark as it
    is in ``now``. It begins with the host's mark, or when the step before it ends.
    """
    lasts, usual = _last_kernels(timeline), _last_kernels(now)
    finished: dict[int, Seconds] = {}
    times = []
    for mark in run.marks:
        begin, end = timeline.ends[mark.begin], timeline.ends[mark.end]
        step = mark.rank, timeline.graph.nodes[mark.end].step
        if step in lasts:
            end = max(end, lasts[step] - max(0.0, usual[step] - now.ends[mark.end]))
        begin = max(begin, finished.get(mark.rank, begin))
        finished[mark.rank] = max(begin, end)
        times.append(finished[mark.rank] - begin)
    return times


def _last_kernels(timeline: Timeline) -> dict[tuple[int, int], Seconds]:
    """Return when the last kernel ends that a rank's host launches in a step, by both."""
    lasts: dict[tuple[int, int], Seconds] = defaultdict(float)
    for node, end in zip(timeline.graph.nodes, timeline.ends, strict=True):
        if node.kind in DEVICE_KINDS:
            lasts[node.rank, node.step] = max(lasts[node.rank, node.step], end)
    return lasts


def step_spans(run: ImportedRun, timeline: Timeline) -> list[StepSpan]:
    """Return when every rank's steps begin and end in a replay, with the profiler's numbers."""
    ends = timeline.ends
    return [StepSpan(mark.rank, mark.step, ends[mark.begin], ends[mark.end]) for mark in run.marks]


def _algorithm1(run: ImportedRun) -> Replay:
    """Return the run as the paper's Algorithm 1 times it."""
    times = algorithm1([rank.operators for rank in run.operators])
    place = {rank: index for index, rank in enumerate(run.job.recorded)}
    steps = []
    for mark in run.marks:
        index = place[mark.rank]
        ends, (begin, end) = times[index].ends, run.operators[index].steps[mark.step]
        steps.append(_timed(mark, ends[end] - ends[begin]))
    return Replay(
        mode=Mode.ALGORITHM1,
        steps=steps,
        measured_makespan=run.makespan,
        simulated_makespan=max(rank.end for rank in times),
    )


def _baseline(run: ImportedRun) -> Replay:
    """Return the run as if a step took what its busiest stream takes."""
    by_step: dict[tuple[int, int], dict[str, Seconds]] = defaultdict(lambda: defaultdict(float))
    in_all: dict[tuple[int, str], Seconds] = defaultdict(float)
    for node in run.graph.nodes:
        if node.kind in DEVICE_KINDS:
            by_step[node.rank, node.step][node.resource] += node.seconds
            in_all[node.rank, node.resource] += node.seconds
    index = {step: i for i, step in enumerate(sorted({mark.step for mark in run.marks}))}
    return Replay(
        mode=Mode.BASELINE,
        steps=[
            _timed(mark, max(by_step[mark.rank, index[mark.step]].values(), default=0.0))
            for mark in run.marks
        ],
        measured_makespan=run.makespan,
        simulated_makespan=max(in_all.values(), default=0.0),
    )
