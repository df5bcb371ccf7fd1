"""The operators of a training step, with the shapes of their tensors, from execution traces.

Execution traces hold no times, so that predictions cannot use measured ones.

References
----------
PyTorch, ``torch/csrc/profiler/standalone/execution_trace_observer.cpp``: schemas 1.0 and 1.1.

"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any

from costmodel.base.errors import InputError, Problem
from costmodel.base.limits import MOST_ELEMENTS
from costmodel.base.units import Bytes
from planner.traces.trace_files import Document, numbered_rank

_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")
_LARGEST_SIZE, _MOST_SIZES = 2**40, 64
_STRUCTURE = "[pytorch|profiler|"
"""Beginning of names of the recorder's own nodes, for the process and its threads."""
_PARENT_KEYS = ("ctrl_deps", "parent")
_TENSOR_FIELDS = 6
_MOST_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor that an operator reads or writes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements; a contiguous tensor's where the trace has none."""
    element_bytes: int
    element_type: str
    """PyTorch's name of the type: ``float``, ``c10::Half``, ``long int``."""
    device: str
    storage: int | None = None
    """Number of the memory that it lies in."""
    offset: int = 0
    """Where in it the tensor begins."""

    @property
    def num_elements(self) -> int:
        """Return the number of elements, 1 for a scalar."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> Bytes:
        """Return the bytes of all elements."""
        return float(self.num_elements * self.element_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOp:
    """One call of an operator in a trace."""

    id: int
    name: str
    parent: int
    thread: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    arguments: tuple[Any, ...] = ()
    """All arguments as recorded: numbers, lists, tensors by their identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTrace:
    """The operators of one rank in the order of their calls."""

    source: str
    rank: int
    pid: int | None
    ops: Sequence[TraceOp]
    steps: Sequence[tuple[int, Sequence[TraceOp]]]
    """Number and operators of every step; without the profiler's marks all is one step."""


def operator_traces(found: Sequence[tuple[str, Document]], path: str) -> list[OperatorTrace]:
    """Return the execution traces among JSON documents, by rank.

    Raises
    ------
    InputError
        There are none, two are of one rank, some rank has none, or shapes were not recorded.

    """
    documents = [(n, d) for n, d in found if isinstance(d.get("nodes"), list)]
    if not documents:
        hint = "record one per rank with `torch.profiler.ExecutionTraceObserver`"
        nothing = Problem(message="no execution traces are in it", hint=hint)
        raise InputError(path, (nothing,))
    traces = [read_trace(name, document) for name, document in documents]
    traces = _numbered(traces)
    problems = [*_empty(traces), *_misnumbered(traces)]
    if problems:
        raise InputError(path, problems)
    return sorted(traces, key=lambda trace: trace.rank)


def read_trace(name: str, document: Document) -> OperatorTrace:
    """Return the execution trace of a document, of the rank that its name ends with."""
    nodes = [n for n in document["nodes"] if isinstance(n, dict) and isinstance(n.get("id"), int)]
    ops = [_op(node) for node in sorted(nodes, key=lambda node: int(node["id"]))]
    kept = [op for op in ops if not op.name.startswith(_STRUCTURE)]
    number = numbered_rank(name)
    pid = document.get("pid")
    return OperatorTrace(
        source=name,
        rank=-1 if number is None else number,
        pid=pid if isinstance(pid, int) else None,
        ops=kept,
        steps=_steps(kept),
    )


def _steps(ops: Sequence[TraceOp]) -> list[tuple[int, Sequence[TraceOp]]]:
    """Return the operators of each of the profiler's steps, which last until the next begins."""
    marks = [(i, int(m[1])) for i, op in enumerate(ops) if (m := _STEP.match(op.name))]
    if not marks:
        return [(0, ops)]
    ends = [*(index for index, _ in marks[1:]), len(ops)]
    return [(number, ops[i + 1 : end]) for (i, number), end in zip(marks, ends, strict=True)]


def _numbered(traces: Sequence[OperatorTrace]) -> list[OperatorTrace]:
    """Return traces with ranks: the number in their names, or else their order."""
    ranks = sorted(trace.rank for trace in traces)
    if len(traces) == 1 or ranks[0] < 0:
        return [replace(trace, rank=index) for index, trace in enumerate(traces)]
    return list(traces)


def _empty(traces: Sequence[OperatorTrace]) -> Iterator[Problem]:
    for trace in traces:
        if not any(op.inputs or op.outputs for op in trace.ops):
            message = f"`{trace.source}` records no operators with the shapes of their tensors"
            hint = "record a whole training step, between `start()` and `stop()` of the observer"
            yield Problem(message=message, hint=hint)


