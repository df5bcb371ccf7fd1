"""Operators that ``torch.compile`` makes one kernel of.

Inductor fuses elementwise operators, and reductions and normalizations with them, if they go over
the same elements: what only they read is neither written nor read again. Products, convolutions,
attention, gathers and concatenations stay kernels of their own. Here operators are fused that come
one after the other; Inductor also reorders them, and computes again in the backward what is cheap.

References
----------
torch 2.13, torch/_inductor/scheduler.py (``can_fuse``, ``fuse_nodes_once``); lowering.py: what is
lowered to loops over elements.

"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from costmodel.base.units import Bytes
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import DenseOperator, OperatorTensor
from costmodel.operators.work import Moved, moved

_FUSED = frozenset((
    OperatorFamily.ELEMENTWISE, OperatorFamily.FILL, OperatorFamily.REDUCTION,
    OperatorFamily.NORMALIZATION,
))  # fmt: skip
_COPIES = frozenset(("aten::clone", "aten::_to_copy", "aten::copy_"))
"""Copies that go over elements as others do, and not over several tensors."""


@dataclass(frozen=True, slots=True)
class FusedOperators:
    """Operators that are one kernel."""

    operators: tuple[DenseOperator[int], ...]
    moved: Moved
    """Bytes that the kernel reads and writes."""


def fused(
    operators: Sequence[DenseOperator[int]], later: Sequence[DenseOperator[int]] = ()
) -> Iterator[FusedOperators]:
    """Yield operators in their order, those together that are one kernel.

    Parameters
    ----------
    operators
        What is compiled in one piece.
    later
        Those after them, which may read what they write.

    """
    last_read = {
        tensor.storage: place
        for place, each in enumerate((*operators, *later))
        for tensor in each.inputs
    }
    place = 0
    while place < len(operators):
        end = _end(operators, place)
        yield _as_one(operators[place:end], last_read, place, end)
        place = end


def _end(operators: Sequence[DenseOperator[int]], place: int) -> int:
    """Return the place after the last operator that is fused with the one at a place."""
    first, end = operators[place], place + 1
    if _is_fusible(first):
        elements = _elements(first)
        while end < len(operators) and _is_fusible(operators[end]):
            if _elements(operators[end]) != elements:
                break
            end += 1
    return end


def _is_fusible(operator: DenseOperator[int]) -> bool:
    return family_of(operator.name) in _FUSED or operator.name in _COPIES


def _elements(operator: DenseOperator[int]) -> float:
    """Return how many elements the loop of an operator goes over."""
    return max((each.elements for each in (*operator.inputs, *operator.outputs)), default=0.0)


def _as_one(
    operators: Sequence[DenseOperator[int]], last_read: Mapping[int, int], place: int, end: int
) -> FusedOperators:
    """Return some operators as one kernel, from a place in the list to the one before an end."""
    if len(operators) == 1:
        return FusedOperators(tuple(operators), moved(operators[0]))
    read: dict[int, OperatorTensor[int]] = {}
    written: dict[int, OperatorTensor[int]] = {}
    for each in operators:
        for tensor in each.inputs:
            if tensor.storage not in written:
                read.setdefault(tensor.storage, tensor)
        written.update((tensor.storage, tensor) for tensor in each.outputs)
    kept = [
        tensor
        for storage, tensor in written.items()
        if not place <= last_read.get(storage, end) < end or storage in read
    ]
    return FusedOperators(tuple(operators), Moved(_bytes(read.values()), _bytes(kept)))


def _bytes(tensors: Iterable[OperatorTensor[int]]) -> Bytes:
    return sum((each.num_bytes for each in tensors), 0.0)
