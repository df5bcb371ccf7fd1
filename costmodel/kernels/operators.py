"""How long the operators of a list take on a GPU, and their host to issue them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Bound, Estimate, Gpu, HardwareProfile, Source
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_estimate
from costmodel.kernels.listed_collectives import COLLECTIVE_OPS, collective_of
from costmodel.kernels.pointwise import (
    batched_product_time,
    concat_time,
    index_backward_time,
    pointwise_time,
    row_sum_time,
    scalar_time,
)
from costmodel.operators.compiled import FusedOperators
from costmodel.operators.operator_families import OperatorFamily, family_of, plain_name
from costmodel.operators.operator_list import (
    DenseOperator,
    ElementType,
    OperatorList,
    Pass,
)
from costmodel.operators.products import Product, products_of
from costmodel.operators.work import moved, num_elements

LARGE_PRODUCT = 128
"""Batched products with a side of at most this pad to small tiles (``batched_product_time``)."""
ATTENTION_BLOCK = 128
"""Queries, and keys, that a block of fused attention takes (FlashAttention's for heads of 64; of
other widths 64 to 256)."""
ATTENTION_BACKWARD = 0.6
"""Rate of fused attention's backward over that of its products on a GPU: 0.54 to 0.62 for 2,048 and
more queries on an H100 (hstu_attention.csv, 27 points); the forward has theirs, 0.87 to 1.04."""
HALF_TYPES = {ElementType.FLOAT16: DataType.FP16, ElementType.BFLOAT16: DataType.BF16}


def products_estimate(products: Product, data_type: DataType, gpu: Gpu) -> Estimate:
    """Predict products that one kernel makes; those that are large as one with all their rows."""
    count, m, n, k = products.count, products.m, products.n, products.k
    if count == 1:
        return gemm_estimate(m, n, k, data_type, gpu)
    if max(m, n) <= LARGE_PRODUCT:
        seconds = batched_product_time(count, m, n, k, data_type, gpu)
    else:
        seconds = gemm_estimate(count * m, n, k, data_type, gpu).seconds
    return Estimate(seconds=seconds, bound_by=Bound.ARITHMETIC, source=Source.FITTED)


def operator_estimate(operator: DenseOperator[int], precision: DataType, gpu: Gpu) -> Estimate:
    """Predict an operator's kernels: its products, or else its bytes and elements.

    What bounds it is what bounds the longest of its products.

    Parameters
    ----------
    precision
        Arithmetic of products of FP32; those of half precision have their own.

    Raises
    ------
    ValueError
        The GPU has no matrix-product constants.

    """
    products = [each for each in products_of(operator) if each.flop]
    if not products:
        return bytes_estimate(operator, gpu)
    if family_of(operator.name) is OperatorFamily.ATTENTION and not gpu.is_core:
        products = list(_in_blocks(products))
    data_type = _arithmetic(operator, precision, gpu)
    estimates = [products_estimate(each, data_type, gpu) for each in products]
    longest = max(estimates, key=lambda each: each.seconds)
    seconds = sum(each.seconds for each in estimates)
    if family_of(operator.name) is OperatorFamily.ATTENTION:
        seconds *= _attention_factor(operator, gpu)
    return replace(longest, seconds=_element_seconds(operator, gpu) + seconds)


def listed_estimate(
    operator: DenseOperator[int], precision: DataType, hardware: HardwareProfile
) -> Estimate:
    """Predict an operator of a list: its kernels, or a collective on nodes of the profile's size.

    Ranks that do not fill such nodes evenly are taken to be on one.
    """
    joined = collective_of(operator)
    if joined is None:
        return operator_estimate(operator, precision, hardware.gpu)
    fills = joined.num_ranks % min(hardware.gpus_per_node, joined.num_ranks) == 0
    return joined.estimate(hardware.gpus_per_node if fills else joined.num_ranks, hardware)


def _in_blocks(products: Sequence[Product]) -> Iterator[Product]:
    """Yield attention's products with queries and keys of whole blocks, where they are of several.

    So rows of any number are as those that are aligned.
    """
    lengths = {products[0].m, products[0].n}
    for each in products:
        m, n, k = (
            ATTENTION_BLOCK * ceil(side / ATTENTION_BLOCK)
            if side in lengths and side > ATTENTION_BLOCK
            else side
            for side in (each.m, each.n, each.k)
        )
        yield replace(each, m=m, n=n, k=k)


def _attention_factor(operator: DenseOperator[int], gpu: Gpu) -> float:
    """Return what attention takes over products of all its queries and keys.

    Causal attention leaves out blocks of keys that are after all queries of a block: of n blocks
    n (n + 1) / 2 are made of n n.
    """
    is_slower = operator.name.endswith("_backward") and not gpu.is_core
    factor = 1.0 / ATTENTION_BACKWARD if is_slower else 1.0
    if not operator.causal:
        return factor
    scores = next(products_of(operator))
    blocks = max(1, ceil(min(scores.m, scores.n) / ATTENTION_BLOCK))
    return factor * (blocks + 1) / (2.0 * blocks)


def _arithmetic(operator: DenseOperator[int], precision: DataType, gpu: Gpu) -> DataType:
    """Return the arithmetic of an operator's products.

    Convolutions of FP32 are made in TF32 on GPUs that have it, and products are not, until a script
    says otherwise (torch 2.13, backends: ``cudnn.allow_tf32``, ``cuda.matmul.allow_tf32``).
    """
    asked = HALF_TYPES.get(operator.inputs[0].data_type, precision)
    is_convolution = family_of(operator.name) is OperatorFamily.CONVOLUTION
    if is_convolution and asked is DataType.FP32 and DataType.TF32 in gpu.gemm:
        return DataType.TF32
    return asked


def bytes_estimate(operator: DenseOperator[int], gpu: Gpu) -> Estimate:
    """Predict an operator's kernel by the bytes that it moves, and what its elements take more."""
    return _by_memory(_memory_seconds(operator, gpu), _element_seconds(operator, gpu))


