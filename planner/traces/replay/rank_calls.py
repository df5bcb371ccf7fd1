"""The events of one rank's trace in order; its threads, streams and launches."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from costmodel.base.units import Seconds
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Activity, Call, is_collective, is_graph_launch


@dataclass(frozen=True, slots=True)
class RangeMark:
    """A boundary of a step."""

    at: Seconds
    number: int
    begins: bool


def in_order(trace: RankTrace) -> list[Call | RangeMark]:
    """Return calls and step boundaries by time; a step ends before the next one begins."""
    events: list[tuple[Seconds, int, Call | RangeMark]] = [(c.start, 2, c) for c in trace.calls]
    for number, start, end in trace.steps:
        events += [
            (start, 1, RangeMark(start, number, begins=True)),
            (end, 0, RangeMark(end, number, begins=False)),
        ]
    return [event for _, _, event in sorted(events, key=lambda each: each[:2])]


def thread_names(trace: RankTrace) -> Mapping[int, str]:
    """Return the names of a rank's host threads; the busiest one besides main is autograd's."""
    count: dict[int, int] = defaultdict(int)
    for call in trace.calls:
        count[call.thread] += 1
    names = {trace.main_thread: "main"}
    others = sorted((t for t in count if t not in names), key=lambda t: (-count[t], t))
    return names | {t: f"autograd {n}" if n else "autograd" for n, t in enumerate(others)}


def next_on_stream(activities: Sequence[Activity]) -> list[Activity | None]:
    """Return the activity after each one on its stream; None: it is the last."""
    found: list[Activity | None] = [None] * len(activities)
    later: dict[int, Activity] = {}
    for index in range(len(activities) - 1, -1, -1):
        found[index] = later.get(activities[index].stream)
        later[activities[index].stream] = activities[index]
    return found


def launch_latency(trace: RankTrace, calls: Mapping[int, Call]) -> Seconds:
    """Return the typical seconds from a launch to its kernel on an idle stream.

    Collectives are left out, as most wait for what computes their input, and so are kernels of CUDA
    graphs, which wait for those before them.
    """
    ends: dict[int, Seconds] = {}
    idle = []
    for activity in trace.activities:
        call = calls.get(activity.correlation)
        idle_stream = call is not None and ends.get(activity.stream, 0.0) < call.start
        single = call is not None and not is_graph_launch(call.name)
        if call is not None and single and idle_stream and not is_collective(activity):
            idle.append(activity.start - call.start)
        ends[activity.stream] = activity.end
    return median(idle) if idle else 0.0
