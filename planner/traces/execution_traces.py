"""Reading which collective an operator starts or waits for, from PyTorch's execution traces.

References
----------
PyTorch, ``torch/csrc/profiler/standalone/execution_trace_observer.cpp``: schemas 1.0 and 1.1.
``torch/csrc/distributed/c10d/ParamCommsUtils.hpp``: the arguments of ``record_param_comms``.

"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.base.units import Bytes
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


def _is_execution_trace(document: Document) -> bool:
    return isinstance(document.get("nodes"), list) and "traceEvents" not in document


def _trace(name: str, document: Document) -> ExecutionTrace:
    nodes = [
        n for n in document["nodes"] if isinstance(n, dict) and n.get("name") == _COMMUNICATION
    ]
    made = [_communication(node) for node in sorted(nodes, key=_id)]
    pid = document.get("pid")
    return ExecutionTrace(
        source=name,
        pid=pid if isinstance(pid, int) else None,
        number=numbered_rank(name),
        communications=[each for each in made if each is not None],
    )


def _id(node: Mapping[str, Any]) -> int:
    number = node.get("id")
    return number if isinstance(number, int) else 0


def _communication(node: Mapping[str, Any]) -> Communication | None:
    inputs, outputs = _values(node, "inputs"), _values(node, "outputs")
    operation = next((v for v in inputs if isinstance(v, str) and not v.startswith("<")), None)
    sequence = next((v for v in inputs if isinstance(v, int)), None)
    if operation is None or sequence is None:
        return None
    tensors = inputs[0] if isinstance(inputs[0], list) else []
    received = outputs[0] if outputs and isinstance(outputs[0], list) else []
    return Communication(
        operation=operation,
        sequence=sequence,
        num_bytes=max(_bytes(tensors), _bytes(received)),
    )


def _values(node: Mapping[str, Any], key: str) -> list[Any]:
    """Return a node's arguments; since schema 1.1 they are one level deeper."""
    found = node.get(key, [])
    values = found.get("values", []) if isinstance(found, dict) else found
    return values if isinstance(values, list) else []


def _bytes(tensor: list[Any]) -> Bytes:
    """Return the bytes of a tensor ``[id, storage, offset, elements, bytes each, device]``."""
    if tensor and all(isinstance(part, list) for part in tensor):
        return sum(_bytes(part) for part in tensor)
    if len(tensor) >= 5 and all(isinstance(part, int) for part in tensor[:5]):
        return max(0.0, float(tensor[3]) * float(tensor[4]))
    return 0.0
