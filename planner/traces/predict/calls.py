"""The kernels of an operator as models see them: a matrix product, or elements to stream.

Tables below list PyTorch's operators. An operator in none of their groups is work that no model
knows, and is reported as such.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from costmodel.base.units import Bytes
from costmodel.operators.products import Product
from planner.traces.predict.operator_trace import TraceOp
from planner.traces.predict.tensor_layout import num_runs


class OpFamily(StrEnum):
    """Kinds of kernels that share a model."""

    GEMM = "gemm"
    ELEMENTWISE = "elementwise"
    COPY = "copy"
    REDUCTION = "reduction"
    SOFTMAX = "softmax"
    NORMALIZATION = "normalization"
    RANDOM = "random"
    EMBEDDING = "embedding"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """One kernel as a model sees it."""

    operator: str
    """Operator's name; with ``/columns`` or ``/strided`` if the layout needs another kernel."""
    family: OpFamily
    num_elements: int
    num_runs: int
    """Number of inner loops over memory, or of rows of a normalization."""
    num_bytes: Bytes
    """Bytes read plus bytes written."""
    element_type: str
    product: Product | None = None
    read_bytes: Bytes = 0.0
    """Bytes of the tensors read."""
    reuse: tuple[tuple[Bytes, Bytes], ...] = ()
    """For each tensor, its bytes and the bytes touched since its last use."""


_UNARY = """abs cos erf exp log neg reciprocal relu rsqrt sigmoid silu sin sqrt square tanh gelu
clamp clamp_min bitwise_not logical_not pow log1p"""
_BINARY = """add sub rsub mul div remainder maximum minimum eq ne lt le gt ge masked_fill where
bitwise_and bitwise_or logical_and logical_or lerp addcmul addcdiv"""
_BACKWARD = """gelu_backward tanh_backward threshold_backward sigmoid_backward silu_backward
native_dropout_backward"""
_NAMES: Mapping[OpFamily, str] = {
    OpFamily.GEMM: "mm addmm bmm baddbmm addmv mv dot",
    OpFamily.ELEMENTWISE: f"{_UNARY} {_BINARY} {_BACKWARD}",
    OpFamily.COPY: "copy_ cat fill_ zero_ index_copy_ tril triu arange flip roll constant_pad_nd",
    OpFamily.REDUCTION: "sum mean amax amin max min cumsum any all norm linalg_vector_norm argmax",
    OpFamily.SOFTMAX: """_softmax _softmax_backward_data _log_softmax
    _log_softmax_backward_data""",
    OpFamily.NORMALIZATION: "native_layer_norm native_layer_norm_backward",
    OpFamily.RANDOM: "bernoulli_ native_dropout normal_ uniform_ random_",
    OpFamily.EMBEDDING: """index_select embedding_dense_backward gather index index_put_ index_add_
    scatter_add_ _embedding_bag _embedding_bag_dense_backward""",
    OpFamily.LOSS: """nll_loss_forward nll_loss_backward mse_loss mse_loss_backward
    binary_cross_entropy_with_logits""",
    OpFamily.OPTIMIZER: """_fused_adamw_ _fused_adam_ _fused_sgd_ _fused_adagrad_""",
}
FAMILY_OF: Mapping[str, OpFamily] = {
    f"aten::{name}": family for family, names in _NAMES.items() for name in names.split()
}
_DESCEND = frozenset({
    "aten::embedding_dense_backward", "aten::nll_loss_backward",
})  # fmt: skip
"""Operators with a kernel of their own that also call others with models of theirs."""
_METADATA_NAMES = """
_conj _local_scalar_dense _pin_memory _reshape_alias _to_copy _unsafe_view alias as_strided
atleast_1d broadcast_tensors broadcast_to chunk clone conj contiguous cudnn_is_acceptable detach
detach_ dim
empty empty_like empty_strided expand expand_as flatten flatten_dense_tensors full full_like
is_floating_point is_nonzero is_pinned item lift_fresh movedim narrow new_empty
new_empty_strided numel numpy_T ones ones_like permute pin_memory ravel real record_stream
rename requires_grad_ reshape resize_ resolve_conj resolve_neg result_type retain_grad
scalar_tensor select set_ size slice split split_with_sizes squeeze squeeze_ stride swapaxes
t tensor to transpose unbind unflatten unflatten_dense_tensors unsafe_chunk unsafe_split
unsqueeze unsqueeze_ view view_as zeros zeros_like
"""
"""Operators that only look at tensors or allocate them; other operators fill them."""
_METADATA = frozenset(f"aten::{name}" for name in _METADATA_NAMES.split())


def is_metadata(name: str) -> bool:
    """Return whether an operator moves no elements by itself."""
    return name in _METADATA or name in {"detach", "detach_"}


def descends(name: str) -> bool:
    """Return whether operators called inside this one have kernels besides its own."""
    return name in _DESCEND


def kernel_call(op: TraceOp) -> KernelCall | None:
    """Return an operator's kernel; None if no model knows the operator."""
    name = op.name
    family = FAMILY_OF.get(name) or FAMILY_OF.get(name.removesuffix("_"))
    if family is None:
        return None
    if family is OpFamily.GEMM:
        return _matrix_call(op)
    make = _SHAPED.get(family, _elementwise)
    return make(op, family)


