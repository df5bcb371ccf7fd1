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
    """Those in place write as much of their first input as they read of the last."""
    FILL = "fills"
    """They write only."""
    COPY = "copies"
    NORMALIZATION = "normalizations"
    REDUCTION = "reductions"
    POOLING = "poolings"
    LOSS = "losses"
    """They look at one element of each row of their largest input."""
    OPTIMIZER = "optimizers"
    """They change in place what they read."""
    SYNCHRONIZATION = "synchronizations"
    """The host waits for what they give."""
    COLLECTIVE = "collectives"
    """Ranks wait for each other in them, as those of tensor parallelism do."""
    ELEMENTWISE = "elementwise"
    OTHER = "others"
    """Nothing is known of them but their tensors."""


_NAMES: Mapping[OperatorFamily, str] = {
    OperatorFamily.PRODUCT: "mm addmm bmm baddbmm _scaled_mm mv addmv dot",
    OperatorFamily.ATTENTION: "_scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward",
    OperatorFamily.CONVOLUTION: "convolution _convolution cudnn_convolution mkldnn_convolution "
    "miopen_convolution cudnn_convolution_transpose _slow_conv2d_forward _conv_depthwise2d "
    "convolution_overrideable convolution_backward",
    OperatorFamily.GATHER: "embedding index index_select gather take _unsafe_index _embedding_bag",
    OperatorFamily.SCATTER: "index_put _index_put_impl_ index_add index_copy scatter scatter_add "
    "embedding_dense_backward _embedding_bag_dense_backward",
    OperatorFamily.FILL: "fill_ zero_ zeros zeros_like new_zeros ones ones_like new_ones full "
    "full_like new_full arange eye rand randn rand_like randn_like randint randperm bernoulli_ "
    "uniform_ normal_ random_ scalar_tensor",
    OperatorFamily.COPY: "copy_ clone _to_copy cat stack contiguous repeat slice_backward "
    "select_backward constant_pad_nd flip roll tril triu slice_scatter select_scatter "
    "split_with_sizes_copy fbgemm::jagged_to_padded_dense_forward "
    "fbgemm::jagged_to_padded_dense_backward",
    OperatorFamily.NORMALIZATION: "_softmax _softmax_backward_data _log_softmax "
    "_log_softmax_backward_data native_layer_norm native_layer_norm_backward native_batch_norm "
    "native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward native_group_norm "
    "native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward",
    OperatorFamily.REDUCTION: "sum mean prod amax amin max min argmax argmin norm "
    "linalg_vector_norm var std var_mean logsumexp cumsum cumprod any all",
    OperatorFamily.POOLING: "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d "
    "avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward",
    OperatorFamily.LOSS: "nll_loss_forward nll_loss_backward nll_loss2d_forward "
    "nll_loss2d_backward",
    OperatorFamily.OPTIMIZER: "_fused_adamw_ _fused_adam_ _fused_sgd_ _fused_adagrad_",
    OperatorFamily.SYNCHRONIZATION: "_local_scalar_dense nonzero masked_select equal is_nonzero "
    "_unique2 unique_consecutive unique_dim",
    OperatorFamily.COLLECTIVE: "c10d::allreduce_ c10d::_allgather_base_ c10d::allgather_ "
    "c10d::_reduce_scatter_base_ c10d::reduce_scatter_ _c10d_functional::all_reduce "
    "_c10d_functional::all_gather_into_tensor _c10d_functional::reduce_scatter_tensor",
    OperatorFamily.ELEMENTWISE: "abs cos erf exp log neg reciprocal relu rsqrt sigmoid silu sin "
    "sqrt square sign tanh gelu elu leaky_relu hardtanh softplus clamp clamp_min clamp_max "
    "bitwise_not logical_not pow log1p expm1 log_sigmoid_forward isnan isinf floor round "
    "nan_to_num add sub rsub mul div remainder floor_divide fmod maximum minimum eq ne lt le gt "
    "ge masked_fill where bitwise_and bitwise_or logical_and logical_or lerp addcmul addcdiv "
    "native_dropout gelu_backward tanh_backward threshold_backward sigmoid_backward silu_backward "
    "elu_backward leaky_relu_backward hardtanh_backward softplus_backward log_sigmoid_backward "
    "native_dropout_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward "
    "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits",
}  # fmt: skip


def plain_name(name: str) -> str:
    """Return the name of an operator of aten that is neither in place nor of lists."""
    return name.removeprefix("aten::").removeprefix("_foreach_").removesuffix("_")


def family_of(name: str) -> OperatorFamily:
    """Return the family of an operator: in place, and of lists, that of the plain one."""
    return _FAMILY_OF.get(plain_name(name), OperatorFamily.OTHER)


_FAMILY_OF = {
    plain_name(name): family for family, names in _NAMES.items() for name in names.split()
}
