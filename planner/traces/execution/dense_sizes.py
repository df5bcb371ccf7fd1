"""Sizes of a traced step's tensors at any batch: from one batch, by what is computed of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import ElementType, OperatorTensor, Pass, Size
from planner.traces.execution.dense_items import DenseItem, DenseItems, is_integer
from planner.traces.execution.operator_trace import Tensor
from planner.traces.execution.trace_operators import element_type, expanded, results
from planner.traces.execution.walk import Gradient

_DRAWS = {
    f"aten::{name}"
    for name in ("uniform_", "normal_", "random_", "bernoulli_", "rand", "randn", "randint")
}
"""Operators that fill tensors with random numbers."""


@dataclass
class TracedMemory:
    """Memory of the dense part's tensors: what makes it, and whether it grows with the batch."""

    found: DenseItems
    gradients: Sequence[Gradient]
    """Those of parameters outside of tables."""
    samples: int = 0
    """Samples of the step's batch; 0: they are not known, and no size grows."""
    growing: dict[int, int] = field(default_factory=dict)
    """The size that grows, of memory with a batch's data, where it is made."""
    _outside: dict[int, int] = field(default_factory=dict)
    """Numbers of memory that the dense part does not make."""

    def infer_samples(self) -> None:
        """Take the commonest first size of what the dense part is given for the batch's.

        Of shapes, as many tensors as have one; as they were before anything looked at them. Masks
        are left out.
        """
        shapes = {
            each.shape
            for each in self.given(whole=True).values()
            if each.shape and element_type(each) is not ElementType.BOOL
        }
        counted = Counter(shape[0] for shape in shapes)
        self.samples = max(counted, key=lambda size: (counted[size], size), default=0)

    def given(self, *, whole: bool = False) -> dict[int, Tensor]:
        """Return what forward is given beside parameters, by memory, as it is first read.

        And what it draws: a script's batch, or noise. ``whole``: as any operator of the step first
        has it, if it was there before.
        """
        found: dict[int, Tensor] = {}
        for item in self.found.items:
            if item.direction is not Pass.FORWARD:
                break
            if item.op.name in _DRAWS:
                found.update({item.number(each): each for each in results(item.op)})
            for each in item.op.inputs:
                number = item.number(each)
                seen = self.found.first[each.storage] if whole and number < 0 else each
                constant = self._is_parameter(seen.shape) and not is_integer(each)
                if not self._is_made(number) and not constant:
                    found.setdefault(number, seen)
        return found

    def grow(self) -> None:
        """Find the memory that holds a batch's data: what is given, and what is made of it."""
        constant = {each.memory for each in self.gradients}
        for number, each in self.given().items():
            if each.shape and self._multiple(each.shape[0]):
                self.growing[number] = each.shape[0]
        before = -1
        while before < len(self.growing):
            before = len(self.growing)
            for item in self.found.items:
                if any(self._grows(item, each) for each in item.op.inputs):
                    for each in results(item.op):
                        place = self.first_multiple(each)
                        if place is not None and item.number(each) not in constant:
                            self.growing.setdefault(item.number(each), each.shape[place])

    def number(self, memory: int) -> int:
        """Return the number of memory in a list: negative where the dense part does not make it."""
        if self._is_made(memory):
            return memory
        return self._outside.setdefault(memory, -1 - len(self._outside))

    def tensor(
        self, item: DenseItem, tensor: Tensor, data_type: ElementType
    ) -> OperatorTensor[Size]:
        """Return a tensor of a kernel with sizes for any batch."""
        growing = self._growing_place(item, tensor)
        return self.sized(item.number(tensor), tensor, data_type, growing)

    def sized(
        self, memory: int, tensor: Tensor, data_type: ElementType, growing: int | None
    ) -> OperatorTensor[Size]:
        """Return a tensor one of whose sizes grows with the batch; None: no one does."""
        sizes = [Size(constant=each) for each in tensor.shape]
        if growing is not None:
            sizes[growing] = Size(samples=tensor.shape[growing] / self.samples)
        return OperatorTensor(
            sizes=tuple(sizes),
            data_type=data_type,
            storage=self.number(memory),
            expanded=expanded(tensor),
        )

    def _growing_place(self, item: DenseItem, tensor: Tensor) -> int | None:
        """Return which size of a tensor grows; None: no one does.

        The one that grows in what the kernel makes, or in its memory where that was made, or else
        the first. Of a product that holds no batch's data, a weight's gradient, the one added up.
        """
        grown = self.growing.get(item.number(tensor))
        if grown is None:
            return None
        made = next((each for each in results(item.op) if self._grows(item, each)), None)
        if made is None and _is_product(item, tensor):
            added = len(tensor.shape) - (1 if tensor is item.op.inputs[-2] else 2)
            return added if self._multiple(tensor.shape[added]) else None
        if made is not None and len(made.shape) == len(tensor.shape):
            place = self._place(made, self.growing[item.number(made)])
            if place is not None and made.shape[place] == tensor.shape[place]:
                return place
        return self._place(tensor, grown)

    def _grows(self, item: DenseItem, tensor: Tensor) -> bool:
        return item.number(tensor) in self.growing

    def _place(self, tensor: Tensor, grown: int) -> int | None:
        """Return the place of the size that grew when memory was made, or else the first."""
        return tensor.shape.index(grown) if grown in tensor.shape else self.first_multiple(tensor)

    def first_multiple(self, tensor: Tensor) -> int | None:
        """Return the first size of a batch's data that grows with the samples; None: no one."""
        if self._is_parameter(tensor.shape) and tensor.shape[:1] != (self.samples,):
            return None
        found = (place for place, each in enumerate(tensor.shape) if self._multiple(each))
        return next(found, None)

    def _multiple(self, size: int) -> bool:
        return bool(self.samples and size and size % self.samples == 0)

    def _is_made(self, memory: int) -> bool:
        """Return whether the dense part writes to memory first, that was not there before."""
        return memory >= 0 and memory in self.found.made and memory not in self.found.embeddings

    def _is_parameter(self, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor has the shape of a parameter, or of it transposed."""
        return tuple(sorted(shape)) in self._parameter_shapes

    @cached_property
    def _parameter_shapes(self) -> set[tuple[int, ...]]:
        return {tuple(sorted(each.tensor.shape)) for each in self.gradients}


def _is_product(item: DenseItem, tensor: Tensor) -> bool:
    """Return whether a kernel multiplies a tensor as a matrix."""
    is_product = family_of(item.op.name) is OperatorFamily.PRODUCT
    return is_product and len(item.op.inputs) > 1 and len(tensor.shape) > 1
