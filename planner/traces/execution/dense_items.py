"""Which work of a traced step is its dense part's: not of tables, optimizers and data loaders."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import ElementType, Pass
from costmodel.step.graph import Stage
from planner.traces.execution.operator_trace import Tensor, TraceOp
from planner.traces.execution.trace_operators import FILLED_INSIDE, element_type, results
from planner.traces.execution.walk import (
    RankWork,
    TracedWork,
    TracedWorkKind,
    is_lookup,
    is_lookup_backward,
)

_OUTSIDE = re.compile(
    r"Optimizer\.|AccumulateGrad|ddp\.reducer|All2All|ReduceScatter|AllGather|wait\(\)|all2all"
    r"|alltoall|sparse_data_dist|bounds_check|copy_batch|DataLoader"
)
"""What calls operators that a plan counts elsewhere: DistributedDataParallel's buckets, exchanges
of TorchRec (distributed/dist_data.py, comm_ops.py), its pipelines, data loaders."""
_INTEGERS = {
    ElementType.INT64, ElementType.INT32, ElementType.INT16, ElementType.INT8, ElementType.UINT8,
    ElementType.BOOL,
}  # fmt: skip


class DenseItem(NamedTuple):
    """A kernel of the dense part."""

    place: int
    """In the step's work."""
    op: TraceOp
    memory: Mapping[int | None, int]
    direction: Pass
    reads: tuple[int, ...]
    """Memory of embeddings that it reads."""

    def number(self, tensor: Tensor) -> int:
        """Return the number of a tensor's memory."""
        return self.memory[tensor.storage]


@dataclass(slots=True)
class DenseItems:
    """The dense part's work in a step."""

    items: list[DenseItem] = field(default_factory=list)
    embeddings: dict[int, Tensor] = field(default_factory=dict)
    """What lookups, and exchanges of what they gave, hand to the dense part, by memory."""
    sent: dict[int, list[Tensor]] = field(default_factory=dict)
    """Gradients that go on to tables, by the place of the kernel that made them."""
    first: dict[int | None, Tensor] = field(default_factory=dict)
    """The first tensor in each storage."""
    made: set[int] = field(default_factory=set)
    """Memory that the dense part wrote to first."""
    table_shapes: set[tuple[int, ...]] = field(default_factory=set)
    """Shapes of what lookups read."""


def dense_items(work: RankWork) -> DenseItems:
    """Return what of a step's work is the dense part's.

    It is what has kernels, but for lookups and what prepares their ids, for what exchanges
    embeddings between ranks and puts them together again, for DistributedDataParallel's buckets,
    optimizers, and copies of batches from the host. Collectives are among it that work on what its
    kernels made, but for parameters' gradients, as those of tensor parallelism do.
    """
    callers, found = _Callers(work.ops), DenseItems()
    ids = _memory_of_ids(work.items)
    for called in work.ops:
        for each in (*called.inputs, *called.outputs):
            found.first.setdefault(each.storage, each)
    gradients = {each.memory for each in work.gradients}
    makers: dict[int, int] = {}
    """Kernel of the dense part that wrote to a memory last, but for parameters' gradients."""
    written_before: set[int] = set()
    for place, item in enumerate(work.items):
        op = item.op
        if op is None or callers.fill(op):
            continue
        writes = [item.memory[each.storage] for each in results(op)]
        reads = _reads(item, op, writes)
        new = set(writes) - written_before
        written_before |= new
        joined = _is_joined(item, op, callers, makers)
        if not joined and _is_outside(item, op, callers, ids):
            _exchanged(found, item, op, reads, makers)
            continue
        seen = bool(found.items) and found.items[-1].direction is Pass.BACKWARD
        direction = Pass.BACKWARD if item.backward or seen else Pass.FORWARD
        embedded = dict.fromkeys(number for number in reads if number in found.embeddings)
        found.items.append(DenseItem(place, op, item.memory, direction, tuple(embedded)))
        makers.update(dict.fromkeys(set(writes) - gradients, place))
        found.made |= new
    return found


def _reads(item: TracedWork, op: TraceOp, writes: Container[int]) -> dict[int, Tensor]:
    """Return what an operator reads, by memory; a collective does not read what it writes."""
    found = {item.memory[each.storage]: each for each in op.inputs}
    if item.kind is TracedWorkKind.COLLECTIVE:
        return {number: each for number, each in found.items() if number not in writes}
    return found


