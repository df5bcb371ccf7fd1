"""Kernels of operators as measurements of a CPU see them: products, or elements to stream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from bench.nlp.tensor_layout import num_runs
from costmodel.base.units import Bytes
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.products import Product
from planner.traces.execution.operator_trace import TraceOp
from planner.traces.execution.trace_operators import launches
from planner.traces.execution.walk import TracedWork


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """One kernel as a model sees it."""

    operator: str
    """Operator's name; with ``/columns`` or ``/strided`` if the layout needs another kernel."""
    num_elements: int
    num_runs: int
    """Number of inner loops over memory, or of rows of a normalization."""
    num_bytes: Bytes
    """Bytes read plus bytes written."""
    product: Product | None = None
    read_bytes: Bytes = 0.0
    """Bytes of the tensors read."""
    reuse: tuple[tuple[Bytes, Bytes], ...] = ()
    """For each tensor, its bytes and the bytes touched since its last use."""


def kernel_calls(items: Sequence[TracedWork]) -> list[KernelCall | None]:
    """Return the kernels of a rank's work; None are items that are no kernels."""
    memory = _Memory()
    calls: list[KernelCall | None] = []
    for op in (item.op if item.operator else None for item in items):
        call = None if op is None else kernel_call(op)
        if op is not None:
            call = unknown_call(op) if call is None else memory.after(op, call)
        calls.append(call)
    return calls


class _Memory:
    """Bytes touched since the last use of each storage: caches hold what was touched last."""

    def __init__(self) -> None:
        self._touched: Bytes = 0.0
        self._last: dict[int, Bytes] = {}
        """Bytes touched in all until the last use, by storage."""

    def after(self, op: TraceOp, call: KernelCall) -> KernelCall:
        """Return a call with the reuse of its inputs, and note what it touches."""
        reads = [t for t in op.inputs if t.num_elements > 1]
        known = {t.storage for t in reads}
        makes = [t for t in op.outputs if t.num_elements > 1 and t.storage not in known]
        reuse = tuple((t.num_bytes, self._distance(t.storage)) for t in (*reads, *makes))
        for tensor in (*reads, *makes):
            self._touched += tensor.num_bytes
            if tensor.storage is not None:
                self._last[tensor.storage] = self._touched
        return replace(call, reuse=reuse, read_bytes=sum(t.num_bytes for t in reads))

    def _distance(self, storage: int | None) -> Bytes:
        if storage is None or storage not in self._last:
            return float("inf")
        return self._touched - self._last[storage]


def kernel_call(op: TraceOp) -> KernelCall | None:
    """Return an operator's kernel; None if it has no known one by itself."""
    if not launches(op.name):
        return None
    family = family_of(op.name)
    if family is OperatorFamily.PRODUCT:
        return _matrix_call(op)
    return _SHAPED.get(family, _elementwise)(op)


def unknown_call(op: TraceOp) -> KernelCall:
    """Return a kernel that streams the bytes of an unknown operator's tensors.

    Of an input that is larger than all outputs, as much as the largest output is read: such
    operators look up rows.
    """
    largest = max((t.num_bytes for t in op.outputs), default=None)
    sizes = [t.num_bytes if largest is None else min(t.num_bytes, largest) for t in op.inputs]
    call = _streaming(op, op.name, num_runs=1)
    return replace(call, num_bytes=sum(sizes) + sum(t.num_bytes for t in op.outputs))


def _matrix_call(op: TraceOp) -> KernelCall | None:
    matrices = [t for t in op.inputs if len(t.shape) >= 1][-2:]
    if len(matrices) < 2:
        return None
    first, second = (tensor.shape for tensor in matrices)
    product = Product(
        count=prod(first[:-2]),
        m=first[-2] if len(first) > 1 else 1,
        k=first[-1],
        n=second[-1] if len(second) > 1 else 1,
    )
    return KernelCall(
        operator=op.name,
        num_elements=product.num_elements,
        num_runs=1,
        num_bytes=float(product.num_elements * matrices[0].element_bytes),
        product=product,
    )


