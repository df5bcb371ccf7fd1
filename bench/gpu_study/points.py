"""Points of the study beside those of `planner calibrate`: one dataclass per family."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.points import KINDS, Kinds


class StudyFamily(StrEnum):
    """Families that only the study measures."""

    TYPED_OPERATOR = "typed operator"
    LAYER = "layer"
    OPTIMIZER = "optimizer"
    INTERACTION = "interaction"
    STEP = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOperatorPoint:
    """An operator of `planner calibrate` on numbers of another type than FP32."""

    operator: str
    """Name in aten, without an underscore at its end."""
    num_elements: int
    data_type: DataType
    family: ClassVar[str] = StudyFamily.TYPED_OPERATOR


class LayerKind(StrEnum):
    """Layers whose work is no sum over their elements."""

    ATTENTION = "attention"
    """Causal, of heads of 32 columns."""
    CONVOLUTION = "convolution"
    """A convolution of 3 x 3 on square pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPoint:
    """One layer, forward and backward."""

    layer: LayerKind
    num_samples: int
    width: int
    """Columns of all heads together; channels."""
    length: int
    """Positions; the side of a picture."""
    data_type: DataType
    family: ClassVar[str] = StudyFamily.LAYER


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerPoint:
    """A step of the dense optimizer, whose gradients are there."""

    optimizer: Optimizer
    num_tensors: int
    num_elements: int
    """Elements of each tensor."""
    family: ClassVar[str] = StudyFamily.OPTIMIZER


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionPoint:
    """TorchRec's dot interaction, forward and backward."""

    num_samples: int
    num_features: int
    """Embedding vectors per sample, without the bottom MLP's output."""
    embedding_dim: int
    family: ClassVar[str] = StudyFamily.INTERACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """Training steps of a model, every table whole on one rank."""

    model: str
    local_batch_size: int
    world_size: int
    table_bytes: int
    """Bytes that all tables may have: the largest lose rows until they fit."""
    family: ClassVar[str] = StudyFamily.STEP


STUDY_KINDS: Kinds = {
    **KINDS,
    **{
        kind.family: kind
        for kind in (
            TypedOperatorPoint,
            LayerPoint,
            OptimizerPoint,
            InteractionPoint,
            StepPoint,
        )
    },
}
