"""What an operator does: multiplications and bytes, by its name and sizes.

References
----------
torch 2.13, utils/flop_counter.py: what counts as FLOP. A grouped convolution's weight gradient is
counted there as if it had no groups; here it is not. aten/src/ATen/native/native_functions.yaml:
names, and the order of inputs.

"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from costmodel.base.units import Bytes
from costmodel.operators.operator_list import (
    DenseOperator,
    OperatorList,
    OperatorTensor,
    Pass,
    S,
    product,
)


class OperatorFamily(StrEnum):
    """Operators that work alike."""

    PRODUCT = "products"
    ATTENTION = "attention"
    CONVOLUTION = "convolutions"
    GATHER = "gathers"
    """They read as much of their first input as they write."""
    SCATTER = "scatters"
    """They write as much of their first input, in place, as they read of the last."""
    FILL = "fills"
    """They write only."""
    COPY = "copies"
    NORMALIZATION = "normalizations"
    REDUCTION = "reductions"
    SYNCHRONIZATION = "synchronizations"
    """The host waits for what they give."""
    ELEMENTWISE = "elementwise"


_NAMES: Mapping[OperatorFamily, str] = {
    OperatorFamily.PRODUCT: "mm addmm bmm baddbmm _scaled_mm",
    OperatorFamily.ATTENTION: "_scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward",
    OperatorFamily.CONVOLUTION: "convolution _convolution cudnn_convolution "
    "convolution_overrideable convolution_backward",
    OperatorFamily.GATHER: "embedding index index_select gather take _unsafe_index",
    OperatorFamily.SCATTER: "index_put_ _index_put_impl_ index_add_ index_copy_ scatter_ "
    "scatter_add_",
    OperatorFamily.FILL: "fill_ zero_ zeros zeros_like new_zeros ones ones_like new_ones full "
    "full_like new_full arange eye rand randn rand_like randn_like randint randperm bernoulli_ "
    "uniform_ normal_ random_ scalar_tensor",
    OperatorFamily.COPY: "copy_ clone _to_copy cat stack contiguous repeat slice_backward "
    "select_backward constant_pad_nd flip roll slice_scatter select_scatter split_with_sizes_copy",
    OperatorFamily.NORMALIZATION: "_softmax _softmax_backward_data _log_softmax "
    "_log_softmax_backward_data native_layer_norm native_layer_norm_backward native_batch_norm "
    "native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward native_group_norm "
    "native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward",
    OperatorFamily.REDUCTION: "sum mean prod amax amin max min argmax argmin norm "
    "linalg_vector_norm var std var_mean logsumexp cumsum cumprod any all",
    OperatorFamily.SYNCHRONIZATION: "_local_scalar_dense nonzero masked_select equal is_nonzero "
    "_unique2 unique_consecutive unique_dim",
}  # fmt: skip
_FAMILY_OF = {f"aten::{name}": family for family, names in _NAMES.items() for name in names.split()}


def family_of(name: str) -> OperatorFamily:
    """Return the family of an operator; of one that is not known, elementwise."""
    return _FAMILY_OF.get(name, OperatorFamily.ELEMENTWISE)


def flop(operator: DenseOperator[int]) -> float:
    """Return the FLOP of products, attention and convolutions; 0 of all others.

    Two for each multiplication. Attention has two products of every query with every key, its
    backward five. A convolution's backward has one of its forward for each gradient that it gives.
    """
    counted = _FLOP.get(family_of(operator.name))
    return counted(operator) if counted else 0.0


def _product_flop(operator: DenseOperator[int]) -> float:
    first = 0 if operator.name == "aten::_scaled_mm" else -2
    left, right = operator.inputs[first:][:2]
    return 2.0 * product(left.sizes) * right.sizes[-1]


def _attention_flop(operator: DenseOperator[int]) -> float:
    """Return it of queries (b, h, s, d), keys (b, g, t, d) and values (b, g, t, e).

    Forward and backward, which computes the scores again:

        2 b h s t (d + e)    2 b h s t (3 d + 2 e)
    """
    backward = operator.name.endswith("_backward")
    query, key, value = operator.inputs[backward : backward + 3]
    pairs = product(query.sizes[:3]) * key.sizes[2]
    width, value_width = query.sizes[3], value.sizes[3]
    return 2.0 * pairs * (3 * width + 2 * value_width if backward else width + value_width)


def _convolution_flop(operator: DenseOperator[int]) -> float:
    backward = operator.name.endswith("_backward")
    data, weight = operator.inputs[backward : backward + 2]
    result = operator.inputs[0] if backward else operator.outputs[0]
    across = data if operator.transposed else result
    once = 2.0 * product(weight.sizes) * across.sizes[0] * product(across.sizes[2:])
    given = {each.sizes for each in operator.outputs}
    return once * len(given & {data.sizes, weight.sizes}) if backward else once


_FLOP: Mapping[OperatorFamily, Callable[[DenseOperator[int]], float]] = {
    OperatorFamily.PRODUCT: _product_flop,
    OperatorFamily.ATTENTION: _attention_flop,
    OperatorFamily.CONVOLUTION: _convolution_flop,
}


class Moved(NamedTuple):
    """Bytes between memory and kernels."""

    read: Bytes
    written: Bytes


def moved(operator: DenseOperator[int]) -> Moved:
    """Return the bytes that an operator reads and writes, each tensor once."""
    family, inputs, outputs = family_of(operator.name), operator.inputs, operator.outputs
    written = _bytes(*outputs)
    if family is OperatorFamily.FILL:
        return Moved(0.0, written)
    if family is OperatorFamily.GATHER:
        return Moved(min(_bytes(*inputs[:1]), written) + _bytes(*inputs[1:]), written)
    if family is OperatorFamily.SCATTER:
        changed = min(_bytes(*inputs[:1]), _bytes(*inputs[-1:]))
        return Moved(changed + _bytes(*inputs[1:]), changed)
    if operator.name == "aten::copy_":
        return Moved(_bytes(*inputs[1:]), written)
    return Moved(_bytes(*{(each.storage, each.sizes): each for each in inputs}.values()), written)


def _bytes(*tensors: OperatorTensor[int]) -> Bytes:
    return sum((each.num_bytes for each in tensors), 0.0)


class ListWork(NamedTuple):
    """What all operators of a list do."""

    forward_flop: float
    backward_flop: float
    moved: Bytes
    kept: Bytes
    """Between forward and backward (``kept_bytes``)."""

    @property
    def flop(self) -> float:
        """The FLOP of both passes."""
        return self.forward_flop + self.backward_flop


def work_of(operators: OperatorList[int]) -> ListWork:
    """Return what a list does in a step."""
    by_pass = dict.fromkeys(Pass, 0.0)
    for each in operators.operators:
        by_pass[each.direction] += flop(each)
    return ListWork(
        forward_flop=by_pass[Pass.FORWARD],
        backward_flop=by_pass[Pass.BACKWARD],
        moved=sum(sum(moved(each)) for each in operators.operators),
        kept=kept_bytes(operators),
    )


def kept_bytes(operators: OperatorList[int]) -> Bytes:
    """Return the bytes of activations that are held when the loss is there.

    Those that the forward makes and the backward reads, each as large as the operator makes it
    that allocates it. Embeddings, inputs and parameters are not among them.
    """
    made: dict[int, Bytes] = {}
    read: set[int] = set()
    for each in operators.operators:
        if each.direction is Pass.BACKWARD:
            read |= {tensor.storage for tensor in each.inputs}
            continue
        for tensor in each.outputs:
            if tensor.storage >= 0:
                made.setdefault(tensor.storage, tensor.num_bytes)
    return sum((size for storage, size in made.items() if storage in read), 0.0)


class _Form(NamedTuple):
    """What an operator must have for its FLOP to be counted."""

    least_inputs: int
    dimensions: int
    """Each of them has at least so many."""


_FORMS = {
    OperatorFamily.PRODUCT: _Form(2, 2),
    OperatorFamily.ATTENTION: _Form(3, 4),
    OperatorFamily.CONVOLUTION: _Form(2, 3),
}


def check_form(operator: DenseOperator[S]) -> None:
    """Raise ValueError unless an operator has the inputs that its name asks for."""
    family = family_of(operator.name)
    if family not in _FORMS:
        return
    form, backward = _FORMS[family], operator.name.endswith("_backward")
    inputs = operator.inputs[-2:] if family is OperatorFamily.PRODUCT else operator.inputs
    inputs = inputs[: form.least_inputs + backward]
    few = len(inputs) < form.least_inputs + backward or not operator.outputs
    if few or any(len(each.sizes) < form.dimensions for each in inputs):
        raise ValueError(
            f"`{operator.name}` needs an output and {form.least_inputs + backward} inputs of "
            f"{form.dimensions} dimensions"
        )
