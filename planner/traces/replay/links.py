"""Recorded facts about single collectives: message sizes, and which wait for which."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.base.units import Bytes
from planner.traces.execution.communications import Communication, ExecutionTrace
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Activity, Call, Scope, is_collective

_COMMUNICATION = "record_param_comms"
_ELEMENT_BYTES = {
    "Float": 4, "Half": 2, "BFloat16": 2, "Double": 8, "Int": 4, "Long": 8, "Byte": 1, "Char": 1,
    "Bool": 1, "Short": 2,
}  # fmt: skip
"""Bytes of an element by PyTorch's name of its type, as profilers write it."""

Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Recorded facts about collectives."""

    num_bytes: Mapping[Key, Bytes] = field(default_factory=dict)
    """Message sizes, by rank and index of the activity."""
    waits: Mapping[Key, int | None] = field(default_factory=dict)
    """What a stream waits for, by rank and correlation of the call: index of a collective's
    activity, or None if it started before the trace."""
    notes: Sequence[str] = ()
    """Why some execution traces could not be used."""


def link(traces: Sequence[RankTrace], executions: Sequence[ExecutionTrace]) -> Links:
    """Return what execution traces and profiler traces of the same steps record together."""
    num_bytes = {
        (trace.rank, index): size
        for trace in traces
        for index, activity in enumerate(trace.activities)
        if is_collective(activity) and (size := _recorded_bytes(activity))
    }
    waits: dict[Key, int | None] = {}
    notes = []
    for trace in traces:
        execution = _execution_of(trace, executions)
        if execution is None:
            continue
        scopes = [scope for scope in trace.scopes if scope.name == _COMMUNICATION]
        if len(scopes) != len(execution.communications):
            recorded = len(execution.communications)
            notes.append(
                f"`{execution.source}` is not used: it has {recorded} communication operators, "
                f"the profiler trace of rank {trace.rank} {len(scopes)}"
            )
            continue
        sizes, sources = _joined(trace, scopes, execution.communications)
        num_bytes |= {(trace.rank, index): size for index, size in sizes.items()}
        waits |= {(trace.rank, call): index for call, index in sources.items()}
    return Links(num_bytes=num_bytes, waits=waits, notes=notes)


def _execution_of(trace: RankTrace, executions: Sequence[ExecutionTrace]) -> ExecutionTrace | None:
    """Return a rank's execution trace: of the same process, or with the same number in its name."""
    same = [e for e in executions if e.pid is not None and e.pid == trace.pid]
    if len(same) != 1:
        same = [e for e in executions if e.number == trace.rank]
    return same[0] if same else None


def _joined(
    trace: RankTrace, scopes: Sequence[Scope], communications: Sequence[Communication]
) -> tuple[Mapping[int, Bytes], Mapping[int, int | None]]:
    """Return message sizes by activity, and what stream waits wait for by correlation."""
    by_correlation = {a.correlation: i for i, a in enumerate(trace.activities)}
    starts = [scope.start for scope in scopes]
    sizes: dict[int, Bytes] = {}
    started: dict[int, int] = {}
    waits: dict[int, int | None] = {}
    for call in trace.calls:
        position = _enclosing(call, scopes, starts)
        if position is None:
            continue
        communication = communications[position]
        index = by_correlation.get(call.correlation)
        if communication.operation == "wait" and "StreamWaitEvent" in call.name:
            waits[call.correlation] = started.get(communication.sequence)
        elif index is not None and is_collective(trace.activities[index]):
            started[communication.sequence] = index
            sizes[index] = communication.num_bytes
    return sizes, waits


def _enclosing(call: Call, scopes: Sequence[Scope], starts: Sequence[float]) -> int | None:
    """Return the number of the last scope on a communication call's thread, or None."""
    if _COMMUNICATION not in call.scopes:
        return None
    for position in range(bisect_right(starts, call.start) - 1, -1, -1):
        if scopes[position].thread == call.thread:
            return position
    return None


def _recorded_bytes(activity: Activity) -> Bytes:
    """Return the message size that newer profilers record; 0: not recorded."""
    width = _ELEMENT_BYTES.get(str(activity.args.get("dtype")), 0)
    counts = [activity.args.get(key) for key in ("In msg nelems", "Out msg nelems")]
    return float(width * max((n for n in counts if isinstance(n, int)), default=0))
