"""Three predictions of a profiled run from its own durations, beside what was measured."""

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


class Mode(StrEnum):
    """How a run is timed."""

    GRAPH = "graph"
    """The simulator that times candidate plans, with the rule of draining kernels."""
    ALGORITHM1 = "algorithm1"
    """The paper's Algorithm 1, as printed."""
    BASELINE = "baseline"
    """The maximum over streams of summed kernel time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step of one rank."""

    rank: int
    step: int
    measured: Seconds
    simulated: Seconds

    @property
    def error(self) -> float:
        """How far off the simulated time is, relative to the measured one."""
        return self.simulated / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A run, simulated."""

    mode: Mode
    steps: Sequence[StepTime]
    measured_makespan: Seconds
    simulated_makespan: Seconds
    timeline: Timeline | None = None
    """Timeline of the graph mode."""

    @property
    def step_time(self) -> Seconds:
        """Simulated time of a step on its slowest rank, the mean of all steps."""
        return _slowest((step.step, step.simulated) for step in self.steps)

    @property
    def measured_step_time(self) -> Seconds:
        """The same of the measured times."""
        return _slowest((step.step, step.measured) for step in self.steps)

    @property
    def worst_error(self) -> float:
        """The largest relative error of any step, without its sign."""
        return max(abs(step.error) for step in self.steps)

    @property
    def mean_error(self) -> float:
        """The mean relative error of all steps, without signs."""
        return sum(abs(step.error) for step in self.steps) / len(self.steps)


def _slowest(times: Iterable[tuple[int, Seconds]]) -> Seconds:
    slowest: dict[int, Seconds] = defaultdict(float)
    for step, seconds in times:
        slowest[step] = max(slowest[step], seconds)
    return sum(slowest.values()) / len(slowest)


def replay(run: ImportedRun, mode: Mode = Mode.GRAPH) -> Replay:
    """Time a run's steps on every rank."""
    if mode is Mode.GRAPH:
        return replay_graph(run, run.graph)
    return _algorithm1(run) if mode is Mode.ALGORITHM1 else _baseline(run)


def replay_graph(run: ImportedRun, graph: ExecutionGraph) -> Replay:
    """Time a run's graph, or one that was changed but has the same nodes."""
    timeline = simulate(graph, drain=True)
    return Replay(
        mode=Mode.GRAPH,
        steps=[
            StepTime(
                rank=mark.rank,
                step=mark.step,
                measured=mark.measured,
                simulated=timeline.ends[mark.end] - timeline.ends[mark.begin],
            )
            for mark in run.marks
        ],
        measured_makespan=run.makespan,
        simulated_makespan=max(timeline.ends),
        timeline=timeline,
    )


def step_spans(run: ImportedRun, timeline: Timeline) -> list[StepSpan]:
    """Return when every rank's steps begin and end in a replay, under the profiler's numbers."""
    ends = timeline.ends
    return [StepSpan(mark.rank, mark.step, ends[mark.begin], ends[mark.end]) for mark in run.marks]


def _algorithm1(run: ImportedRun) -> Replay:
    times = algorithm1([rank.operators for rank in run.operators])
    steps = []
    for mark in run.marks:
        ends, (begin, end) = times[mark.rank].ends, run.operators[mark.rank].steps[mark.step]
        steps.append(
            StepTime(
                rank=mark.rank,
                step=mark.step,
                measured=mark.measured,
                simulated=ends[end] - ends[begin],
            )
        )
    return Replay(
        mode=Mode.ALGORITHM1,
        steps=steps,
        measured_makespan=run.makespan,
        simulated_makespan=max(rank.end for rank in times),
    )


def _baseline(run: ImportedRun) -> Replay:
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
            StepTime(
                rank=mark.rank,
                step=mark.step,
                measured=mark.measured,
                simulated=max(by_step[mark.rank, index[mark.step]].values(), default=0.0),
            )
            for mark in run.marks
        ],
        measured_makespan=run.makespan,
        simulated_makespan=max(in_all.values(), default=0.0),
    )
