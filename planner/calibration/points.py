"""Points to measure, one dataclass per kernel family, and their JSON."""

import json
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer, Pooling
from planner.files.json_text import dump_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Family(StrEnum):
    """Kernel families, in the order in which they are measured."""

    STREAM = "stream"
    OPERATOR = "operator"
    GEMM = "gemm"
    HOST = "host"
    COLLECTIVE = "collective"
    EMBEDDING = "embedding"


class Point(Protocol):
    """A point to measure: a frozen dataclass of numbers, names and tuples of them."""

    family: ClassVar[str]
    """The family whose model is fitted to it."""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class StreamOp(StrEnum):
    """Memory-bound operators of a training step; they write into new memory, as a step does."""

    COPY = "copy"
    """One tensor read, one written."""
    ADD = "add"
    """Two tensors read, one written."""
    CONCAT = "concat"
    """Eight tensors side by side into one."""
    VIEWS = "views"
    """As CONCAT, but of views, as in a split and a concatenation in another order."""
    IN_PLACE = "in_place"
    """One tensor read and written in place, no new memory."""


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
    BACKWARD = "backward"
    """A backward of one operator on autograd's thread; on CUDA only."""
    SYNCHRONIZE = "synchronize"
    """Waiting for an idle device."""
    UPLOAD = "upload"
    """A copy from pinned host memory to the device; on CUDA only."""
    COLLECTIVE = "collective"
    """Issuing a collective, until the call returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Tables of one kernel, a field's entries being by table."""

    num_embeddings: tuple[int, ...]
    embedding_dims: tuple[int, ...]
    data_type: DataType
    optimizer: Optimizer
    compute_kernel: ComputeKernel
    pooling: Pooling = Pooling.SUM
    cache_load_factor: float = 0.0
    """Share of the rows cached in HBM: of ``fused_uvm_caching`` only."""

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
    """One lookup kernel over some tables and a batch, forward and backward."""

    tables: TableSet
    num_samples: int
    pooling_factors: tuple[float, ...]
    zipf: tuple[float, ...]
    """Exponent of every table's ids; 0 is uniform."""
    weighted: bool = False
    """Whether each id carries a per-sample weight."""
    family: ClassVar[str] = Family.EMBEDDING


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPoint:
    """One matrix product C[m, n] = A[m, k] B[k, n], or several independent ones in one call."""

    m: int
    n: int
    k: int
    data_type: DataType
    num_products: int = 1
    transposed: str = ""
    """``a`` or ``b``: that operand is a view of a tensor stored the other way round, as a layer's
    forward has its weight (``b``) and the gradient of the weight its gradients (``a``)."""
    family: ClassVar[str] = Family.GEMM


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPoint:
    """One memory-bound operator."""

    op: StreamOp
    num_bytes: int
    """Bytes read plus bytes written."""
    family: ClassVar[str] = Family.STREAM


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPoint:
    """One operator of a dense part, by itself."""

    operator: str
    """Name in aten, without an underscore at its end."""
    num_elements: int
    """Elements of FP32."""
    family: ClassVar[str] = Family.OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPoint:
    """One piece of host work."""

    part: HostPart
    size: int = 0
    """Bytes, if the time depends on them."""
    family: ClassVar[str] = Family.HOST


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
    family: ClassVar[str] = Family.COLLECTIVE


Kinds = Mapping[str, type[Point]]
"""The dataclass of each family."""
KINDS: Kinds = {
    kind.family: kind
    for kind in (
        StreamPoint,
        OperatorPoint,
        GemmPoint,
        HostPoint,
        CollectivePoint,
        EmbeddingPoint,
    )
}


def point_data(point: Point) -> dict[str, Any]:
    """Return a point as JSON data: lists, numbers and names."""
    data: dict[str, Any] = json.loads(dump_json(asdict(point)))
    return data


def point_key(point: Point) -> str:
    """Return a text that identifies a point, the same in every run."""
    return f"{point.family} {dump_json(point_data(point), only_ascii=True, sort_keys=True)}"


def read_point(family: str, data: object, kinds: Kinds = KINDS) -> Point:
    """Return the point that `point_data` wrote; KeyError or ValueError if it is none."""
    point: Point = _adapter(kinds[family]).validate_python(data)
    return point


@lru_cache(maxsize=64)
def _adapter(kind: type[Point]) -> "TypeAdapter[Any]":
    """Return pydantic's reader of a kind of points."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
