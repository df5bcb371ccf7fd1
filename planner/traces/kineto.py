"""Reading profiler (Kineto) traces: calls of every rank's host threads, and its GPU's work.

Times become seconds on one clock for all ranks; what cannot be replayed is refused, with all
reasons at once.

References
----------
Kineto, ``libkineto/src/output_json.cpp``: event categories and arguments.

"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from planner.show.format import count
from planner.traces.kineto_events import (
    CALLS,
    DEVICE,
    Activity,
    Call,
    EventReader,
    RecordedWait,
    Scope,
    is_graph_launch,
    is_number,
)
from planner.traces.profiler_cycles import Profiled, Round, cycle_rounds
from planner.traces.trace_files import Document, named_rank

_STEP = re.compile(r"ProfilerStep\s*#\s*([0-9]{1,18})")
_WORKER = re.compile(r"(.+)\.[0-9]+\.pt\.trace\.json(?:\.gz)?")
"""Name of a file of ``torch.profiler.tensorboard_trace_handler``, which begins with its worker: by
default the host and the process."""
_TICK: Seconds = 1e-9
"""Seconds of the shortest step, a nanosecond."""
MOST_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """The trace of one rank, with events in order of their start."""

    rank: int
    source: str
    world_size: int | None
    calls: Sequence[Call]
    scopes: Sequence[Scope]
    activities: Sequence[Activity]
    recorded_waits: Sequence[RecordedWait]
    steps: Sequence[tuple[int, Seconds, Seconds]]
    """Number, start and end on the host of every profiled step."""
    main_thread: int
    pid: int | None = None
    num_broken: int = 0
    """Number of events left out for lack of a time, a thread or a stream."""
    is_named: bool = True
    """Whether the trace or its file's name gives the rank; otherwise files are numbered."""
    cycle: int = 1
    """Number of the profiler's cycle, from 1 on."""
    num_cycles: int = 1
    """Number of the profiler's cycles (``schedule(repeat=...)``)."""
    left_out: tuple[str, ...] = ()
    """Files of the process's cycles that not every process has a file of."""

    @property
    def start(self) -> Seconds:
        """When the first event begins, in seconds."""
        return min(self.calls[0].start, *(start for _, start, _ in self.steps[:1]))

    @property
    def span(self) -> tuple[Seconds, Seconds]:
        """When the first event begins, and the last one ends."""
        spans = [(start, end) for _, start, end in self.steps]
        spans += [(call.start, call.end) for call in self.calls]
        spans += [(activity.start, activity.end) for activity in self.activities]
        return min(start for start, _ in spans), max(end for _, end in spans)

    @property
    def profiled(self) -> Profiled:
        """What this is a trace of."""
        return Profiled(steps=frozenset(number for number, _, _ in self.steps), span=self.span)


def rank_traces(
    found: Sequence[tuple[str, Document]], path: str | Path, cycle: int | None = None
) -> list[RankTrace]:
    """Return the traces of all ranks among the JSON documents of a path, by rank.

    Of a process that was profiled in several cycles (``_cycles``), the given one is returned, by
    default the last one: the job is warmest then.

    Raises
    ------
    InputError
        Something is missing, damaged, or not what can be replayed.

    """
    documents = [(name, document) for name, document in found if "nodes" not in document]
    traces, problems = _readable(documents)
    if not problems:
        processes = _cycles(traces)
        problems += _overlapping(processes)
    if not problems and traces:
        cycles = cycle_rounds([[each.profiled for each in own] for own in processes])
        problems += _lacking_cycle(processes, cycles, cycle)
        traces = traces if problems else list(_cycle_traces(processes, cycles, cycle))
    problems += _contradictory(traces) if not problems else []
    if problems or not traces:
        nothing = Problem(message="no profiler traces are in it, only execution traces")
        raise InputError(str(path), problems or [nothing])
    first = min(min(trace.start, trace.activities[0].start) for trace in traces)
    return sorted((_shifted(trace, -first) for trace in traces), key=lambda trace: trace.rank)


