"""Operators of execution traces: which launch kernels, and as operators of a dense part.

Families and names are those of ``costmodel.operators``. A trace also has the operators that call
others, which a list of a dense part does not have.
"""

from collections.abc import Callable, Iterable

from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import DenseOperator, ElementType, OperatorTensor, Pass, S
from planner.traces.execution.operator_trace import Tensor, TraceOp

FILLED_INSIDE = frozenset({"aten::embedding_dense_backward", "aten::nll_loss_backward"})
"""They call what fills their result, and then write as much of it as their first input has."""
_DESCEND = FILLED_INSIDE | {
    "aten::convolution_backward", "aten::max_pool2d_with_indices_backward",
    "aten::_adaptive_avg_pool2d_backward",
}  # fmt: skip
"""Operators with a kernel of their own that also call others with kernels of theirs."""
_WRAPPER_NAMES = """
_convolution convolution embedding index_add index_copy index_put new_full new_ones new_zeros
rand rand_like randint randn randn_like randperm repeat select_backward select_scatter
slice_backward slice_scatter split_with_sizes_copy stack
"""
"""Operators that call another of their family, if the trace has what they call."""
_WRAPPERS = frozenset(f"aten::{name}" for name in _WRAPPER_NAMES.split())
_LISTS = "aten::_foreach_"
"""Beginning of operators of lists, which call those of tensors where they have no kernel."""
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


def wraps(name: str) -> bool:
    """Return whether an operator is known, and may call others to do what it is known for."""
    return name in _WRAPPERS or (name.startswith(_LISTS) and _is_known(name))


def launches(name: str) -> bool:
    """Return whether an operator is known to have a kernel, whatever it calls."""
    return _is_known(name) and not (is_metadata(name) or wraps(name))


def _is_known(name: str) -> bool:
    return family_of(name) is not OperatorFamily.OTHER


_TYPES = {
    "float": ElementType.FLOAT32,
    "double": ElementType.FLOAT64,
    "c10::Half": ElementType.FLOAT16,
    "c10::BFloat16": ElementType.BFLOAT16,
    "c10::Float8_e4m3fn": ElementType.FLOAT8_E4M3FN,
    "c10::Float8_e5m2": ElementType.FLOAT8_E5M2,
    "c10::complex<float>": ElementType.COMPLEX64,
    "bool": ElementType.BOOL,
}
"""Types of elements by PyTorch's names in execution traces; all others go by their bytes."""
_TYPE_OF_BYTES = {
    1: ElementType.UINT8, 2: ElementType.INT16, 4: ElementType.INT32, 8: ElementType.INT64,
    16: ElementType.COMPLEX128,
}  # fmt: skip
_TRANSPOSED = {
    "aten::convolution": 6, "aten::_convolution": 6, "aten::convolution_backward": 7,
}  # fmt: skip
"""Where among the arguments ``transposed`` is."""


def dense_operator(op: TraceOp, direction: Pass) -> DenseOperator[int]:
    """Return an operator of a trace as one of a dense part.

    Tensors that begin at one place of one storage have one number.
    """
    memory: dict[tuple[int | None, int], int] = {}

    def tensor(found: Tensor, data_type: ElementType) -> OperatorTensor[int]:
        number = memory.setdefault(_place(found, len(memory)), len(memory))
        return OperatorTensor(
            sizes=found.shape, data_type=data_type, storage=number, expanded=expanded(found)
        )

    outputs = op.inputs[:1] if op.name in FILLED_INSIDE else results(op)
    return operator_with(op, direction, outputs, tensor)


def operator_with(
    op: TraceOp,
    direction: Pass,
    outputs: Iterable[Tensor],
    tensor: Callable[[Tensor, ElementType], OperatorTensor[S]],
) -> DenseOperator[S]:
    """Return an operator of a trace as one of a dense part, with tensors that a function makes.

    A tensor without a type is none.
    """

    def tensors(found: Iterable[Tensor]) -> tuple[OperatorTensor[S], ...]:
        typed = ((each, element_type(each)) for each in found)
        return tuple(tensor(each, data_type) for each, data_type in typed if data_type is not None)

    return DenseOperator(
        name=op.name,
        direction=direction,
        inputs=tensors(op.inputs),
        outputs=tensors(outputs),
        transposed=_is_transposed(op),
    )


def expanded(tensor: Tensor) -> tuple[int, ...]:
    """Return the dimensions along which a tensor has one element in memory."""
    return tuple(axis for axis, step in enumerate(tensor.strides) if step == 0)


def element_type(tensor: Tensor) -> ElementType | None:
    """Return the type of a tensor's elements; None: it is no tensor, but a place for one."""
    return _TYPES.get(tensor.element_type) or _TYPE_OF_BYTES.get(tensor.element_bytes)


def _place(tensor: Tensor, unknown: int) -> tuple[int | None, int]:
    """Return where a tensor begins; one of an unknown storage by a number of its own."""
    return tensor.storage, unknown if tensor.storage is None else tensor.offset


def results(op: TraceOp) -> tuple[Tensor, ...]:
    """Return the tensors that an operator gives.

    One in place without outputs, such as those of lists, gives its first argument.
    """
    if op.outputs or not op.name.endswith("_"):
        return op.outputs
    first = op.arguments[0] if op.arguments else None
    if isinstance(first, list) and first and isinstance(first[0], list):
        return op.inputs[: len(first)]
    return op.inputs[:1]


def _is_transposed(op: TraceOp) -> bool:
    place = _TRANSPOSED.get(op.name, len(op.arguments))
    return op.name.endswith("_transpose") or op.arguments[place : place + 1] == (True,)
