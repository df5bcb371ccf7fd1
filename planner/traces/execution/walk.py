"""The work in a trace, in the order of calls: kernels, collectives, waits, and host time.

The walk does not go into operators that have a model of their own, counts work of the host alone,
and keeps operators that no model knows as unknown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from costmodel.base.units import Bytes
from costmodel.domain.hardware import CollectiveOp
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import DenseOperator, Pass
from costmodel.step.graph import Stage
from planner.traces.execution.call_tree import (
    children,
    collective_of,
    launching_ops,
    with_work_of_their_own,
)
from planner.traces.execution.operator_trace import Tensor, TraceOp
from planner.traces.execution.trace_operators import (
    dense_operator,
    descends,
    is_metadata,
)

_FUNCTION = "autograd::engine::evaluate_function"
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_QUIET_FUNCTION = re.compile(r"\w*Backward\d*$|torch::autograd::(AccumulateGrad|GraphRoot)$")
"""Functions of autograd that call operators for all they compute."""
_FROM_BUCKET = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
"""Operator that copies gradients out of buckets, once DistributedDataParallel has waited for
them."""
_OPTIMIZER = "Optimizer."
_LOOKUP = re.compile(r"fbgemm::\w*embedding\w*lookup")
"""FBGEMM's lookups of many tables at once, whatever the optimizer."""
_LOOKUP_BACKWARD = re.compile(r"torch::autograd::CppNode<\w*LookupFunction")
"""Functions of autograd that add gradients to the rows looked up; no operator inside does."""
_INSIDE_COLLECTIVES = ("gloo:", "nccl:", "record_param_comms")
"""Beginnings of operators inside ``c10d::`` ones; the recorder does not always know that they
are."""
_STAGES: Mapping[CollectiveOp, Stage] = {op: Stage(op.value) for op in CollectiveOp}


def is_lookup(name: str) -> bool:
    """Return whether an operator looks rows of many tables up."""
    return _LOOKUP.match(name) is not None


def is_lookup_backward(name: str) -> bool:
    """Return whether a function of autograd adds gradients to such rows."""
    return _LOOKUP_BACKWARD.match(name) is not None


class TracedWorkKind(StrEnum):
    """Kinds of work items."""

    KERNEL = "kernel"
    COLLECTIVE = "collective"
    WAIT = "wait"
    """Wait for all collectives that were started."""


@dataclass(slots=True)
class HostCounts:
    """How often the host does each kind of work besides kernels."""

    python_calls: int = 0
    """Operators called from Python."""
    dispatches: int = 0
    """Operators that call others, or only look at tensors."""
    functions: int = 0
    """Functions of autograd."""
    accumulations: int = 0
    """Gradients added up, with the hooks of DistributedDataParallel."""
    outermost: list[str] = field(default_factory=list)
    """Names of operators and functions of autograd that no other operator calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedWork:
    """One item of work, and what the host did since the one before."""

    kind: TracedWorkKind
    name: str
    stage: Stage
    backward: bool
    before: HostCounts = field(default_factory=HostCounts)
    op: TraceOp | None = None
    """A kernel's operator in the trace, or a collective's."""
    operator: DenseOperator[int] | None = None
    """A kernel as models see it."""
    memory: Mapping[int | None, int] = field(default_factory=dict)
    """Number of the memory that each storage is, negative where it was there before the step. What
    is freed and allocated again has the same storage, and another number."""
    collective: CollectiveOp | None = None
    num_bytes: Bytes = 0.0
    """What a collective sends, or receives."""
    blocking: bool = False
    """Whether it is a collective that the host waits for at once."""


class Gradient(NamedTuple):
    """A parameter's gradient, when autograd has it."""

    place: int
    """Items of work that come before."""
    tensor: Tensor
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWork:
    """The work of one rank in one step."""

    items: Sequence[TracedWork]
    after: HostCounts
    """What the host does after the last item."""
    gradients: Sequence[Gradient] = ()
    ops: Sequence[TraceOp] = ()
    """All operators of the step."""


def rank_work(ops: Sequence[TraceOp]) -> RankWork:
    """Return the work of the operators of one step."""
    return _Walk(_mended(ops)).run()