def _readable(
    documents: Sequence[tuple[str, Document]],
) -> tuple[list[RankTrace], list[Problem]]:
    """Return the traces that can be replayed, and the problems of the others."""
    problems: list[Problem] = []
    traces: list[RankTrace] = []
    epoch = min((_base(d) + _earliest(d) for _, d in documents), default=0.0)
    for index, (name, document) in enumerate(documents):
        refusal = _refusal(name, document)
        trace = None if refusal is not None else _rank_trace(name, document, index, epoch)
        if trace is None:
            message = f"`{name}` has no calls with times, or no kernels with times and streams"
            problems.append(refusal or Problem(message=message))
        else:
            traces.append(trace)
    return traces, problems


def _cycles(traces: Sequence[RankTrace]) -> list[list[RankTrace]]:
    """Return the traces of every process, in the order of time.

    Traces of one process that do not overlap are its profiler's cycles. A process is known by its
    number, by the host or worker in its files' names (as ``tensorboard_trace_handler`` writes
    them), and by its rank where that is known. Without such names, overlapping traces of one number
    are of processes of several hosts; with them, they stay together (``_overlapping``).
    """
    by_process: dict[object, list[int]] = defaultdict(list)
    for number, trace in enumerate(traces):
        worker = _WORKER.fullmatch(Path(trace.source).name)
        rank = trace.rank if trace.is_named else None
        process = (rank, worker and worker[1], trace.pid) if trace.pid is not None else number
        by_process[process].append(number)
    found: list[list[int]] = []
    for told, group in by_process.items():
        spans = {number: traces[number].span for number in group} if len(group) > 1 else {}
        in_time = sorted(group, key=spans.__getitem__) if spans else group
        apart = all(spans[one][1] <= spans[other][0] for one, other in pairwise(in_time))
        is_one = isinstance(told, tuple) and told[1] is not None
        found += [in_time] if apart or is_one else [[number] for number in group]
    return [[traces[number] for number in numbers] for numbers in sorted(found, key=min)]


def _overlapping(processes: Sequence[Sequence[RankTrace]]) -> Iterator[Problem]:
    """Yield a problem for traces of one process that overlap, which cycles cannot."""
    for cycles in processes:
        for one, other in pairwise(cycles):
            if other.span[0] < one.span[1]:
                message = f"`{one.source}` and `{other.source}` are of one process, at one time"
                yield Problem(message=message, hint="give one of them")


def _cycle_traces(
    processes: Sequence[Sequence[RankTrace]], cycles: Sequence[Round], cycle: int | None
) -> Iterator[RankTrace]:
    """Yield the traces of one cycle; ranks that nothing gives are numbered in order."""
    common = _in_common(processes, cycles)
    number = cycle or common[-1]
    of_some = [each for n, each in enumerate(cycles, 1) if n not in common]
    for index, traces in enumerate(processes):
        trace = traces[cycles[number - 1][index]]
        yield replace(
            trace,
            rank=trace.rank if trace.is_named else index,
            cycle=number,
            num_cycles=len(cycles),
            left_out=tuple(traces[each[index]].source for each in of_some if index in each),
        )


def _in_common(processes: Sequence[object], cycles: Sequence[Round]) -> list[int]:
    """Return the numbers of the cycles that all processes have, from 1 on."""
    return [n for n, each in enumerate(cycles, 1) if len(each) == len(processes)]


def _lacking_cycle(
    processes: Sequence[object], cycles: Sequence[Round], cycle: int | None
) -> Iterator[Problem]:
    """Yield a problem if the cycle asked for, or any cycle of all processes, is missing."""
    common = _in_common(processes, cycles)
    if not common:
        message = "the files are of different cycles of the profiler: no two of all ranks overlap"
        yield Problem(message=message, hint="give every rank's file of the same cycle")
    elif cycle is not None and cycle not in common:
        there = f"the ranks have {count(len(common), 'cycle')} in common"
        shown = listed(common[:MOST_LISTED], len(common))
        yield Problem(message=f"there is no cycle {cycle}: {there}", hint=f"--cycle has {shown}")


