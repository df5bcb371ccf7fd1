"""Points of the study beside those of `planner calibrate`: one dataclass per family."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from costmodel.domain.workload import DataType
from planner.calibration.points import KINDS, Kinds


class StudyFamily(StrEnum):
    """Families that only the study measures."""

    POINTWISE = "pointwise"
    INTERACTION = "interaction"
    STEP = "step"


class PointwiseOp(StrEnum):
    """Operators that treat every number by itself, one kernel each."""

    RELU = "relu"
    SIGMOID = "sigmoid"
    GELU = "gelu"
    MULTIPLY = "multiply"
    """Multiplies two tensors."""
    SCALE = "scale"
    """By one number, in place."""
    DROPOUT = "dropout"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwisePoint:
    """One operator on some numbers."""

    op: PointwiseOp
    num_elements: int
    data_type: DataType
    family: ClassVar[str] = StudyFamily.POINTWISE


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
            PointwisePoint,
            InteractionPoint,
            StepPoint,
        )
    },
}