def _mended(ops: Sequence[TraceOp]) -> list[TraceOp]:
    """Return the operators with the optimizer's outside of backward.

    If a gradient's hook starts a collective, the recorder can miss the end of that function of
    autograd, and takes what follows backward for a part of it (PyTorch 2.13 on CPU).
    """
    mended = []
    functions = {op.id for op in ops if op.name.startswith(_FUNCTION)}
    lost: int | None = None
    optimizer = 0
    for op in ops:
        if op.name.startswith(_OPTIMIZER) and op.parent in functions:
            lost, optimizer = op.parent, op.id
            mended.append(replace(op, parent=0))
        elif op.parent == lost:
            mended.append(replace(op, parent=optimizer))
        else:
            mended.append(op)
    return mended


@dataclass(slots=True)
class _Context:
    """Where in the tree of calls an operator is."""

    hidden: bool = False
    """Inside an operator that has its own model."""
    backward: bool = False
    optimizer: bool = False
    python: bool = True
    """Called from Python, not by another operator."""
    made: frozenset[int | None] = frozenset()
    """Storages that the operator around gives, which has a kernel of its own."""


class _Walk:
    def __init__(self, ops: Sequence[TraceOp]) -> None:
        self.ops = ops
        self.children = children(ops)
        self.launching, above = launching_ops(ops)
        self.known = above - with_work_of_their_own(ops, self.launching)
        self.context: dict[int, _Context] = {}
        self.items: list[TracedWork] = []
        self.counts = HostCounts()
        self.gradients: list[Gradient] = []
        self.memory = _MemoryNumbers()
        self.on_gpu = any(_on_gpu(op) for op in ops)
        self.pending = False
        """Whether collectives were started in backward and not waited for."""
        self.last_function = max(
            (i for i, op in enumerate(ops) if op.name.startswith(_FUNCTION)), default=-1
        )

    def run(self) -> RankWork:
        """Return the work of a rank's operators, in their order."""
        for index, op in enumerate(self.ops):
            context = self.context.get(op.parent, _Context())
            self._before(index, op, context)
            self.context[op.id] = self._inside(op, context)
            if not context.hidden:
                self._op(op, context)
        if self.pending:
            self._add(TracedWorkKind.WAIT, "end of backward", _Context())
        return RankWork(items=self.items, after=self.counts, gradients=self.gradients, ops=self.ops)

    def _before(self, index: int, op: TraceOp, context: _Context) -> None:
        """Add a wait for the collectives of backward, where DistributedDataParallel waits."""
        over = index > self.last_function and not context.backward
        if self.pending and not context.hidden and (op.name == _FROM_BUCKET or over):
            self._add(TracedWorkKind.WAIT, "end of backward", context)
            self.pending = False

    def _op(self, op: TraceOp, context: _Context) -> None:
        if op.name.startswith(_FUNCTION):
            accumulates = op.name.endswith("AccumulateGrad")
            self.counts.accumulations += accumulates
            self.counts.functions += not accumulates
        elif op.name == _ACCUMULATES and op.inputs and op.inputs[0].element_bytes:
            memory = self.memory.numbers(op)[op.inputs[0].storage]
            self.gradients.append(Gradient(len(self.items), op.inputs[0], memory))
        elif "::" in op.name and context.python and not context.backward:
            self.counts.python_calls += 1
        if "::" in op.name and context.python:
            self.counts.outermost.append(op.name)
        collective = collective_of(op)
        if collective is not None:
            self._start(op, collective, context)
        elif self._has_kernel(op):
            self._add(TracedWorkKind.KERNEL, op.name, context, op=op)
        elif op.name == "record_param_comms" and "wait" in op.arguments:
            self._add(TracedWorkKind.WAIT, op.name, context)
            self.pending = False
        elif "::" in op.name and not op.name.startswith(_FUNCTION):
            self.counts.dispatches += 1
            if is_metadata(op.name) or self._is_whole(op):
                self.memory.allocate(op, context.made)

    def _is_whole(self, op: TraceOp) -> bool:
        """Return whether an operator has a kernel, and what it calls is a part of it."""
        return op.id in self.launching or is_lookup_backward(op.name) or self._is_unknown(op)

    def _has_kernel(self, op: TraceOp) -> bool:
        """Return whether it has one where the others run: in a trace of a GPU not on the CPU."""
        return self._is_whole(op) and (not self.on_gpu or _on_gpu(op))

    def _is_unknown(self, op: TraceOp) -> bool:
        """Return whether an operator works on tensors and nothing that it calls is known to."""
        if op.id in self.known or is_metadata(op.name) or not (op.inputs or op.outputs):
            return False
        if op.name.startswith(_INSIDE_COLLECTIVES):
            return False
        if _QUIET_FUNCTION.search(op.name) or op.name.startswith((_FUNCTION, "##")):
            return False
        leaf = not self.children.get(op.id)
        return leaf or "::" in op.name

    def _start(self, op: TraceOp, collective: CollectiveOp, context: _Context) -> None:
        backward = context.backward
        self._add(
            TracedWorkKind.COLLECTIVE,
            op.name,
            context,
            collective=collective,
            op=op,
            num_bytes=_message_bytes(op, collective),
            blocking=not backward,
        )
        self.pending = self.pending or backward

    def _add(
        self,
        kind: TracedWorkKind,
        name: str,
        context: _Context,
        *,
        op: TraceOp | None = None,
        collective: CollectiveOp | None = None,
        num_bytes: Bytes = 0.0,
        blocking: bool = False,
    ) -> None:
        stage = _stage(context, name) if collective is None else _STAGES[collective]
        direction = Pass.BACKWARD if context.backward else Pass.FORWARD
        if op is not None:
            self.memory.allocate(op, context.made)
        self.items.append(
            TracedWork(
                kind=kind,
                name=name,
                stage=stage,
                backward=context.backward,
                before=self.counts,
                op=op,
                operator=None if op is None or collective else dense_operator(op, direction),
                memory={} if op is None else self.memory.numbers(op),
                collective=collective,
                num_bytes=num_bytes,
                blocking=blocking,
            )
        )
        self.counts = HostCounts()

    def _inside(self, op: TraceOp, context: _Context) -> _Context:
        """Return the context of operators that an operator calls."""
        hidden = collective_of(op) is not None or (self._is_whole(op) and not descends(op.name))
        return _Context(
            hidden=context.hidden or hidden,
            backward=context.backward or op.name.startswith(_FUNCTION),
            optimizer=context.optimizer or op.name.startswith(_OPTIMIZER),
            python=context.python and "::" not in op.name,
            made=context.made.union(each.storage for each in op.outputs)
            if descends(op.name)
            else context.made,
        )


