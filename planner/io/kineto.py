"""Reading profiler (Kineto) traces: what every rank's host threads called and its GPU ran.

Times become seconds on one clock for all ranks; what cannot be replayed is refused with the
reason, all reasons at once.

References
----------
Kineto, ``libkineto/src/output_json.cpp``: event categories and arguments.

"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from costmodel.errors import InputError, Problem
from costmodel.units import US, Bytes, Seconds
from planner.io.trace_files import Document, read_documents

_DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_CALLS = ("cuda_runtime", "cuda_driver")
_SCOPES = ("cpu_op", "user_annotation")
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")
_NUMBERED = re.compile(r"(?:rank|worker)[_-]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Something the GPU ran."""

    name: str
    kind: str
    """kernel, memcpy or memset."""
    stream: int
    start: Seconds
    end: Seconds
    correlation: int
    """The call that launched it has the same number."""
    num_bytes: Bytes = 0.0
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """An operator or annotation on a host thread."""

    name: str
    thread: int
    start: Seconds
    end: Seconds
    annotation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the CUDA runtime, and the operators it was made in."""

    name: str
    thread: int
    start: Seconds
    end: Seconds
    correlation: int
    scopes: tuple[str, ...] = ()
    """Outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWait:
    """A stream that waits for an event of another, as newer profilers record it."""

    correlation: int
    """Of the call that made it wait."""
    waiting_stream: int
    recorded_on: int
    """Stream of the event."""
    recorded_at: int
    """Correlation of the call that recorded the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """The trace of one rank, events in the order of their start."""

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

    @property
    def start(self) -> Seconds:
        """When the first event begins."""
        return min(self.calls[0].start, *(start for _, start, _ in self.steps[:1]))


def read_kineto(path: str | Path) -> list[RankTrace]:
    """Return the traces of all ranks of a job, by rank.

    Raises
    ------
    InputError
        Something is missing, damaged, or not what can be replayed.

    """
    return rank_traces(read_documents(path), path)


def rank_traces(found: Sequence[tuple[str, Document]], path: str | Path) -> list[RankTrace]:
    """Return the traces that are among the JSON documents of a path; see `read_kineto`."""
    documents = [(name, document) for name, document in found if "nodes" not in document]
    problems: list[Problem] = []
    traces: list[RankTrace] = []
    epoch = min((_base(d) + _first(d) for _, d in documents), default=0.0)
    for index, (name, document) in enumerate(documents):
        refusal = _refusal(name, document)
        if refusal is not None:
            problems.append(refusal)
            continue
        traces.append(_rank_trace(name, document, index, epoch))
    problems += _missing(traces) if not problems else []
    if problems or not traces:
        nothing = Problem(message="no profiler traces are in it, only execution traces")
        raise InputError(str(path), problems or [nothing])
    first = min(min(trace.start, trace.activities[0].start) for trace in traces)
    return sorted((_shifted(trace, -first) for trace in traces), key=lambda trace: trace.rank)


def _base(document: Document) -> float:
    """Return where a file's clock starts, in microseconds."""
    return float(document.get("baseTimeNanoseconds", 0)) / 1e3


def _first(document: Document) -> float:
    """Return the earliest time stamp: small numbers keep fractions of microseconds."""
    events = document.get("traceEvents")
    stamps = (
        (e.get("ts") for e in events if isinstance(e, dict)) if isinstance(events, list) else ()
    )
    return min((float(ts) for ts in stamps if isinstance(ts, int | float) and ts > 0), default=0.0)


