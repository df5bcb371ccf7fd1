"""The operators of a training step's dense part, with sizes that hold for any batch.

Every size of a tensor is a combination of terms of a rank's batch (``BatchSize``): 1, samples, and
of sequences the longest one, that times the samples, and all ids. Of 38 of 41 configurations of
TorchEasyRec that was so for each of some 116,000 sizes, exactly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

from costmodel.base import limits
from costmodel.base.limits import check_at_most
from costmodel.base.units import Bytes


class ElementType(StrEnum):
    """Type of a tensor's elements, by torch's name."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    COMPLEX128 = "complex128"
    COMPLEX64 = "complex64"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def num_bytes(self) -> int:
        """Bytes of an element."""
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES = {
    ElementType.COMPLEX128: 16,
    **dict.fromkeys((ElementType.FLOAT64, ElementType.COMPLEX64, ElementType.INT64), 8),
    **dict.fromkeys((ElementType.FLOAT32, ElementType.INT32), 4),
    **dict.fromkeys((ElementType.FLOAT16, ElementType.BFLOAT16, ElementType.INT16), 2),
    **dict.fromkeys((ElementType.FLOAT8_E4M3FN, ElementType.FLOAT8_E5M2), 1),
    **dict.fromkeys((ElementType.INT8, ElementType.UINT8, ElementType.BOOL), 1),
}


class Pass(StrEnum):
    """Whether an operator runs before or after the loss."""

    FORWARD = "forward"
    BACKWARD = "backward"


class SequenceSize(NamedTuple):
    """How long the sequences of a group of features are, which have the same lengths."""

    longest: int = 0
    """Ids of the longest sequence of a feature."""
    ids: int = 0
    """Ids of all sequences of all of the group's features."""


class BatchSize(NamedTuple):
    """What sizes are combined of: one rank's batch."""

    samples: int
    sequences: tuple[SequenceSize, ...] = ()
    """Those of each group of features whose embeddings are not pooled."""

    @property
    def terms(self) -> tuple[int, ...]:
        """What the coefficients of a ``Size`` are multiplied with, in their order."""
        own = ((each.longest, self.samples * each.longest, each.ids) for each in self.sequences)
        return (1, self.samples, *(term for terms in own for term in terms))


class SequenceTerms(NamedTuple):
    """What a size has of the sequences of a group of features, as coefficients."""

    longest: float = 0.0
    positions: float = 0.0
    """Times samples times longest: a batch whose sequences are padded to one length."""
    ids: float = 0.0


class Size(NamedTuple):
    """A number of elements as coefficients of the terms of a batch."""

    constant: float = 0.0
    samples: float = 0.0
    sequences: tuple[SequenceTerms, ...] = ()
    """By group of features, as a batch's are; groups that are not there count nothing."""

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients of a batch's terms, in their order."""
        own = (each for terms in self.sequences for each in terms)
        return (self.constant, self.samples, *own)

    def at(self, batch: BatchSize) -> int:
        """Return the elements at a batch, at least none."""
        pairs = zip(self.coefficients, batch.terms, strict=False)
        return max(0, round(sum(each * term for each, term in pairs)))


