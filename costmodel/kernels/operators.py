"""How long the operators of a list take on a GPU, and their host to issue them."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
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
from costmodel.operators.work import OperatorFamily, family_of, moved

LARGE_PRODUCT = 128
"""Batched products with a side of at most this pad to small tiles (``batched_product_time``)."""
_HALF = {ElementType.FLOAT16: DataType.FP16, ElementType.BFLOAT16: DataType.BF16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """``count`` independent products C[m, n] = A[m, k] B[k, n]."""

    count: int = 1
    m: int
    n: int
    k: int

    @property
    def flop(self) -> float:
        """Return multiplications and additions together."""
        return 2.0 * self.count * self.m * self.n * self.k

    @property
    def num_elements(self) -> int:
        """Return the elements of A, B and C together."""
        return self.count * (self.m * self.k + self.k * self.n + self.m * self.n)


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


def products_of(operator: DenseOperator[int]) -> Iterator[Product]:
    """Yield the products that an operator makes; of convolutions and attention those inside."""
    match family_of(operator.name):
        case OperatorFamily.PRODUCT:
            first = 0 if operator.name == "aten::_scaled_mm" else -2
            left, right = operator.inputs[first:][:2]
            *count, m, k = left.sizes
            yield Product(count=prod(count), m=m, n=right.sizes[-1], k=k)
        case OperatorFamily.ATTENTION:
            yield from _attention(operator)
        case OperatorFamily.CONVOLUTION:
            yield from _convolution(operator)


def _attention(operator: DenseOperator[int]) -> Iterator[Product]:
    """Yield scores and their product with the values; of a backward the gradients of all four."""
    backward = operator.name.endswith("_backward")
    query, key, value = (each.sizes for each in operator.inputs[backward : backward + 3])
    rows, keys, width, value_width = query[2], key[2], query[3], value[3]
    shapes = [(rows, keys, width)]
    if backward:
        of_scores, of_values = (rows, keys, value_width), (keys, value_width, rows)
        shapes += [of_scores, of_values, (rows, width, keys), (keys, width, rows)]
    else:
        shapes += [(rows, value_width, keys)]
    for m, n, k in shapes:
        yield Product(count=prod(query[:2]), m=m, n=n, k=k)


def _convolution(operator: DenseOperator[int]) -> Iterator[Product]:
    """Yield the product with the unfolded input; of a backward one for each gradient."""
    backward = operator.name.endswith("_backward")
    data, weight = (each.sizes for each in operator.inputs[backward : backward + 2])
    result = (operator.inputs[0] if backward else operator.outputs[0]).sizes
    across = data if operator.transposed else result
    rows, outputs, inside = across[0] * prod(across[2:]), weight[0], prod(weight[1:])
    given = {each.sizes for each in operator.outputs}
    if not backward:
        yield Product(m=rows, n=outputs, k=inside)
    if backward and data in given:
        yield Product(m=rows, n=inside, k=outputs)
    if backward and weight in given:
        yield Product(m=outputs, n=inside, k=rows)


def operator_time(operator: DenseOperator[int], precision: DataType, gpu: Gpu) -> Seconds:
    """Return the time of an operator's kernels: its products', or else that of its bytes.

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
        data_type = _HALF.get(operator.inputs[0].data_type, precision)
        return sum(products_estimate(each, data_type, gpu).seconds for each in products)
    num_bytes = sum(moved(operator))
    if operator.name in {"aten::cat", "aten::stack"}:
        return concat_time(num_bytes, gpu)
    return pointwise_time(num_bytes, gpu)


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
            kernels=sum(operator_time(each, precision, hardware.gpu) for each in own),
            host=len(own) * (issue[direction] + host.launch_time),
        )
    return found
