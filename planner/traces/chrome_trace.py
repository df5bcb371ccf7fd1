"""A timeline as a Chrome trace, in the words of PyTorch's profiler (Kineto).

One process per rank, one thread per host thread or stream; arrows from launches to kernels,
between streams that wait for each other, and from the last rank of a collective to the others.
Perfetto and chrome://tracing open it; categories and the names of collectives and copies are
those that tools for profiler traces look for. Slices of a thread nest or are apart to the
nanosecond, no arrow points back in time, and no thread has number 0, which is "none" to Perfetto:
it would put such slices on the thread whose number is the process's.

References
----------
Trace Event Format (Google, 2016): phases X, M, s, f. Kineto, ``output_json.cpp``: categories.
Perfetto (ec5d16b1), ``src/trace_processor/importers``: ``json/json_trace_tokenizer.cc``,
``json/json_trace_parser.cc``, ``common/slice_tracker.cc``, ``common/flow_tracker.cc``.

"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from costmodel.base.units import US, Seconds
from costmodel.step.graph import HOST_THREADS, Node, NodeKind, Resource, Role
from costmodel.step.timeline import Timeline
from planner.files.disk import write_text
from planner.files.json_text import dump_json

Event: TypeAlias = dict[str, Any]


class StepSpan(NamedTuple):
    """One step of one rank, as its host sees it."""

    rank: int
    number: int
    start: Seconds
    end: Seconds


_CATEGORIES: Mapping[NodeKind, str] = {
    NodeKind.HOST: "cpu_op",
    NodeKind.WAIT: "cuda_runtime",
    NodeKind.KERNEL: "kernel",
    NodeKind.COPY: "gpu_memcpy",
    NodeKind.COLLECTIVE: "kernel",
}
_PREFIXES: Mapping[NodeKind, str] = {
    NodeKind.WAIT: "cudaStreamSynchronize: ",
    NodeKind.COPY: "Memcpy HtoD: ",
    NodeKind.COLLECTIVE: "ncclDevKernel: ",
}
"""Beginnings of names by which tools recognise such nodes, as profilers write them."""
_KNOWN_NAMES = ("nccl", "Mem", "cuda")
"""Beginnings of names that came from a profiler."""
_THREADS: Mapping[str, int] = {
    Resource.MAIN: 1,
    Resource.AUTOGRAD: 2,
    Resource.COMPUTE: 7,
}
"""Thread numbers; Kineto shows PyTorch's default stream as 7."""
_STEPS = 3
"""Number of the thread of steps."""
_FIRST_OTHER_STREAM = 20


class _ShownPart(NamedTuple):
    """What a trace shows of a timeline: some ranks."""

    timeline: Timeline
    ranks: Sequence[int]
    nodes: Mapping[int, Node]
    """The ranks' nodes by their index in the graph, in order."""
    threads: Mapping[str, int]
    """Thread numbers by resource, the same for all ranks."""


def trace_events(
    timeline: Timeline, steps: Iterable[StepSpan] = (), ranks: Sequence[int] | None = None
) -> Iterator[Event]:
    """Yield the events of some ranks (None: of all) in all steps, with times in microseconds.

    Without ``steps``, steps are shown that begin and end for all ranks at once. Arrows from and to
    ranks that are not shown are left out.
    """
    graph = timeline.graph
    ranks = graph.ranks if ranks is None else ranks
    nodes = {index: graph.nodes[index] for index in graph.nodes_of(ranks)}
    part = _ShownPart(timeline, ranks, nodes, _thread_numbers(timeline))
    yield from _names(part)
    for step in tuple(steps) or _common_steps(part):
        if step.rank in ranks:
            yield _step(step)
    for index, node in nodes.items():
        yield _slice(part, index, node)
    yield from _launches(part)
    yield from _arrows(part)


def write_trace(
    timeline: Timeline,
    path: str | Path,
    steps: Iterable[StepSpan] = (),
    ranks: Sequence[int] | None = None,
) -> None:
    """Write a trace file of some ranks (None: of all), as a whole or not at all.

    ``-`` is standard output.
    """
    write_text(path, trace_text(timeline, steps, ranks))


