"""Reading which collective an operator starts or waits for, from PyTorch's execution traces.

References
----------
PyTorch, ``torch/csrc/profiler/standalone/execution_trace_observer.cpp``: schemas 1.0 and 1.1.
``torch/csrc/distributed/c10d/ParamCommsUtils.hpp``: the arguments of ``record_param_comms``.

"""

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.base.limits import MOST_RANKS
from costmodel.base.units import Bytes
from planner.traces.execution.operator_trace import TraceOp, read_trace
from planner.traces.trace_files import Document, numbered_rank

_COMMUNICATION = "record_param_comms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """An operator that starts a collective, or waits for one."""

    operation: str
    """``wait``, or the collective that is started: ``all_to_allv``, ``allreduce``, ..."""
    sequence: int
    """The number of the collective it starts or waits for."""
    num_bytes: Bytes
    """The larger of what it sends and receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTrace:
    """The communication of one rank in its execution trace, in program order."""

    source: str
    pid: int | None
    number: int | None
    """The rank in the file's name (``numbered_rank``)."""
    communications: Sequence[Communication]


def execution_traces(found: Sequence[tuple[str, Document]]) -> list[ExecutionTrace]:
    """Return the execution traces among JSON documents."""
    return [_trace(name, document) for name, document in found if _is_execution_trace(document)]


def group_sizes(ops: Sequence[TraceOp]) -> dict[int, int]:
    """Return the ranks of collectives by the operator that starts them, where NCCL recorded them.

    They are the last argument of what such an operator calls, since PyTorch 2.4.
    """
    return {
        op.parent: op.arguments[-1]
        for op in ops
        if op.name == _COMMUNICATION and op.arguments and type(op.arguments[-1]) is int
        and 0 < op.arguments[-1] <= MOST_RANKS
    }  # fmt: skip


def _is_execution_trace(document: Document) -> bool:
    return isinstance(document.get("nodes"), list) and "traceEvents" not in document


def _trace(name: str, document: Document) -> ExecutionTrace:
    trace = read_trace(name, document)
    made = (_communication(op) for op in trace.ops if op.name == _COMMUNICATION)
    return ExecutionTrace(
        source=name,
        pid=trace.pid,
        number=numbered_rank(name),
        communications=[each for each in made if each is not None],
    )


def _communication(op: TraceOp) -> Communication | None:
    texts = (each for each in op.arguments if isinstance(each, str) and not each.startswith("<"))
    operation = next(texts, None)
    sequence = next((each for each in op.arguments if isinstance(each, int)), None)
    if operation is None or sequence is None:
        return None
    sizes = (sum(each.num_bytes for each in tensors) for tensors in (op.inputs, op.outputs))
    return Communication(operation=operation, sequence=sequence, num_bytes=max(sizes))
