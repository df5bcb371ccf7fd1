"""What an operator does: multiplications and bytes, by its name and sizes.

References
----------
torch 2.13, utils/flop_counter.py: what counts as FLOP. A grouped convolution's weight gradient is
counted there as if it had no groups; here it is not. aten/src/ATen/native/native_functions.yaml:
names, and the order of inputs.

"""

from typing import NamedTuple

from costmodel.base.units import Bytes
from costmodel.operators.held_bytes import held_bytes
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import (
    DenseOperator,
    OperatorList,
    OperatorTensor,
    Pass,
)
from costmodel.operators.products import products_of


def flop(operator: DenseOperator[int]) -> float:
    """Return the FLOP of an operator's products (``products_of``), two for each multiplication."""
    return sum(each.flop for each in products_of(operator))


class Moved(NamedTuple):
    """Bytes between memory and kernels."""

    read: Bytes
    written: Bytes


def moved(operator: DenseOperator[int]) -> Moved:
    """Return the bytes that an operator reads and writes, each tensor once.

    What is copied side by side, slices of one tensor among it, is read as often as it is given.
    """
    family, inputs, outputs = family_of(operator.name), operator.inputs, operator.outputs
    written = _bytes(*outputs)
    if family is OperatorFamily.FILL:
        return Moved(0.0, written)
    if family is OperatorFamily.GATHER:
        return Moved(min(_bytes(*inputs[:1]), written) + _bytes(*inputs[1:]), written)
    if family is OperatorFamily.SCATTER and operator.name.endswith("_"):
        changed = min(_bytes(*inputs[:1]), _bytes(*inputs[-1:]))
        return Moved(changed + _bytes(*inputs[1:]), changed)
    if operator.name == "aten::copy_":
        return Moved(_bytes(*inputs[1:]), written)
    alike = {(each.storage, each.sizes): each for each in inputs}.values()
    read = _bytes(*(inputs if family is OperatorFamily.COPY else alike))
    if family is OperatorFamily.LOSS:
        read -= max((each.num_bytes for each in inputs), default=0.0)
    if family is OperatorFamily.OPTIMIZER:
        written = read
    return Moved(read, written)


def num_elements(operator: DenseOperator[int]) -> float:
    """Return how many elements an operator works on one by one.

    Of gathers what they give, of scatters what they add, of attention the scores, of others the
    largest tensor.
    """
    family, inputs, outputs = family_of(operator.name), operator.inputs, operator.outputs
    if family is OperatorFamily.ATTENTION:
        scores = next(products_of(operator))
        return float(scores.count * scores.m * scores.n)
    if family is OperatorFamily.GATHER:
        return max((each.elements for each in outputs), default=0.0)
    if family is OperatorFamily.SCATTER:
        added = inputs[:1] if operator.name.endswith("_backward") else inputs[1:]
        return max((each.elements for each in added), default=0.0)
    return max((each.elements for each in (*inputs, *outputs)), default=0.0)


def _bytes(*tensors: OperatorTensor[int]) -> Bytes:
    return sum((each.num_bytes for each in tensors), 0.0)


class ListWork(NamedTuple):
    """What all operators of a list do."""

    forward_flop: float
    backward_flop: float
    moved: Bytes
    kept: Bytes
    """Bytes of activations between forward and backward."""

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
        kept=held_bytes(operators).at_loss,
    )