class _MemoryNumbers:
    """Numbers of what storages are, one after the other: tensors that are freed leave theirs."""

    def __init__(self) -> None:
        self._now: dict[int | None, int] = {}
        self._made = self._given = 0

    def allocate(self, op: TraceOp, known: frozenset[int | None]) -> None:
        """Note the storages that an operator gives and was not given, but for known ones."""
        before = known.union(each.storage for each in op.inputs)
        for storage in {each.storage for each in op.outputs} - before:
            self._now[storage], self._made = self._made, self._made + 1

    def numbers(self, op: TraceOp) -> Mapping[int | None, int]:
        """Return the numbers of an operator's storages."""
        found = {each.storage for each in (*op.inputs, *op.outputs)}
        for storage in found - set(self._now):
            self._given += 1
            self._now[storage] = -self._given
        return {storage: self._now[storage] for storage in found}


def _on_gpu(op: TraceOp) -> bool:
    return any(
        each.device and not each.device.startswith("cpu") for each in (*op.inputs, *op.outputs)
    )


def _message_bytes(op: TraceOp, kind: CollectiveOp) -> Bytes:
    """Return the bytes of a collective's message, as its kind counts them."""
    sent = sum(tensor.num_bytes for tensor in op.inputs)
    received = sum(tensor.num_bytes for tensor in op.outputs)
    if kind is CollectiveOp.ALL_REDUCE:
        return sent or received
    sizes = [tensor.num_bytes for tensor in (*op.inputs, *op.outputs)]
    return max(sizes, default=0.0)


def _stage(context: _Context, name: str) -> Stage:
    if (
        is_lookup(name)
        or is_lookup_backward(name)
        or family_of(name) in {OperatorFamily.GATHER, OperatorFamily.SCATTER}
    ):
        return Stage.LOOKUP_BACKWARD if context.backward else Stage.LOOKUP_FORWARD
    if context.optimizer:
        return Stage.OPTIMIZER
    return Stage.DENSE_BACKWARD if context.backward else Stage.DENSE_FORWARD
