"""Turning the profiler traces of a job into an execution graph, as plans are simulated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.base.units import Seconds
from costmodel.step.graph import ExecutionGraph, NodeKind
from planner.show.format import count
from planner.traces.execution.communications import execution_traces
from planner.traces.kineto import MOST_LISTED, RankTrace, listed, rank_traces
from planner.traces.kineto_events import is_graph_launch
from planner.traces.replay.absent_ranks import absent_nodes, awaiting, with_own_times
from planner.traces.replay.job import EVERY_RANK, RecordedJob, job_of
from planner.traces.replay.links import Links, link
from planner.traces.replay.matching import match_collectives
from planner.traces.replay.operators import RankOperators, rank_operators
from planner.traces.replay.rank_graph import RankGraph, StepMark, WaitEdge
from planner.traces.trace_files import read_documents

_AWAITED = (
    "a collective with other ranks ends when it ended; time a larger one did not take is waiting"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCounts:
    """Number of edges between streams by how they were found."""

    recorded: int
    """By the profiler, or from the sequence numbers of execution traces."""
    inferred: int
    """From the order of calls, and from what had ended when the waiting kernel started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A profiled run as an execution graph, with its measured times."""

    graph: ExecutionGraph
    job: RecordedJob
    operators: Sequence[RankOperators]
    """The operators of the same run for Algorithm 1, by rank."""
    marks: Sequence[StepMark]
    makespan: Seconds
    """Seconds from the first event of any rank to the last."""
    measured: Sequence[tuple[Seconds, Seconds]]
    """Start and end of every node, as profiled."""
    waits: WaitCounts
    wait_edges: Sequence[WaitEdge]
    """The graph's edges between streams, recorded or inferred."""
    num_pinned: int
    """Number of device nodes launched before the trace began, which start when they did."""
    sizes_known: bool
    """Whether the message size of every collective is recorded."""
    notes: Sequence[str] = ()


def load_run(
    path: str | Path, execution: str | Path | None = None, cycle: int | None = None
) -> ImportedRun:
    """Return the traces of all ranks as a run; execution traces beside them are used.

    Of several cycles of the profiler one is imported (``rank_traces``).

    Raises
    ------
    InputError
        Something is missing, damaged, or not what can be replayed.

    """
    documents = read_documents(path)
    beside = documents if execution is None else read_documents(execution)
    traces = rank_traces(documents, path, cycle)
    return import_run(traces, str(path), link(traces, execution_traces(beside)))


def import_run(traces: Sequence[RankTrace], source: str, links: Links | None = None) -> ImportedRun:
    """Return the run of all ranks' traces, with its graph.

    Raises
    ------
    InputError
        The ranks' collectives do not match.

    """
    links = links or Links()
    members = match_collectives(traces, source)
    job = job_of(traces)
    awaited = awaiting(traces, members, job)
    own = with_own_times(traces, members, awaited, links.num_bytes) if awaited else members
    parts: list[RankGraph] = []
    for trace in traces:
        first = sum(len(part.nodes) for part in parts)
        parts.append(RankGraph(trace, own, links, first))
    marks = [mark for part in parts for mark in part.marks]
    nodes = [node for part in parts for node in part.nodes]
    numbers = {step: index for index, step in enumerate(sorted({node.step for node in nodes}))}
    measured = [times for part in parts for times in part.measured]
    absent, when = absent_nodes(nodes, measured, awaited)
    nodes, measured = [*nodes, *absent], [*measured, *when]
    return ImportedRun(
        graph=ExecutionGraph(
            nodes=[replace(node, step=numbers[node.step]) for node in nodes],
            world_size=job.size or job.recorded[-1] + 1,
            num_steps=len(numbers),
        ),
        job=job,
        operators=[rank_operators(part.trace, members, part.blocked) for part in parts],
        marks=marks,
        makespan=max(end for _, end in measured),
        measured=measured,
        waits=WaitCounts(
            recorded=sum(part.recorded for part in parts),
            inferred=sum(part.inferred for part in parts),
        ),
        wait_edges=[edge for part in parts for edge in part.wait_edges],
        num_pinned=sum(part.pinned for part in parts),
        sizes_known=all(n.num_bytes for n in nodes if n.kind is NodeKind.COLLECTIVE),
        notes=[
            *([_AWAITED, EVERY_RANK] if awaited else []),
            *links.notes,
            *_lacking(traces),
            *_of_graphs(traces),
        ],
    )


def _of_graphs(traces: Sequence[RankTrace]) -> Iterator[str]:
    """Yield what is not known of the kernels of CUDA graphs, if there are any."""
    if num := sum(is_graph_launch(call.name) for trace in traces for call in trace.calls):
        yield (
            f"{count(num, 'CUDA graph')} launched: kernels in the recorded order and as far apart; "
            "their waits are unknown"
        )


def _lacking(traces: Sequence[RankTrace]) -> Iterator[str]:
    """Yield what the traces of some ranks lack, so that the run lacks it, too."""
    cycles = max(trace.num_cycles for trace in traces)
    if cycles > 1:
        which = f"cycle {traces[0].cycle} of the {cycles} that the job was profiled in"
        yield f"{which}; `--cycle` chooses another"
    if files := sorted(file for trace in traces for file in trace.left_out):
        shown = listed([f"`{file}`" for file in files[:MOST_LISTED]], len(files))
        yield f"left out, as not every rank has a file of that cycle: {shown}"
    for trace in traces:
        if trace.num_broken:
            broken = count(trace.num_broken, "event")
            yield f"{broken} of rank {trace.rank} left out: without a time, a thread or a stream"
    by_rank = [{number for number, _, _ in trace.steps} for trace in traces]
    uneven = sorted(set().union(*by_rank) - by_rank[0].intersection(*by_rank))
    if uneven:
        shown = listed(uneven[:MOST_LISTED], len(uneven))
        yield f"steps that not every rank has: {shown}; profile the same ones on all"