def trace_text(
    timeline: Timeline, steps: Iterable[StepSpan] = (), ranks: Sequence[int] | None = None
) -> str:
    """Return the trace of some ranks (None: of all) as JSON, one event per line.

    As in Kineto's, ``distributedInfo`` has the rank, of several the first, and the job's size.
    """
    first = (timeline.graph.ranks if ranks is None else ranks)[0]
    size = timeline.graph.world_size
    head = dump_json({
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "distributedInfo": {"backend": "nccl", "rank": first, "world_size": size},
    })
    events = ",\n".join(map(dump_json, trace_events(timeline, steps, ranks)))
    return f'{head[:-1]}, "traceEvents": [\n{events}\n]}}\n'


def _thread_numbers(timeline: Timeline) -> Mapping[str, int]:
    others = [each for each in timeline.graph.resources if each not in _THREADS]
    return {**_THREADS, **{name: _FIRST_OTHER_STREAM + i for i, name in enumerate(others)}}


def _names(part: _ShownPart) -> Iterator[Event]:
    """Yield the events that name and order processes and threads."""
    used = {(node.rank, node.resource) for node in part.nodes.values()}
    for rank in part.ranks:
        yield _metadata("process_name", rank, _STEPS, {"name": f"rank {rank}"})
        yield _metadata("process_sort_index", rank, _STEPS, {"sort_index": rank})
        yield _metadata("thread_name", rank, _STEPS, {"name": "steps"})
        yield _metadata("thread_sort_index", rank, _STEPS, {"sort_index": 0})
    for rank, resource in sorted(used, key=lambda use: (use[0], part.threads[use[1]])):
        number = part.threads[resource]
        kind = "thread" if _is_host_thread(resource) else f"stream {number}"
        yield _metadata("thread_name", rank, number, {"name": f"{kind} {resource}"})
        yield _metadata("thread_sort_index", rank, number, {"sort_index": number})


def _is_host_thread(resource: str) -> bool:
    """Return whether a resource is a host thread; profiled runs have several of autograd."""
    return resource.partition(" ")[0] in HOST_THREADS


