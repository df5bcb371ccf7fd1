"""``dense.json`` as pydantic models: the operators of a model's dense part."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from costmodel.base.limits import (
    LONGEST_NAME,
    MOST_DIMENSIONS,
    MOST_OPERANDS,
    MOST_OPERATORS,
    MOST_PARAMETERS,
    MOST_RANKS,
    MOST_SAMPLES,
    shown,
)
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    ElementType,
    EmbeddingOutput,
    OperatorTensor,
    Pass,
    SequenceSize,
    SequenceTerms,
    Size,
)
from planner.files.validator import OWN_MESSAGE

MOST_GROUPS = 100
_MOST = 1e15
"""The largest coefficient."""

Coefficient = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MOST_SAMPLES * 1000)]
Place = Annotated[int, Field(ge=0, lt=MOST_OPERATORS)]
Places = Annotated[list[Place], Field(max_length=MOST_OPERATORS)]
Text = Annotated[str, Field(max_length=LONGEST_NAME)]
Said = Annotated[list[Text], Field(max_length=100)]


class _DenseSection(BaseModel):
    """No coercion and no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    domain: ClassVar[Callable[..., object] | None] = None
    """Makes what an entry stands for, of its fields."""


class SequenceTermsEntry(_DenseSection):
    """What a size has of the sequences of a group of features: coefficients, added up."""

    domain = SequenceTerms

    longest: Coefficient = 0.0
    """Times the ids of the batch's longest sequence."""
    positions: Coefficient = 0.0
    """Times samples times the longest sequence."""
    ids: Coefficient = 0.0
    """Times the ids of all sequences of all features of the group."""


class SizeEntry(_DenseSection):
    """A number of elements: each coefficient times what it is called, added up."""

    domain = Size

    constant: Coefficient = 0.0
    """As it is."""
    samples: Coefficient = 0.0
    """Times the samples of a rank's batch."""
    sequences: Annotated[list[SequenceTermsEntry], Field(max_length=MOST_GROUPS)] = []
    """By group of features, in the order of `groups`."""


def _sized(written: object) -> object:
    """Return a plain number as a size that has only that."""
    if type(written) is not int:
        return written
    if written < 0:
        message = f"must be at least 0, got {shown(written)}"
        raise PydanticCustomError(OWN_MESSAGE, "{message}", {"message": message})
    return {"constant": written}


WrittenSize = Annotated[
    SizeEntry,
    BeforeValidator(
        _sized, json_schema_input_type=Annotated[int, Field(ge=0, le=_MOST)] | SizeEntry
    ),
]


class TensorEntry(_DenseSection):
    """A tensor that an operator reads or writes."""

    domain = OperatorTensor

    sizes: Annotated[list[WrittenSize], Field(max_length=MOST_DIMENSIONS)]
    """Its dimensions: a number, or what it is of a batch."""
    data_type: Annotated[ElementType, Field(strict=False)]
    """The type of its elements, by torch's name."""
    storage: Annotated[int, Field(gt=-(2**40), lt=2**40)]
    """The memory that it is in: views of one tensor have one number. It is negative where no
    operator makes it: of parameters, inputs and embeddings."""
    expanded: Annotated[
        list[Annotated[int, Field(ge=0, lt=MOST_DIMENSIONS)]], Field(max_length=MOST_DIMENSIONS)
    ] = []
    """Dimensions along which memory has one element (stride 0)."""


Tensors = Annotated[list[TensorEntry], Field(max_length=MOST_OPERANDS)]


class DenseOperatorEntry(_DenseSection):
    """An operator that launches kernels; views are not listed."""

    domain = DenseOperator

    name: Text
    """As in `aten::addmm`."""
    direction: Annotated[Pass, Field(strict=False)]
    """Whether it runs before the loss or after."""
    inputs: Tensors = []
    """Tensors that it is given, in the order of its arguments."""
    outputs: Tensors = []
    """Tensors that it returns."""
    reads: Places = []
    """Embeddings that it reads, by their place in `embeddings`, from 0."""
    parameters: Places = []
    """Parameters whose gradients are there once it ends, by their place in `parameters`."""
    embeddings: Places = []
    """Embeddings whose gradients are there once it ends."""
    transposed: bool = False
    """Whether it is a transposed convolution."""
    causal: bool = False
    """Whether it is attention to keys that are not after a query alone."""
    ranks: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 1
    """Ranks that a collective is of, such as those of tensor parallelism: one after the other, from
    a multiple of their number on."""


class ParameterEntry(_DenseSection):
    """A parameter that is in no table."""

    domain = DenseParameter

    name: Text
    """Its path in the model."""
    num_elements: Annotated[int, Field(ge=0, le=MOST_PARAMETERS)]
    """Its numbers."""
    data_type: Annotated[ElementType, Field(strict=False)]
    """Their type, by torch's name."""
    trained: bool = True
    """Whether it has a gradient."""


class EmbeddingEntry(_DenseSection):
    """What an embedding module gives the dense part."""

    domain = EmbeddingOutput

    name: Text
    """The module's path, and the feature where each has a tensor of its own."""
    tensor: TensorEntry
    """Its values."""


class SequenceSizeEntry(_DenseSection):
    """Sequences of a group of features."""

    domain = SequenceSize

    longest: Count = 0
    """Ids of the longest one."""
    ids: Count = 0
    """Ids of all of them."""


class RecordedEntry(_DenseSection):
    """The largest batch that the model ran with."""

    domain = BatchSize

    samples: Count
    """Its samples."""
    sequences: Annotated[list[SequenceSizeEntry], Field(max_length=MOST_GROUPS)] = []
    """By group of features, in the order of `groups`."""


class DenseFile(_DenseSection):
    """The dense part of a model: what it runs in a step, at any size of a batch.

    `planner trace-model` writes it.
    """

    schema_version: Literal[1]
    """1."""
    name: Text = ""
    """The model."""
    operators: Annotated[list[DenseOperatorEntry], Field(min_length=1, max_length=MOST_OPERATORS)]
    """All operators, in the order that the host issues them."""
    parameters: Annotated[list[ParameterEntry], Field(max_length=MOST_OPERATORS)] = []
    """All parameters that are in no table."""
    embeddings: Annotated[list[EmbeddingEntry], Field(max_length=MOST_OPERATORS)] = []
    """What embedding modules give it."""
    groups: Annotated[
        list[Annotated[list[Text], Field(max_length=1000)]], Field(max_length=MOST_GROUPS)
    ] = []
    """Features whose embeddings are not pooled, those together whose sequences have one length."""
    recorded: RecordedEntry
    """The largest batch that it was read with."""
    assumed: Said = []
    """What was assumed in reading it."""
    unexplained: Said = []
    """Operators with sizes that do not follow from the batch's: they are near what they were."""
