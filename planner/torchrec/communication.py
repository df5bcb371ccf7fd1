"""The data types of embeddings and of their messages, from sharders and constraints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchrec.distributed.types import CommOp, ModuleSharder
from torchrec.modules.embedding_modules import EmbeddingCollection

from costmodel.domain.workload import DataType
from planner.torchrec.modules import FoundTable

_BY_NAME = {
    "FP32": DataType.FP32,
    "FP16": DataType.FP16,
    "BF16": DataType.BF16,
    "FP8": DataType.FP8,
    "INT8": DataType.INT8,
    "MX4": DataType.FP8,
}
"""Data types by name in ``SparseType`` (FBGEMM) and ``DataType``. MX4, half a byte with a scale for
every 32 numbers, counts as FP8, as no model knows it."""


def own_sharder(sharder: Any) -> Any:  # noqa: ANN401 - a ModuleSharder
    """Return the sharder of the collection inside a wrapper, or the sharder itself.

    TorchRec passes the arguments of a wrapper's sharder on to the collection's, which has its own
    codecs and settings.
    """
    inner = [each for each in vars(sharder).values() if isinstance(each, ModuleSharder)]
    return next((each for each in inner if _shards_collections(each)), sharder)


def _shards_collections(sharder: Any) -> bool:  # noqa: ANN401 - a ModuleSharder
    return "ManagedCollision" not in sharder.module_type.__name__


def uses_index_dedup(found: FoundTable) -> bool:
    """Return whether an unpooled collection sends every id once."""
    settings = vars(own_sharder(found.sharder)) if found.sharder is not None else {}
    unpooled = isinstance(found.collection, EmbeddingCollection)
    return unpooled and bool(settings.get("_use_index_dedup"))


def fused_params(found: FoundTable) -> Mapping[str, Any]:
    """Return the arguments that the table's sharder passes to FBGEMM."""
    return getattr(found.sharder, "fused_params", None) or {}


def output_type(found: Sequence[FoundTable]) -> DataType:
    """Return the widest type of all tables' outputs, which share one tensor."""
    return max(map(table_output, found), key=lambda each: each.num_bytes, default=DataType.FP32)


def table_output(found: FoundTable) -> DataType:
    """Return the data type of a table's output."""
    asked = getattr(found.constraint, "output_dtype", None) or fused_params(found).get(
        "output_dtype"
    )
    return DataType.FP32 if asked is None else _BY_NAME.get(asked.name, DataType.FP32)


def wire_types(found: Sequence[FoundTable]) -> tuple[DataType | None, DataType | None]:
    """Return the codecs' types for outputs and for gradients; None: no codec.

    A workload has one of each: where sharders differ, the widest. A codec of the all-to-all stands
    for that of the reduce-scatter, which TorchRec itself replaces where NCCL cannot add the type.
    """
    return (
        _widest(_codec(each, backward=False) for each in found),
        _widest(_codec(each, backward=True) for each in found),
    )


def _widest(types: Iterable[DataType | None]) -> DataType | None:
    """Return the widest of some data types; None: one of them is None, or there are none."""
    each = set(types)
    if not each or None in each:
        return None
    return max((known for known in each if known), key=lambda known: known.num_bytes)


def _codec(found: FoundTable, *, backward: bool) -> DataType | None:
    """Return the data type of a table's codec; None: it has none."""
    sharder = own_sharder(found.sharder) if found.sharder is not None else None
    registry = getattr(sharder, "qcomm_codecs_registry", None) or {}
    unpooled = isinstance(found.collection, EmbeddingCollection)
    wanted = (
        (CommOp.SEQUENCE_EMBEDDINGS_ALL_TO_ALL,)
        if unpooled
        else (CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL, CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER)
    )
    codecs = next((registry[op.name] for op in wanted if op.name in registry), None)
    codec = None if codecs is None else codecs.backward if backward else codecs.forward
    precision = None if codec is None else vars(codec).get("_comm_precision")
    kind = None if precision is None else _BY_NAME.get(precision.name)
    return None if kind is DataType.FP32 else kind