def unknown_call(op: TraceOp) -> KernelCall:
    """Return a kernel that streams the bytes of an unknown operator's tensors.

    Of an input that is larger than all outputs, as much as the largest output is read: such
    operators look up rows.
    """
    largest = max((t.num_bytes for t in op.outputs), default=None)
    sizes = [t.num_bytes if largest is None else min(t.num_bytes, largest) for t in op.inputs]
    call = _streaming(op, OpFamily.UNKNOWN, op.name, num_runs=1)
    return replace(call, num_bytes=sum(sizes) + sum(t.num_bytes for t in op.outputs))


def _matrix_call(op: TraceOp) -> KernelCall | None:
    """Return the product of an operator's last two matrices; None: it has fewer."""
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
        family=OpFamily.GEMM,
        num_elements=product.num_elements,
        num_runs=1,
        num_bytes=float(product.num_elements * matrices[0].element_bytes),
        element_type=matrices[0].element_type,
        product=product,
    )


def _elementwise(op: TraceOp, family: OpFamily) -> KernelCall:
    """Return the call of a kernel that reads and writes its tensors element by element."""
    tensors = (*op.outputs, *op.inputs)
    runs, strided = num_runs(tensors)
    name = op.name + ("/strided" if strided else "")
    return _streaming(op, family, name, num_runs=1 if strided else runs)


def _reduction(op: TraceOp, family: OpFamily) -> KernelCall:
    """Return a sum's kernel: over rows, or over columns, with an output as wide as a row."""
    source = op.inputs[0].shape if op.inputs else ()
    dims = op.arguments[1] if len(op.arguments) > 1 else None
    axes = [dims] if isinstance(dims, int) else dims if isinstance(dims, list) else []
    last = len(source) - 1
    inner = not axes or any(axis in {last, -1} for axis in axes)
    rows = prod(source[:-1])
    return _streaming(op, family, op.name if inner else f"{op.name}/columns", num_runs=max(1, rows))


def _rows(op: TraceOp, family: OpFamily) -> KernelCall:
    """Return a normalization's kernel: each row of the last dimension by itself."""
    shape = op.inputs[0].shape if op.inputs else ()
    return _streaming(op, family, op.name, num_runs=max(1, prod(shape[:-1])))


def _gathered(op: TraceOp, family: OpFamily) -> KernelCall:
    """Return a gather's kernel by the rows read or written, not the table that they are in."""
    if op.name.endswith("_"):
        moved = op.inputs[-1:]
    else:
        moved = op.inputs[:1] if "backward" in op.name else op.outputs[:1]
    shape = moved[0].shape if moved else ()
    size = moved[0].num_bytes if moved else 0.0
    return KernelCall(
        operator=op.name,
        family=family,
        num_elements=prod(shape),
        num_runs=max(1, prod(shape[:-1])),
        num_bytes=2 * size,
        element_type=moved[0].element_type if moved else "",
    )


def _labels(op: TraceOp, family: OpFamily) -> KernelCall:
    """Return the kernel of a loss that looks at one element of each row."""
    rows = op.inputs[0].shape[0] if op.inputs and op.inputs[0].shape else 1
    if op.name.endswith("nll_loss_backward") and len(op.inputs) > 1:
        rows = prod(op.inputs[1].shape[:1])
    return KernelCall(
        operator=op.name,
        family=family,
        num_elements=rows,
        num_runs=1,
        num_bytes=12.0 * rows,
        element_type=op.inputs[0].element_type if op.inputs else "",
    )


def _updates(op: TraceOp, family: OpFamily) -> KernelCall:
    """Return an optimizer's kernel by the elements of all its lists of tensors."""
    written = sum(tensor.num_bytes for tensor in op.inputs)
    return _streaming(
        op, family, op.name, num_runs=max(1, len(op.inputs) // 4), extra_bytes=written
    )


def _streaming(
    op: TraceOp, family: OpFamily, name: str, *, num_runs: int, extra_bytes: Bytes = 0.0
) -> KernelCall:
    """Return the call of a kernel that moves its tensors' bytes, and some more, through memory."""
    tensors = (*op.inputs, *op.outputs)
    of_lists = family is OpFamily.OPTIMIZER or name.startswith("aten::cat")
    overwrites = family is OpFamily.COPY and op.name.endswith("_")
    moved = (*op.inputs[overwrites:], *op.outputs)
    sizes = [t.num_elements for t in (op.inputs if of_lists else tensors)]
    return KernelCall(
        operator=name,
        family=family,
        num_elements=sum(sizes) if of_lists else max(sizes, default=0),
        num_runs=num_runs,
        num_bytes=sum(t.num_bytes for t in moved) + extra_bytes,
        element_type=tensors[0].element_type if tensors else "",
    )


_SHAPED: Mapping[OpFamily, Callable[[TraceOp, OpFamily], KernelCall]] = {
    OpFamily.REDUCTION: _reduction,
    OpFamily.SOFTMAX: _rows,
    OpFamily.NORMALIZATION: _rows,
    OpFamily.EMBEDDING: _gathered,
    OpFamily.LOSS: _labels,
    OpFamily.OPTIMIZER: _updates,
}
