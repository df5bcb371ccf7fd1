"""How long the operators of a list take on a GPU, and their host to issue them."""

from dataclasses import replace
from typing import NamedTuple

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Bound, Estimate, Gpu, HardwareProfile, Source
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_estimate
from costmodel.kernels.pointwise import batched_product_time, concat_time, pointwise_time
from costmodel.operators.operator_list import (
    DenseOperator,
    ElementType,
    OperatorList,
    Pass,
)
from costmodel.operators.products import Product, products_of
from costmodel.operators.work import moved

LARGE_PRODUCT = 128
"""Batched products with a side of at most this pad to small tiles (``batched_product_time``)."""
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
    """Predict an operator's kernels: its products, or else its bytes.

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
    if products:
        data_type = HALF_TYPES.get(operator.inputs[0].data_type, precision)
        estimates = [products_estimate(each, data_type, gpu) for each in products]
        longest = max(estimates, key=lambda each: each.seconds)
        return replace(longest, seconds=sum(each.seconds for each in estimates))
    return bytes_estimate(operator, gpu)


def bytes_estimate(operator: DenseOperator[int], gpu: Gpu) -> Estimate:
    """Predict an operator's kernel by the bytes that it moves."""
    time = concat_time if operator.name in {"aten::cat", "aten::stack"} else pointwise_time
    seconds = time(sum(moved(operator)), gpu)
    return Estimate(seconds=seconds, bound_by=Bound.HBM_BANDWIDTH, source=Source.ROOFLINE)


class PassTime(NamedTuple):
    """What a list's forward, or its backward, takes."""

    kernels: Seconds
    """On the GPU, one after the other."""
    host: Seconds
    """To issue them: an operator and a launch each."""


def pass_times(
    operators: OperatorList[int], precision: DataType, hardware: HardwareProfile
) -> dict[Pass, PassTime]:
    """Return what forward and backward take, each by itself: the larger of its two times."""
    host = hardware.host
    issue = {Pass.FORWARD: host.op_time, Pass.BACKWARD: host.backward_op_time}
    found = {}
    for direction in Pass:
        own = [each for each in operators.operators if each.direction is direction]
        found[direction] = PassTime(
            kernels=sum(operator_estimate(each, precision, hardware.gpu).seconds for each in own),
            host=len(own) * (issue[direction] + host.launch_time),
        )
    return found
