"""What is measured: one dataclass per kernel family, and its form in the measurements file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Family(StrEnum):
    """Kernel families, in the order they are measured."""

    STREAM = "stream"
    GEMM = "gemm"
    HOST = "host"
    COLLECTIVE = "collective"
    EMBEDDING = "embedding"


class StreamOp(StrEnum):
    """Memory-bound operators of a training step; they write into new memory, as a step does."""

    COPY = "copy"
    """One tensor read, one written."""
    ADD = "add"
    """Two tensors read, one written."""
    CONCAT = "concat"
    """Eight tensors side by side into one."""
    VIEWS = "views"
    """As CONCAT, but of views: what a split and a concatenation in another order do."""
    IN_PLACE = "in_place"
    """One tensor read and written: the exception."""


class HostPart(StrEnum):
    """Pieces of host work whose operators the step model counts."""

    OPERATOR = "operator"
    """One eager operator on next to no data."""
    LAYER = "layer"
    """Linear layer and activation on next to no data, forward and backward."""
    LOOKUP = "lookup"
    """Embedding lookup of two ids, forward and backward."""
    LAUNCH = "launch"
    """One kernel launch; on CUDA only."""
    SYNCHRONIZE = "synchronize"
    """Waiting for a device that is idle."""
    UPLOAD = "upload"
    """Pinned host memory to the device; on CUDA only."""
    COLLECTIVE = "collective"
    """Issuing a collective, until the call returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Tables that one kernel serves, row by row of the fields."""

    num_embeddings: tuple[int, ...]
    embedding_dims: tuple[int, ...]
    data_type: DataType
    optimizer: Optimizer
    compute_kernel: ComputeKernel

    @property
    def num_bytes(self) -> int:
        """Bytes of weights and optimizer state."""
        sizes = zip(self.num_embeddings, self.embedding_dims, strict=True)
        return sum(
            rows
            * int(dim * self.data_type.num_bytes + self.optimizer.state_bytes_per_row(float(dim)))
            for rows, dim in sizes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingPoint:
    """One kernel over some tables and a batch, forward and backward."""

    tables: TableSet
    num_samples: int
    pooling_factors: tuple[float, ...]
    zipf: tuple[float, ...]
    """Exponent of every table's ids; 0 is uniform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPoint:
    """One matrix product."""

    m: int
    n: int
    k: int
    data_type: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPoint:
    """One memory-bound operator."""

    op: StreamOp
    num_bytes: int
    """Read plus written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPoint:
    """One piece of host work."""

    part: HostPart
    size: int = 0
    """Bytes, where the time depends on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePoint:
    """One collective on all ranks."""

    op: CollectiveOp
    num_bytes: int
    """nccl-tests' size: the send buffer, for all_gather the gathered one; uneven: the largest."""
    num_ranks: int
    num_nodes: int
    focus: float = 0.0
    """Share of an all_to_all's largest buffer that all ranks send to rank 0 alone beyond an
    even split; 0 is even, 1 sends everything to rank 0."""


Point: TypeAlias = EmbeddingPoint | GemmPoint | StreamPoint | HostPoint | CollectivePoint

KINDS: Mapping[Family, type[Point]] = {
    Family.STREAM: StreamPoint,
    Family.GEMM: GemmPoint,
    Family.HOST: HostPoint,
    Family.COLLECTIVE: CollectivePoint,
    Family.EMBEDDING: EmbeddingPoint,
}


def family_of(point: Point) -> Family:
    """Return the family a point belongs to."""
    return next(family for family, kind in KINDS.items() if type(point) is kind)


def point_data(point: Point) -> dict[str, Any]:
    """Return a point as JSON has it: lists, numbers and names."""
    data: dict[str, Any] = json.loads(json.dumps(asdict(point)))
    return data


def point_key(point: Point) -> str:
    """Return what tells a point from all others, the same in every run."""
    return f"{family_of(point)} {json.dumps(point_data(point), sort_keys=True)}"


def read_point(family: Family, data: object) -> Point:
    """Return the point that `point_data` wrote; ValueError if it is none."""
    point: Point = _adapter(family).validate_python(data)
    return point


@lru_cache(maxsize=len(KINDS))
def _adapter(family: Family) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(KINDS[family])