def _refusal(name: str, document: Document) -> Problem | None:
    """Say why a file cannot be replayed, if so."""
    events = document.get("traceEvents")
    if not isinstance(events, list):
        hint = "export it with `torch.profiler.profile(...).export_chrome_trace`"
        return Problem(message=f"`{name}` is not a profiler trace: no `traceEvents`", hint=hint)
    counts: dict[str, int] = defaultdict(int)
    graphs = 0
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X":
            counts[str(event.get("cat"))] += 1
            graphs += "GraphLaunch" in str(event.get("name"))
    if graphs:
        message = (
            f"`{name}` launches {graphs} CUDA graphs; which kernel waits for which is not recorded"
        )
        return Problem(message=message, hint="profile once without CUDA graphs")
    if not sum(counts.values()):
        return Problem(message=f"`{name}` has no events", hint="profile at least one whole step")
    calls = sum(counts[kind] for kind in _CALLS)
    if not calls or not sum(counts[kind] for kind in _DEVICE):
        what = "no calls of the CUDA runtime" if not calls else "nothing that ran on a GPU"
        hint = "profile with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`"
        return Problem(message=f"`{name}` records {what}", hint=hint)
    return None


def _missing(traces: Sequence[RankTrace]) -> Iterator[Problem]:
    """Say which ranks there should be, and are not or twice."""
    ranks = [trace.rank for trace in traces]
    for rank in sorted(set(ranks)):
        names = [trace.source for trace in traces if trace.rank == rank]
        if len(names) > 1:
            files = ", ".join(f"`{name}`" for name in names)
            yield Problem(message=f"rank {rank} is there {len(names)} times: {files}")
    sizes = {trace.world_size for trace in traces if trace.world_size}
    if len(sizes) > 1:
        yield Problem(message=f"the traces are of jobs of different sizes: {sorted(sizes)} ranks")
    size = max(sizes, default=max(ranks, default=-1) + 1)
    missing = sorted(set(range(size)) - set(ranks))
    if missing:
        message = f"traces of {len(set(ranks))} of {size} ranks; missing: {_listed(missing)}"
        hint = "a rank waits for the others, so the traces of all of them are needed"
        yield Problem(message=message, hint=hint)
    alone = [trace for trace in traces if size == 1 and any(map(is_collective, trace.activities))]
    if alone:
        message = f"`{alone[0].source}` runs collectives, and no other rank's trace is there"
        yield Problem(message=message, hint="give the folder with the traces of all ranks")


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, and {len(numbers) - 8} more" if len(numbers) > 8 else shown


def is_collective(activity: Activity) -> bool:
    """Whether this is a kernel of a communication library."""
    return activity.kind == "kernel" and activity.name.lower().startswith(("nccl", "rccl"))


def _rank_trace(name: str, document: Document, index: int, epoch: float) -> RankTrace:
    info = document.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    numbered = _NUMBERED.search(Path(name).name)
    rank = int(info["rank"]) if "rank" in info else int(numbered[1]) if numbered else index
    read = _Reader(offset=_base(document) - epoch)
    for event in document["traceEvents"]:
        read.event(event)
    calls, scopes = sorted(read.calls, key=_by_start), sorted(read.scopes, key=_by_start)
    activities = _on_host_clock(read.activities, calls)
    main = _main_thread(scopes, calls)
    return RankTrace(
        rank=rank,
        source=name,
        world_size=int(info["world_size"]) if "world_size" in info else None,
        calls=_with_scopes(calls, scopes),
        scopes=scopes,
        activities=sorted(activities, key=_by_start),
        recorded_waits=read.waits,
        steps=_steps(scopes, calls, main),
        main_thread=main,
        pid=read.pid,
    )