def _exchanged(
    found: DenseItems,
    item: TracedWork,
    op: TraceOp,
    reads: Mapping[int, Tensor],
    makers: Mapping[int, int],
) -> None:
    """Note embeddings that work outside of the dense part gives, or gradients that it takes."""
    if is_lookup(op.name):
        found.table_shapes |= {each.shape for each in op.inputs if not is_integer(each)}
    if is_lookup(op.name) or (not item.backward and found.embeddings.keys() & reads.keys()):
        for each in results(op):
            found.embeddings[item.memory[each.storage]] = each
    elif item.backward:
        for number in reads.keys() & makers.keys():
            found.sent.setdefault(makers[number], []).append(reads[number])


def _is_joined(item: TracedWork, op: TraceOp, callers: "_Callers", makers: Container[int]) -> bool:
    """Return whether work is a collective of the dense part."""
    if family_of(op.name) is not OperatorFamily.COLLECTIVE or callers.match(op):
        return False
    return any(item.memory[each.storage] in makers for each in op.inputs)


def _is_outside(item: TracedWork, op: TraceOp, callers: "_Callers", ids: Container[int]) -> bool:
    """Return whether work is no kernel of the dense part."""
    if item.kind is not TracedWorkKind.KERNEL or item.stage is Stage.OPTIMIZER:
        return True
    if is_lookup(op.name) or is_lookup_backward(op.name) or callers.match(op):
        return True
    devices = {each.device.partition(":")[0] for each in (*op.inputs, *op.outputs)}
    if op.name == "aten::copy_" and len(devices) > 1:  # a batch's, or a result's
        return True
    if not all(map(is_integer, (*op.inputs, *op.outputs))):
        return False
    return op.name.startswith("fbgemm::") or any(number in ids for number in item.memory.values())


class _Callers:
    """What calls an operator."""

    def __init__(self, ops: Sequence[TraceOp]) -> None:
        self._ops = {op.id: op for op in ops}
        self._known: dict[int, bool] = {}

    def fill(self, op: TraceOp) -> bool:
        """Return whether a kernel fills the result of what calls it, which is listed with it."""
        caller = self._ops.get(op.parent)
        return caller is not None and caller.name in FILLED_INSIDE

    def match(self, op: TraceOp) -> bool:
        """Return whether an operator, or what calls it, is of a kind that a plan counts itself."""
        path: list[int] = []
        at: TraceOp | None = op
        while at is not None and at.id not in self._known and at.id not in path:
            path.append(at.id)
            if _OUTSIDE.search(at.name):
                self._known[at.id] = True
                break
            at = self._ops.get(at.parent)
        outside = at is not None and self._known.get(at.id, False)
        self._known.update(dict.fromkeys(path, outside))
        return outside


def _memory_of_ids(items: Sequence[TracedWork]) -> set[int]:
    """Return memory of ids, lengths and offsets: what lookups or exchanges of integers take.

    And what is worked out of what these exchanges give.
    """
    needed: set[int] = set()
    for item, op in _of_integers(reversed(items)):
        if (
            item.kind is TracedWorkKind.COLLECTIVE
            or is_lookup(op.name)
            or _writes(item, op) & needed
        ):
            needed |= {item.memory[each.storage] for each in op.inputs if is_integer(each)}
    given: set[int] = set()
    for item, op in _of_integers(items):
        begins = item.kind is TracedWorkKind.COLLECTIVE or op.name.startswith("fbgemm::")
        if begins or any(item.memory[each.storage] in given for each in op.inputs):
            given |= _writes(item, op)
    return needed | given


def _of_integers(
    items: "Sequence[TracedWork] | Iterator[TracedWork]",
) -> Iterator[tuple[TracedWork, TraceOp]]:
    """Yield lookups, and work on integers alone."""
    for item in items:
        op = item.op
        if op is not None and (
            is_lookup(op.name) or all(map(is_integer, (*op.inputs, *op.outputs)))
        ):
            yield item, op


def _writes(item: TracedWork, op: TraceOp) -> set[int]:
    return {item.memory[each.storage] for each in results(op)}


def is_integer(tensor: Tensor) -> bool:
    """Return whether a tensor holds no numbers with a fraction."""
    kind = element_type(tensor)
    return kind is None or kind in _INTEGERS
