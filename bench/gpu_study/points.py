"""Points of the study beside those of `planner calibrate`: one dataclass per family."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from costmodel.domain.workload import DataType
from planner.calibration.points import KINDS, Kinds


class StudyFamily(StrEnum):
    """Families that only the study measures."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    INTERACTION = "interaction"
    ATTENTION = "attention"
    TRANSFER = "transfer"
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


class ReductionOp(StrEnum):
    """Operators that bring the numbers of a row, or of a column, together."""

    SUM_ROWS = "sum_rows"
    """Over the columns of every row."""
    SUM_COLUMNS = "sum_columns"
    """Over the rows: the gradient of a bias."""
    MEAN = "mean"
    """Averages everything: a loss."""
    SOFTMAX = "softmax"
    LAYER_NORM = "layer_norm"


class Direction(StrEnum):
    """Copies between host and device."""

    TO_DEVICE = "to_device"
    TO_HOST = "to_host"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwisePoint:
    """One operator on some numbers."""

    op: PointwiseOp
    num_elements: int
    data_type: DataType
    family: ClassVar[str] = StudyFamily.POINTWISE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionPoint:
    """One reduction of a matrix."""

    op: ReductionOp
    rows: int
    columns: int
    data_type: DataType
    family: ClassVar[str] = StudyFamily.REDUCTION


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractionPoint:
    """TorchRec's dot interaction, forward and backward."""

    num_samples: int
    num_features: int
    """Embedding vectors per sample, without the bottom MLP's output."""
    embedding_dim: int
    family: ClassVar[str] = StudyFamily.INTERACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPoint:
    """``scaled_dot_product_attention``, causal, forward and backward."""

    num_sequences: int
    num_heads: int
    length: int
    head_dim: int
    data_type: DataType
    family: ClassVar[str] = StudyFamily.ATTENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPoint:
    """One copy between host and device."""

    direction: Direction
    num_bytes: int
    pinned: bool
    family: ClassVar[str] = StudyFamily.TRANSFER


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
            ReductionPoint,
            InteractionPoint,
            AttentionPoint,
            TransferPoint,
            StepPoint,
        )
    },
}