class _Reader:
    """Collects the events of one file."""

    def __init__(self, offset: float) -> None:
        self.offset = offset
        self.calls: list[Call] = []
        self.scopes: list[Scope] = []
        self.activities: list[Activity] = []
        self.waits: list[RecordedWait] = []
        self.pid: int | None = None

    def event(self, event: Any) -> None:  # noqa: ANN401 - from a file
        """Take one event; those of other kinds or shapes are not needed."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        category, args = event.get("cat"), event.get("args")
        args = args if isinstance(args, dict) else {}
        try:
            start = (float(event["ts"]) + self.offset) * US
            end = start + float(event.get("dur", 0)) * US
            name = str(event["name"])
            if category in _DEVICE:
                self._activity(name, str(category), start, end, args)
            elif category in _CALLS:
                self._call(name, event, start, end, int(args.get("correlation", -1)))
            elif category in _SCOPES:
                self.scopes.append(
                    Scope(
                        name=name,
                        thread=int(event["tid"]),
                        start=start,
                        end=end,
                        annotation=category == "user_annotation",
                    )
                )
            elif category == "cuda_sync" and "wait_on_cuda_event_record_corr_id" in args:
                self._wait(args)
        except (KeyError, TypeError, ValueError):
            return

    def _call(
        self, name: str, event: Mapping[str, Any], start: float, end: float, correlation: int
    ) -> None:
        thread = int(event["tid"])
        self.pid = event["pid"] if isinstance(event.get("pid"), int) else self.pid
        self.calls.append(
            Call(name=name, thread=thread, start=start, end=end, correlation=correlation)
        )

    def _wait(self, args: Mapping[str, Any]) -> None:
        self.waits.append(
            RecordedWait(
                correlation=int(args.get("correlation", -1)),
                waiting_stream=int(args.get("stream", -1)),
                recorded_on=int(args.get("wait_on_stream", -1)),
                recorded_at=int(args["wait_on_cuda_event_record_corr_id"]),
            )
        )

    def _activity(
        self, name: str, category: str, start: float, end: float, args: dict[str, Any]
    ) -> None:
        self.activities.append(
            Activity(
                name=name,
                kind=_DEVICE[category],
                stream=int(args["stream"]),
                start=start,
                end=end,
                correlation=int(args.get("correlation", -1)),
                num_bytes=float(args.get("bytes", 0)),
                args=args,
            )
        )


def _by_start(event: Call | Scope | Activity) -> tuple[float, float]:
    return event.start, -event.end


def _on_host_clock(activities: Sequence[Activity], calls: Sequence[Call]) -> list[Activity]:
    """Shift the GPU's clock so that nothing starts before it is launched.

    Profilers convert GPU timestamps to host time with an error of tens of microseconds, that
    shows as kernels that start before their launch; it differs from rank to rank.
    """
    launched = {call.correlation: call.start for call in calls}
    early = max(
        (launched[a.correlation] - a.start for a in activities if a.correlation in launched),
        default=0.0,
    )
    shift = max(0.0, early)
    return [replace(a, start=a.start + shift, end=a.end + shift) for a in activities]


def _main_thread(scopes: Sequence[Scope], calls: Sequence[Call]) -> int:
    for scope in scopes:
        if _STEP.match(scope.name):
            return scope.thread
    threads = [call.thread for call in calls]
    return max(sorted(set(threads)), key=threads.count)


def _steps(
    scopes: Sequence[Scope], calls: Sequence[Call], main: int
) -> list[tuple[int, Seconds, Seconds]]:
    """Return the profiler's steps; without any, all of the trace is one step."""
    marked = [
        (int(match[1]), scope.start, scope.end)
        for scope in scopes
        if scope.thread == main and (match := _STEP.match(scope.name))
    ]
    return marked or [(0, calls[0].start, max(call.end for call in calls))]


def _with_scopes(calls: Sequence[Call], scopes: Sequence[Scope]) -> list[Call]:
    """Add to every call the operators that enclose it; both are sorted by start."""
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
    while stack and stack[-1].end <= now:
        stack.pop()


def _shifted(trace: RankTrace, by: Seconds) -> RankTrace:
    """Return the trace with another origin of time."""
    return replace(
        trace,
        calls=[replace(c, start=c.start + by, end=c.end + by) for c in trace.calls],
        scopes=[replace(s, start=s.start + by, end=s.end + by) for s in trace.scopes],
        activities=[replace(a, start=a.start + by, end=a.end + by) for a in trace.activities],
        steps=[(number, start + by, end + by) for number, start, end in trace.steps],
    )