S = TypeVar("S", Size, int)
"""Sizes for any batch, or those at one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTensor(Generic[S]):
    """A tensor that an operator reads or writes."""

    sizes: tuple[S, ...]
    data_type: ElementType
    storage: int
    """Number of the memory that it is in; views of one tensor have one number. It is negative where
    no operator makes it: of parameters, inputs and embeddings."""
    expanded: tuple[int, ...] = ()
    """Dimensions along which it has one element in memory (stride 0)."""

    def __post_init__(self) -> None:
        if any(not 0 <= each < len(self.sizes) for each in self.expanded):
            raise ValueError(f"a tensor of {len(self.sizes)} dimensions has no others to expand")

    @property
    def elements(self: "OperatorTensor[int]") -> float:
        """Elements in memory."""
        return product(n for i, n in enumerate(self.sizes) if i not in self.expanded)

    @property
    def num_bytes(self: "OperatorTensor[int]") -> Bytes:
        """Bytes in memory."""
        return self.elements * self.data_type.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseOperator(Generic[S]):
    """An operator that launches kernels: views are in no list."""

    name: str
    """As ``aten::addmm``, without the overload."""
    direction: Pass
    inputs: tuple[OperatorTensor[S], ...] = ()
    outputs: tuple[OperatorTensor[S], ...] = ()
    reads: tuple[int, ...] = ()
    """Embeddings that it reads, by their place in the list's."""
    parameters: tuple[int, ...] = ()
    """Parameters whose gradients are there once it ends, by their place in the list's."""
    embeddings: tuple[int, ...] = ()
    """Embeddings whose gradients are there once it ends, likewise."""
    transposed: bool = False
    """Whether a convolution is transposed."""
    causal: bool = False
    """Whether attention is to keys that are not after a query alone."""
    ranks: int = 1
    """Ranks that a collective is of: one after the other from a multiple of their number on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseParameter:
    """A parameter that is in no table."""

    name: str
    num_elements: int
    data_type: ElementType = ElementType.FLOAT32
    trained: bool = True
    """Whether it has a gradient."""

    @property
    def num_bytes(self) -> Bytes:
        """Bytes of it."""
        return float(self.num_elements * self.data_type.num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingOutput(Generic[S]):
    """What an embedding module gives the dense part."""

    name: str
    """The module's path, and a feature's name where each has a tensor of its own."""
    tensor: OperatorTensor[S]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList(Generic[S]):
    """The dense part of a model: what it runs in a step, in the order that the host issues it."""

    name: str = ""
    operators: tuple[DenseOperator[S], ...]
    parameters: tuple[DenseParameter, ...] = ()
    embeddings: tuple[EmbeddingOutput[S], ...] = ()
    recorded: BatchSize
    """The largest batch that it was read with."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Features whose embeddings are not pooled, those together whose sequences have one length."""
    assumed: tuple[str, ...] = ()
    """What was assumed in reading it."""
    unexplained: tuple[str, ...] = ()
    """Operators with sizes that follow from no batch's terms, and what they are then."""

    def __post_init__(self) -> None:
        check_at_most("operators' number", len(self.operators), limits.MOST_OPERATORS)
        check_at_most("parameters' number", len(self.parameters), limits.MOST_OPERATORS)
        for each in self.operators:
            _check_places("parameters", each.parameters, self.parameters)
            _check_places("reads", each.reads, self.embeddings)
            _check_places("embeddings", each.embeddings, self.embeddings)

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(each.num_elements for each in self.parameters)

    @property
    def lookup_place(self) -> int:
        """Place of the first operator that reads embeddings; of none, that of the loss."""
        found = (place for place, each in enumerate(self.operators) if each.reads)
        return min(next(found, self.loss_place), self.loss_place)

    @property
    def loss_place(self) -> int:
        """Place of the first operator of the backward."""
        backward = (n for n, each in enumerate(self.operators) if each.direction is Pass.BACKWARD)
        return next(backward, len(self.operators))

    @property
    def exchange_place(self) -> int:
        """Place after the last operator that gives embeddings their gradients.

        Where none does, it is that of the loss.
        """
        given = (place + 1 for place, each in enumerate(self.operators) if each.embeddings)
        return max(given, default=self.loss_place)

    def at(self: "OperatorList[Size]", batch: BatchSize) -> "OperatorList[int]":
        """Return the list with the sizes that it has at a batch.

        Raises
        ------
        ValueError
            A tensor is larger than any can be.

        """
        known: dict[OperatorTensor[Size], OperatorTensor[int]] = {}

        def sized(tensors: Sequence[OperatorTensor[Size]]) -> tuple[OperatorTensor[int], ...]:
            for each in tensors:
                if each not in known:
                    known[each] = _sized(each, batch)
            return tuple(known[each] for each in tensors)

        def at_batch(each: DenseOperator[Any]) -> DenseOperator[int]:
            return replace(each, inputs=sized(each.inputs), outputs=sized(each.outputs))

        def given(each: EmbeddingOutput[Any]) -> EmbeddingOutput[int]:
            return replace(each, tensor=sized([each.tensor])[0])

        listed: OperatorList[Any] = self
        return replace(
            listed,
            operators=tuple(map(at_batch, self.operators)),
            embeddings=tuple(map(given, self.embeddings)),
        )


def _sized(tensor: OperatorTensor[Size], batch: BatchSize) -> OperatorTensor[int]:
    """Return a tensor with the sizes that it has at a batch."""
    sizes = tuple(size.at(batch) for size in tensor.sizes)
    check_at_most("elements of a tensor", product(sizes), limits.MOST_ELEMENTS)
    at_batch: OperatorTensor[Any] = tensor
    return replace(at_batch, sizes=sizes)


def product(sizes: Iterable[int]) -> float:
    """Return what sizes come to, multiplied, as a number that does not overflow."""
    return prod(map(float, sizes))


def _check_places(name: str, places: Sequence[int], listed: Sequence[object]) -> None:
    wrong = next((each for each in places if not 0 <= each < len(listed)), None)
    if wrong is not None:
        raise ValueError(f"an operator's {name} are from 0 to {len(listed) - 1}, got {wrong}")