def _elementwise(op: TraceOp) -> KernelCall:
    tensors = (*op.outputs, *op.inputs)
    runs, strided = num_runs(tensors)
    name = op.name + ("/strided" if strided else "")
    return _streaming(op, name, num_runs=1 if strided else runs)


def _reduction(op: TraceOp) -> KernelCall:
    """Return a sum's kernel: over rows, or over columns, with an output as wide as a row."""
    source = op.inputs[0].shape if op.inputs else ()
    dims = op.arguments[1] if len(op.arguments) > 1 else None
    axes = [dims] if isinstance(dims, int) else dims if isinstance(dims, list) else []
    last = len(source) - 1
    inner = not axes or any(axis in {last, -1} for axis in axes)
    rows = prod(source[:-1])
    return _streaming(op, op.name if inner else f"{op.name}/columns", num_runs=max(1, rows))


def _rows(op: TraceOp) -> KernelCall:
    """Return a normalization's kernel: each row of the last dimension by itself."""
    shape = op.inputs[0].shape if op.inputs else ()
    return _streaming(op, op.name, num_runs=max(1, prod(shape[:-1])))


def _gathered(op: TraceOp) -> KernelCall:
    """Return a gather's kernel by the rows read or written, not the table that they are in."""
    if op.name.endswith("_"):
        moved = op.inputs[-1:]
    else:
        moved = op.inputs[:1] if "backward" in op.name else op.outputs[:1]
    shape = moved[0].shape if moved else ()
    size = moved[0].num_bytes if moved else 0.0
    return KernelCall(
        operator=op.name,
        num_elements=prod(shape),
        num_runs=max(1, prod(shape[:-1])),
        num_bytes=2 * size,
    )


def _labels(op: TraceOp) -> KernelCall:
    """Return the kernel of a loss that looks at one element of each row."""
    rows = op.inputs[0].shape[0] if op.inputs and op.inputs[0].shape else 1
    if op.name.endswith("nll_loss_backward") and len(op.inputs) > 1:
        rows = prod(op.inputs[1].shape[:1])
    return KernelCall(
        operator=op.name,
        num_elements=rows,
        num_runs=1,
        num_bytes=12.0 * rows,
    )


def _updates(op: TraceOp) -> KernelCall:
    """Return an optimizer's kernel by the elements of all its lists of tensors."""
    written = sum(tensor.num_bytes for tensor in op.inputs)
    return _streaming(op, op.name, num_runs=max(1, len(op.inputs) // 4), extra_bytes=written)


def _streaming(op: TraceOp, name: str, *, num_runs: int, extra_bytes: Bytes = 0.0) -> KernelCall:
    family, tensors = family_of(op.name), (*op.inputs, *op.outputs)
    of_lists = family is OperatorFamily.OPTIMIZER or name.startswith("aten::cat")
    copies = {OperatorFamily.COPY, OperatorFamily.FILL}
    overwrites = family in copies and op.name.endswith("_")
    moved = (*op.inputs[overwrites:], *op.outputs)
    sizes = [t.num_elements for t in (op.inputs if of_lists else tensors)]
    return KernelCall(
        operator=name,
        num_elements=sum(sizes) if of_lists else max(sizes, default=0),
        num_runs=num_runs,
        num_bytes=sum(t.num_bytes for t in moved) + extra_bytes,
    )


_SHAPED: Mapping[OperatorFamily, Callable[[TraceOp], KernelCall]] = {
    OperatorFamily.REDUCTION: _reduction,
    OperatorFamily.NORMALIZATION: _rows,
    OperatorFamily.GATHER: _gathered,
    OperatorFamily.SCATTER: _gathered,
    OperatorFamily.LOSS: _labels,
    OperatorFamily.OPTIMIZER: _updates,
}