def _by_memory(memory: Seconds, more: Seconds) -> Estimate:
    """Return the estimate of a kernel that memory bounds, or its elements besides."""
    return Estimate(
        seconds=memory + more,
        bound_by=Bound.ARITHMETIC if more else Bound.HBM_BANDWIDTH,
        source=Source.FITTED if more else Source.ROOFLINE,
    )


def fused_estimate(kernel: FusedOperators, precision: DataType, gpu: Gpu) -> Estimate:
    """Predict a kernel of ``torch.compile``: that of its only operator, or by bytes and elements.

    Parameters
    ----------
    precision
        Arithmetic of products of FP32.

    """
    if len(kernel.operators) == 1:
        return operator_estimate(kernel.operators[0], precision, gpu)
    more = sum(_element_seconds(each, gpu) for each in kernel.operators)
    return _by_memory(pointwise_time(sum(kernel.moved), gpu), more)


def _element_seconds(operator: DenseOperator[int], gpu: Gpu) -> Seconds:
    """Return what all elements of an operator take beyond memory (``Gpu.element_times``)."""
    each = gpu.element_times.get(plain_name(operator.name), 0.0)
    return each * num_elements(operator) if each else 0.0


def _memory_seconds(operator: DenseOperator[int], gpu: Gpu) -> Seconds:
    """Return the time of an operator's kernel that its bytes decide, or how it goes to memory."""
    name, num_bytes = plain_name(operator.name), sum(moved(operator))
    if name in {"cat", "stack"}:
        return concat_time(num_bytes, gpu)
    if gpu.is_core:
        return pointwise_time(num_bytes, gpu)
    if name == "_index_put_impl":
        return index_backward_time(num_elements(operator), gpu)
    if _adds_rows(operator):
        (matrix, *_), (rows, columns) = operator.inputs, operator.inputs[0].sizes
        return row_sum_time(rows, columns, matrix.data_type.num_bytes, gpu)
    if _converts(operator):
        return scalar_time(num_elements(operator), num_bytes, gpu)
    return pointwise_time(num_bytes, gpu)


def _adds_rows(operator: DenseOperator[int]) -> bool:
    """Tell whether an operator adds up the rows of a matrix, as a bias's gradient is made."""
    if operator.name != "aten::sum" or not (operator.inputs and operator.outputs):
        return False
    sizes = operator.inputs[0].sizes
    return len(sizes) == 2 and operator.outputs[0].elements == sizes[1]


def _converts(operator: DenseOperator[int]) -> bool:
    """Tell whether a copy gives elements of another type than it reads."""
    is_copy = family_of(operator.name) is OperatorFamily.COPY
    if not (is_copy and operator.inputs and operator.outputs):
        return False
    return operator.inputs[-1].data_type is not operator.outputs[0].data_type


_BY_ELEMENTS = frozenset((
    OperatorFamily.ELEMENTWISE, OperatorFamily.NORMALIZATION, OperatorFamily.GATHER,
    OperatorFamily.SCATTER, OperatorFamily.LOSS, OperatorFamily.POOLING,
))  # fmt: skip
"""Families whose operators a core computes no faster than its memory gives elements."""


def is_known(operator: DenseOperator[int], gpu: Gpu) -> bool:
    """Tell whether a model knows an operator: it multiplies, or what bounds it was measured.

    Memory bounds a GPU's kernels unless ``Gpu.element_times`` says otherwise.
    """
    family = family_of(operator.name)
    if family is OperatorFamily.OTHER:
        return plain_name(operator.name) in gpu.element_times
    by_elements = gpu.is_core and family in _BY_ELEMENTS
    return not by_elements or plain_name(operator.name) in gpu.element_times


class PassTime(NamedTuple):
    """What a list's forward, or its backward, takes."""

    kernels: Seconds
    """On the GPU, one after the other, with the collectives that they wait for."""
    host: Seconds
    """To issue them: an operator and a launch each."""


def pass_times(
    operators: OperatorList[int], precision: DataType, hardware: HardwareProfile
) -> dict[Pass, PassTime]:
    """Return what forward and backward take, each by itself: the larger of its two times."""
    host, found = hardware.host, {}
    for direction in Pass:
        backward = direction is Pass.BACKWARD
        listed = host.listed_time(backward=backward)
        joined = COLLECTIVE_OPS * (host.backward_op_time if backward else host.op_time)
        own = [each for each in operators.operators if each.direction is direction]
        found[direction] = PassTime(
            kernels=sum(listed_estimate(each, precision, hardware).seconds for each in own),
            host=sum(
                host.launch_time + (joined if collective_of(each) else listed) for each in own
            ),
        )
    return found
