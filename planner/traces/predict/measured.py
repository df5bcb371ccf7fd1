"""Measured steps from the profiler traces beside execution traces, to compare predictions with."""

import re
from collections.abc import Mapping, Sequence
from statistics import median

from costmodel.base.units import Seconds
from planner.traces.kineto_events import EventReader
from planner.traces.trace_files import Document, numbered_rank

_STEP = re.compile(r"ProfilerStep\s*#\s*\d+")


def measured_steps(
    found: Sequence[tuple[str, Document]], pids: Mapping[int, int | None]
) -> Mapping[int, Seconds]:
    """Return the median measured step of every rank that has a profiler trace, in seconds.

    A trace belongs to the rank that it gives, that runs in the same process, or that its name gives
    (``numbered_rank``). Without marks of steps, all that was recorded is one step, until the last
    kernel ends.
    """
    steps: dict[int, Seconds] = {}
    ranks = {pid: rank for rank, pid in pids.items() if pid is not None}
    for name, document in found:
        events = document.get("traceEvents")
        if not isinstance(events, list):
            continue
        reader = EventReader(offset=0.0)
        for event in events:
            reader.event(event)
        rank = _rank(name, document, ranks)
        seconds = _step_time(reader)
        if rank in pids and seconds is not None:
            steps[rank] = seconds
    return steps


def _rank(name: str, document: Document, ranks: Mapping[int, int]) -> int:
    """Return the rank that a profiler trace states or that its processes are of; -1: unknown."""
    info = document.get("distributedInfo")
    stated = info.get("rank") if isinstance(info, dict) else None
    if isinstance(stated, int):
        return stated
    events = document["traceEvents"]
    pids = {e.get("pid") for e in events if isinstance(e, dict) and e.get("cat") == "cpu_op"}
    known = [rank for pid, rank in ranks.items() if pid in pids]
    number = numbered_rank(name)
    return known[0] if known else -1 if number is None else number


def _step_time(reader: EventReader) -> Seconds | None:
    marked = [s.end - s.start for s in reader.scopes if _STEP.match(s.name) and s.end > s.start]
    if marked:
        return median(marked)
    operators = [scope for scope in reader.scopes if not scope.annotation]
    if not operators:
        return None
    ends = [*(each.end for each in operators), *(each.end for each in reader.activities)]
    return max(ends) - min(each.start for each in operators)
