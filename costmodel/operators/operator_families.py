"""Families of operators that work alike, by the names of aten.

References
----------
torch 2.13, aten/src/ATen/native/native_functions.yaml: names.

"""

from collections.abc import Mapping
from enum import StrEnum


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