def _base(document: Document) -> float:
    """Return where a file's clock starts, in microseconds."""
    base = document.get("baseTimeNanoseconds")
    return base / 1e3 if is_number(base) else 0.0


def _earliest(document: Document) -> float:
    """Return the earliest time stamp, in microseconds; smaller numbers keep their fractions."""
    events = document.get("traceEvents")
    stamps = (
        (e.get("ts") for e in events if isinstance(e, dict)) if isinstance(events, list) else ()
    )
    return min((float(ts) for ts in stamps if is_number(ts) and ts > 0), default=0.0)


def _refusal(name: str, document: Document) -> Problem | None:
    """Return why a file cannot be replayed; None: it can."""
    events = document.get("traceEvents")
    if not isinstance(events, list):
        hint = "export it with `torch.profiler.profile(...).export_chrome_trace`"
        return Problem(message=f"`{name}` is not a profiler trace: no `traceEvents`", hint=hint)
    counts: dict[str, int] = defaultdict(int)
    callers: set[object] = set()
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X":
            counts[str(event.get("cat"))] += 1
            callers |= {str(event.get("pid"))} if event.get("cat") in CALLS else set()
    if len(callers) > 1:
        hint = "give one file per rank, as `planner simulate PLAN --trace DIR` writes"
        return Problem(message=f"`{name}` has {len(callers)} processes in one file", hint=hint)
    if hidden := _hidden_graphs(events):
        message = f"`{name}` launches CUDA graphs, {hidden} of them without a record of its kernels"
        return Problem(message=message, hint="profile once without CUDA graphs")
    if not sum(counts.values()):
        return Problem(message=f"`{name}` has no events", hint="profile at least one whole step")
    calls = sum(counts[kind] for kind in CALLS)
    if not calls or not sum(counts[kind] for kind in DEVICE):
        what = "no calls of the CUDA runtime" if not calls else "nothing that ran on a GPU"
        hint = "profile with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`"
        return Problem(message=f"`{name}` records {what}", hint=hint)
    return None


def _hidden_graphs(events: Sequence[object]) -> int:
    """Return how often CUDA graphs are launched whose kernels are not recorded."""
    launches: list[object] = []
    ran: set[object] = set()
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X":
            args = event.get("args")
            number = args.get("correlation") if isinstance(args, dict) else None
            if str(event.get("cat")) in DEVICE and is_number(number):
                ran.add(number)
            elif is_graph_launch(str(event.get("name"))):
                launches.append(number if is_number(number) else None)
    return sum(number not in ran for number in launches)


def _contradictory(traces: Sequence[RankTrace]) -> Iterator[Problem]:
    """Yield a problem for ranks that are there twice, or not in the job."""
    ranks = [trace.rank for trace in traces]
    double = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if double:
        names = [trace.source for trace in traces if trace.rank == double[0]]
        files = ", ".join(f"`{name}`" for name in names[:3])
        message = f"rank {double[0]} is there {len(names)} times: {files}"
        yield Problem(message=message, hint="give the traces of one job only")
    sizes = {trace.world_size for trace in traces if trace.world_size}
    if len(sizes) > 1:
        yield Problem(message=f"the traces are of jobs of different sizes: {sorted(sizes)} ranks")
    size = max(sizes, default=max(ranks, default=-1) + 1)
    outside = sorted(rank for rank in set(ranks) if not 0 <= rank < size)
    if outside:
        yield Problem(message=f"there is no rank {outside[0]} in a job of {count(size, 'rank')}")


def listed(some: Sequence[object], count: int) -> str:
    """Return the first ``count`` things as text, and how many more there are."""
    shown = ", ".join(map(str, some))
    return f"{shown}, and {count - len(some)} more" if count > len(some) else shown