def _misnumbered(traces: Sequence[OperatorTrace]) -> Iterator[Problem]:
    ranks = [trace.rank for trace in traces]
    double = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if double:
        names = ", ".join(f"`{trace.source}`" for trace in traces if trace.rank == double[0])
        hint = "give the traces of one job only, with `rank0`, `rank1`, ... in their names"
        yield Problem(message=f"rank {double[0]} is there twice: {names}", hint=hint)
    size = max(ranks) + 1
    if size > len(set(ranks)) and not double:
        missing = (rank for rank in range(size) if rank not in ranks)
        listed = ", ".join(map(str, islice(missing, _MOST_LISTED)))
        hint = "a rank waits for the others, so the traces of all of them are needed"
        message = f"traces of {len(traces)} of {size} ranks; missing: {listed}"
        yield Problem(message=message, hint=hint)


def _op(node: Mapping[str, Any]) -> TraceOp:
    """Return an operator of a trace's node."""
    inputs, outputs = _fields(node, "input"), _fields(node, "output")
    parent = next((node[k] for k in _PARENT_KEYS if isinstance(node.get(k), int)), 0)
    return TraceOp(
        id=int(node["id"]),
        name=str(node.get("name")),
        parent=parent,
        thread=_thread(node),
        inputs=tuple(_tensors(*inputs)),
        outputs=tuple(_tensors(*outputs)),
        arguments=tuple(inputs[0]),
    )


def _thread(node: Mapping[str, Any]) -> int:
    """Return a node's thread; since schema 1.1 it is an attribute."""
    attributes = node.get("attrs")
    pairs = attributes if isinstance(attributes, list) else []
    named = (a.get("value") for a in pairs if isinstance(a, dict) and a.get("name") == "tid")
    found = next(named, node.get("tid"))
    return found if isinstance(found, int) else 0


_Fields = tuple[list[Any], list[Any], list[Any], list[Any]]


def _fields(node: Mapping[str, Any], kind: str) -> _Fields:
    """Return a node's values, shapes, types and strides; since schema 1.1 one level deeper."""
    inner = node.get(f"{kind}s")
    if isinstance(inner, dict):
        names = ("values", "shapes", "types", "strides")
        found = [inner.get(name) for name in names]
    else:
        found = [inner, node.get(f"{kind}_shapes"), node.get(f"{kind}_types"), None]
    values, shapes, types, strides = (each if isinstance(each, list) else [] for each in found)
    return values, shapes, types, strides


def _tensors(
    values: list[Any], shapes: list[Any], types: list[Any], strides: list[Any]
) -> Iterator[Tensor]:
    for index, (value, shape, kind) in enumerate(zip(values, shapes, types, strict=False)):
        stride = strides[index] if index < len(strides) else None
        yield from _argument_tensors(value, shape, str(kind), stride)


def _argument_tensors(value: Any, shape: Any, kind: str, stride: Any) -> Iterator[Tensor]:  # noqa: ANN401 - from a file
    """Yield the tensors of an argument: itself, or those of a list."""
    if not (isinstance(value, list) and isinstance(shape, list) and "Tensor" in kind):
        return
    if kind.startswith("GenericList"):
        inner = kind.removeprefix("GenericList[").removesuffix("]").split(",")
        strides = stride if isinstance(stride, list) else []
        for index, (item, size) in enumerate(zip(value, shape, strict=False)):
            item_stride = strides[index] if index < len(strides) else None
            item_kind = inner[min(index, len(inner) - 1)]
            yield from _argument_tensors(item, size, item_kind, item_stride)
    elif len(value) >= _TENSOR_FIELDS and _are_sizes([*shape, value[4]]) and _fits(shape):
        sizes = tuple(shape)
        known = isinstance(stride, list) and len(stride) == len(sizes) and _are_sizes(stride)
        yield Tensor(
            shape=sizes,
            strides=tuple(stride) if known else contiguous(sizes),
            element_bytes=value[4],
            element_type=kind.removeprefix("Tensor(").removesuffix(")"),
            device=str(value[5]),
            storage=value[1] if isinstance(value[1], int) else None,
            offset=value[2] if isinstance(value[2], int) else 0,
        )


def _are_sizes(numbers: Sequence[object]) -> bool:
    """Return whether numbers can be a tensor's shape, strides or bytes of an element."""
    return len(numbers) <= _MOST_SIZES and all(
        isinstance(number, int) and 0 <= number <= _LARGEST_SIZE for number in numbers
    )


def _fits(shape: Sequence[int]) -> bool:
    return prod(shape) <= MOST_ELEMENTS


def runs_on_cpu(traces: Sequence[OperatorTrace]) -> bool:
    """Return whether no tensor of the traces is on another device than the CPU.

    A tensor that an operator did not return, such as the gradient of a first layer's input, is
    recorded without a device.
    """
    tensors = (t for trace in traces for op in trace.ops for t in (*op.inputs, *op.outputs))
    return all(tensor.device.startswith("cpu") for tensor in tensors if tensor.device)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
