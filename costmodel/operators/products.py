"""The matrix products that operators make: themselves, or inside attention and convolutions.

References
----------
torch 2.13, utils/flop_counter.py: what counts as FLOP. A grouped convolution's weight gradient is
counted there as if it had no groups; here it is not. aten/src/ATen/native/native_functions.yaml:
the order of inputs.

"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import DenseOperator, OperatorTensor, S


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


def products_of(operator: DenseOperator[int]) -> Iterator[Product]:
    """Yield the products that an operator makes; of convolutions and attention those inside."""
    match family_of(operator.name):
        case OperatorFamily.PRODUCT:
            left, right = (each.sizes for each in factors(operator))
            *count, m, k = left if len(left) > 1 else (1, *left)
            yield Product(count=prod(count), m=m, n=right[-1] if len(right) > 1 else 1, k=k)
        case OperatorFamily.ATTENTION:
            yield from _attention(operator)
        case OperatorFamily.CONVOLUTION:
            yield from _convolution(operator)


class _Form(NamedTuple):
    """What an operator must have for its products to be known."""

    num_factors: int
    dimensions: int
    """Each of them has at least so many, and so has a convolution's output."""


_FORMS = {
    OperatorFamily.PRODUCT: _Form(2, 2),
    OperatorFamily.ATTENTION: _Form(3, 4),
    OperatorFamily.CONVOLUTION: _Form(2, 3),
}
MULTIPLYING = frozenset(_FORMS)
"""Families of the operators that make products."""
_OF_VECTORS = dict.fromkeys(("aten::mv", "aten::addmv", "aten::dot"), _Form(2, 1))


def factors(operator: DenseOperator[S]) -> tuple[OperatorTensor[S], ...]:
    """Return the inputs that an operator's products are made of; of a backward those after one."""
    family, backward = family_of(operator.name), operator.name.endswith("_backward")
    if family is OperatorFamily.PRODUCT and operator.name != "aten::_scaled_mm":
        return operator.inputs[-2:]
    return operator.inputs[backward:][: _FORMS[family].num_factors]


def check_form(operator: DenseOperator[S]) -> None:
    """Raise ValueError unless an operator has the inputs that its name asks for."""
    family, backward = family_of(operator.name), operator.name.endswith("_backward")
    if operator.ranks > 1 and family is not OperatorFamily.COLLECTIVE:
        raise ValueError(f"`{operator.name}` has {operator.ranks} ranks, and is no collective")
    form = _OF_VECTORS.get(operator.name) or _FORMS.get(family)
    if form is None:
        return
    dimensions = [len(each.sizes) for each in factors(operator)]
    if family is OperatorFamily.CONVOLUTION:
        results = operator.inputs if backward else operator.outputs
        dimensions += [len(each.sizes) for each in results[:1]]
    few = len(operator.inputs) < form.num_factors + backward or not operator.outputs
    if few or min(dimensions) < form.dimensions:
        raise ValueError(
            f"`{operator.name}` needs an output and {form.num_factors + backward} inputs of "
            f"{form.dimensions} dimensions"
        )


def _attention(operator: DenseOperator[int]) -> Iterator[Product]:
    """Yield scores and their product with the values; of a backward the gradients of all four."""
    backward = operator.name.endswith("_backward")
    query, key, value = (each.sizes for each in factors(operator))
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
    data, weight = (each.sizes for each in factors(operator))
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