def _rank_trace(name: str, document: Document, index: int, epoch: float) -> RankTrace | None:
    """Return the trace of one rank; None: it has no calls or no activities."""
    info = document.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, size = info.get("rank"), info.get("world_size")
    named = named_rank(name)
    read = EventReader(offset=_base(document) - epoch)
    for event in document["traceEvents"]:
        read.event(event)
    if not read.calls or not read.activities:
        return None
    calls, scopes = sorted(read.calls, key=_by_start), sorted(read.scopes, key=_by_start)
    activities = _on_host_clock(read.activities, calls)
    main = _main_thread(scopes, calls)
    return RankTrace(
        rank=int(rank) if is_number(rank) else index if named is None else named,
        is_named=is_number(rank) or named is not None,
        source=name,
        world_size=int(size) if is_number(size) and size >= 1 else None,
        calls=_with_scopes(calls, scopes),
        scopes=scopes,
        activities=sorted(activities, key=_by_start),
        recorded_waits=read.waits,
        steps=_steps(scopes, calls, main),
        main_thread=main,
        pid=read.pid,
        num_broken=read.num_broken,
    )


def _by_start(event: Call | Scope | Activity) -> tuple[float, float]:
    return event.start, -event.end


def _on_host_clock(activities: Sequence[Activity], calls: Sequence[Call]) -> list[Activity]:
    """Return activities with the GPU's clock shifted so that nothing starts before its launch.

    Profilers convert GPU timestamps to host time with an error of tens of microseconds, which
    differs from rank to rank.
    """
    launched = {call.correlation: call.start for call in calls}
    early = max(
        (launched[a.correlation] - a.start for a in activities if a.correlation in launched),
        default=0.0,
    )
    shift = max(0.0, early)
    return [replace(a, start=a.start + shift, end=a.end + shift) for a in activities]


def _main_thread(scopes: Sequence[Scope], calls: Sequence[Call]) -> int:
    """Return the thread that marks steps, or else the one with most calls."""
    for scope in scopes:
        if _STEP.match(scope.name):
            return scope.thread
    threads = [call.thread for call in calls]
    return max(sorted(set(threads)), key=threads.count)


def _steps(
    scopes: Sequence[Scope], calls: Sequence[Call], main: int
) -> list[tuple[int, Seconds, Seconds]]:
    """Return (number, start, end) of the profiler's steps; without any, all is one step."""
    marked = [
        (int(match[1]), scope.start, scope.end)
        for scope in scopes
        if scope.thread == main and scope.end > scope.start and (match := _STEP.match(scope.name))
    ]
    start = calls[0].start
    return marked or [(0, start, max(start + _TICK, *(call.end for call in calls)))]


def _with_scopes(calls: Sequence[Call], scopes: Sequence[Scope]) -> list[Call]:
    """Return calls with the operators that enclose each; both are sorted by start."""
    stacks: dict[int, list[Scope]] = defaultdict(list)
    waiting = iter(scopes)
    upcoming = next(waiting, None)
    result = []
    for call in calls:
        while upcoming is not None and upcoming.start <= call.start:
            stack = stacks[upcoming.thread]
            _leave(stack, upcoming.start)
            stack.append(upcoming)
            upcoming = next(waiting, None)
        stack = stacks[call.thread]
        _leave(stack, call.start)
        result.append(replace(call, scopes=tuple(scope.name for scope in stack)))
    return result


def _leave(stack: list[Scope], now: Seconds) -> None:
    """Remove the operators that have ended from a stack."""
    while stack and stack[-1].end <= now:
        stack.pop()


def _shifted(trace: RankTrace, by: Seconds) -> RankTrace:
    """Return the trace with times later by ``by`` seconds."""
    return replace(
        trace,
        calls=[replace(c, start=c.start + by, end=c.end + by) for c in trace.calls],
        scopes=[replace(s, start=s.start + by, end=s.end + by) for s in trace.scopes],
        activities=[replace(a, start=a.start + by, end=a.end + by) for a in trace.activities],
        steps=[(number, start + by, end + by) for number, start, end in trace.steps],
    )
