"""Which operators of a trace's tree of calls have kernels, by what calls what."""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice

from costmodel.domain.hardware import CollectiveOp
from planner.traces.execution.operator_trace import Tensor, TraceOp
from planner.traces.execution.trace_operators import is_metadata, launches, wraps

_COLLECTIVES: Mapping[str, CollectiveOp] = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "broadcast": CollectiveOp.ALL_REDUCE,
    "reduce_scatter": CollectiveOp.REDUCE_SCATTER,
    "allgather": CollectiveOp.ALL_GATHER,
    "alltoall": CollectiveOp.ALL_TO_ALL,
}
"""Collectives by ``c10d::`` operator; a broadcast is timed as an all-reduce, as it has no
curves."""


def collective_of(op: TraceOp) -> CollectiveOp | None:
    """Return the kind of collective that an operator starts; None: it starts none."""
    if not op.name.startswith("c10d::"):
        return None
    name = op.name.removeprefix("c10d::").lstrip("_")
    return next((kind for part, kind in _COLLECTIVES.items() if name.startswith(part)), None)


def children(ops: Sequence[TraceOp]) -> Mapping[int, Sequence[int]]:
    """Return the ids of every operator's children, by its id."""
    found: dict[int, list[int]] = defaultdict(list)
    for op in ops:
        found[op.parent].append(op.id)
    return found


def launching_ops(ops: Sequence[TraceOp]) -> tuple[set[int], set[int]]:
    """Return numbers of operators known to have a kernel, and of those with one inside or theirs.

    One that wraps others has a kernel where none of those that it calls is known to have one.
    Collectives are among the kernels inside.
    """
    parents = {op.id: op.parent for op in ops}
    launching: set[int] = set()
    above: set[int] = set()
    for op in reversed(ops):
        if launches(op.name) or (wraps(op.name) and op.id not in above):
            launching.add(op.id)
        elif collective_of(op) is None:
            continue
        for caller in _upwards(op.id, parents):
            if caller in above:
                break
            above.add(caller)
    return launching, above


def with_work_of_their_own(ops: Sequence[TraceOp], launching: Container[int]) -> set[int]:
    """Return numbers of unknown operators that make a tensor which no operator inside makes.

    Kernels that they launch by themselves make it, such as those of a recurrent layer.
    """
    parents = {op.id: op.parent for op in ops}
    made: dict[int, set[int | None]] = defaultdict(set)
    for op in ops:
        storages = set() if is_metadata(op.name) else _storages(op.outputs)
        for caller in islice(_upwards(op.id, parents), 1, None) if storages else ():
            if storages <= made[caller]:  # and so is it with those that call the caller
                break
            made[caller] |= storages
    return {
        op.id
        for op in ops
        if "::" in op.name
        and op.id not in launching
        and _storages(op.outputs) - _storages(op.inputs) - made[op.id]
    }


def _storages(tensors: Sequence[Tensor]) -> set[int | None]:
    return {t.storage for t in tensors if t.num_elements > 1}


def _upwards(start: int, parents: Mapping[int, int]) -> Iterator[int]:
    """Yield an operator's callers, the nearest first."""
    at: int | None = start
    seen: set[int] = set()
    while at is not None and at not in seen:
        yield at
        seen.add(at)
        at = parents.get(at)