def _metadata(name: str, rank: int, thread: int, args: Mapping[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "ts": 0, "args": args}


def _common_steps(part: _ShownPart) -> Iterator[StepSpan]:
    starts = (0.0, *part.timeline.step_ends)
    for step, end in enumerate(part.timeline.step_ends):
        for rank in part.ranks:
            yield StepSpan(rank, step, starts[step], end)


def _event(
    category: str,
    name: str,
    rank: int,
    thread: int,
    span: Mapping[str, float],
    args: Mapping[str, Any],
) -> Event:
    """Return a slice of a rank's thread: ``span`` has its start and duration."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": rank,
        "tid": thread,
        **span,
        "args": dict(args),
    }


def _step(step: StepSpan) -> Event:
    """Return a step as a slice, as ``torch.profiler`` annotates steps."""
    name, span = f"ProfilerStep#{step.number}", _span(step.start, step.end)
    return _event("user_annotation", name, step.rank, _STEPS, span, {})


def _slice(part: _ShownPart, index: int, node: Node) -> Event:
    """Return a node as a slice; a collective's contains its wait for peers, as in profilers."""
    thread = part.threads[node.resource]
    span = _span(_shown_start(part, index), part.timeline.ends[index])
    args = _args(part.timeline, index, node, thread)
    return _event(_CATEGORIES[node.kind], _shown_name(node), node.rank, thread, span, args)


def _shown_name(node: Node) -> str:
    """Return a node's name as Perfetto shows it, with a prefix that tells its kind."""
    known = node.name.startswith(_KNOWN_NAMES)
    product = "gemm: " if node.role is Role.PRODUCT and node.kind is NodeKind.KERNEL else ""
    return node.name if known else _PREFIXES.get(node.kind, product) + node.name


def _args(timeline: Timeline, index: int, node: Node, thread: int) -> dict[str, Any]:
    args: dict[str, Any] = {"stage": node.stage.value, "step": node.step, "rank": node.rank}
    if not _is_host_thread(node.resource):
        args |= {
            "device": node.rank,
            "stream": thread,
            "correlation": index,
            "bytes": node.num_bytes,
            "bound_by": node.basis.bound_by or "",
            "source": node.basis.origin,
        }
    if node.collective is not None:
        waited = max(0.0, timeline.starts[index] - timeline.ready[index])
        args |= {"collective": node.collective, "waiting_us": _us(waited)}
        if (group := timeline.graph.process_group(node)) is not None:
            args |= {"Process Group Name": group[0], "Group size": group[1]}
    return args


def _launches(part: _ShownPart) -> Iterator[Event]:
    """Yield the calls, of no duration, by which tools find a kernel's thread, step and waits.

    As in a profiler's trace, what was launched before the first event has none.
    """
    nodes, threads, ends = part.nodes, part.threads, part.timeline.ends
    numbers = count(len(part.timeline.graph.nodes))
    for index, node in nodes.items():
        if node.launched_by is not None and ends[node.launched_by] > 0:
            launcher = nodes[node.launched_by]
            where = launcher.rank, threads[launcher.resource], _us(ends[node.launched_by])
            for before in _elsewhere(part, node):
                if nodes[before].launched_by is not None:
                    number = {"correlation": next(numbers)}
                    yield _moment("cuda_runtime", "cudaStreamWaitEvent", where, number)
                    waited = {
                        "stream": threads[node.resource],
                        "wait_on_stream": threads[nodes[before].resource],
                        "wait_on_cuda_event_record_corr_id": before + 1,
                    }
                    yield _moment("cuda_sync", "Stream Wait Event", where, number | waited)
            name = "cudaMemcpyAsync" if node.kind is NodeKind.COPY else "cudaLaunchKernel"
            yield _moment("cuda_runtime", name, where, {"correlation": index})


def _moment(
    category: str, name: str, where: tuple[int, int, float], args: Mapping[str, int]
) -> Event:
    """Return an event without length on a rank's thread at a time."""
    rank, thread, at = where
    return _event(category, name, rank, thread, {"ts": at, "dur": 0}, args)


def _arrows(part: _ShownPart) -> Iterator[Event]:
    """Yield a start and a finish event for every dependency between threads or ranks."""
    for number, (kind, source, target) in enumerate(_dependencies(part)):
        begin = _shown_start(part, source)
        end = max(begin, _shown_start(part, target))
        for phase, index, at in (("s", source, begin), ("f", target, end)):
            node = part.nodes[index]
            yield {
                "ph": phase,
                "id": number,
                "cat": kind,
                "name": kind,
                "pid": node.rank,
                "tid": part.threads[node.resource],
                "ts": _us(at),
                **({"bp": "e"} if phase == "f" else {}),
            }


def _dependencies(part: _ShownPart) -> Iterator[tuple[str, int, int]]:
    """Yield arrows between nodes, as (kind, from, to).

    A launch to its kernel, other threads' nodes to what waits for them, and the last member of a
    collective, which began when that one was ready, to all others.
    """
    starts, ready = part.timeline.starts, part.timeline.ready
    last: dict[int, int] = {}
    for index, node in part.nodes.items():
        if node.launched_by is not None:
            yield "ac2g", node.launched_by, index
        for before in _elsewhere(part, node):
            yield "dependency", before, index
        if node.collective is not None and ready[index] >= starts[index]:
            last.setdefault(node.collective, index)
    for index, node in part.nodes.items():
        if node.collective is not None and last.get(node.collective, index) != index:
            yield "collective", last[node.collective], index


def _elsewhere(part: _ShownPart, node: Node) -> Iterator[int]:
    """Yield the nodes on other threads that a node comes after, of the ranks that are shown."""
    for index in node.after:
        before = part.nodes.get(index)
        if before is not None and (before.rank, before.resource) != (node.rank, node.resource):
            yield index


def _shown_start(part: _ShownPart, index: int) -> float:
    start = part.timeline.starts[index]
    if part.nodes[index].collective is None:
        return start
    return min(part.timeline.ready[index], start)


def _span(start: float, end: float) -> dict[str, float]:
    """Return start and duration in microseconds.

    The end is rounded, so that slices do not overlap.
    """
    begin = _us(start)
    return {"ts": begin, "dur": round(_us(end) - begin, 3)}


def _us(seconds: float) -> float:
    """Return seconds as microseconds, rounded to a nanosecond as the viewers' clocks are."""
    return round(seconds / US, 3)
