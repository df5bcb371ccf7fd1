"""Tables that TorchRec runs together: sharding groups, and the lookup kernels in them."""

from collections.abc import Iterable
from typing import NamedTuple

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Pooling


class GroupKey(NamedTuple):
    """Properties that tables of one sharding group share."""

    pooled: bool
    weighted: bool
    sharding_type: ShardingType


class KernelKey(NamedTuple):
    """Properties that tables of one lookup kernel share, within their group.

    Tables of different optimizers have kernels of their own, as their fused parameters differ, and
    so have tables whose weights are stashed: a kernel's weights are one tensor. One kernel serves
    tables in HBM, host memory and cache together (torchrec 1.9.2, embedding_sharding.py 499-511,
    609-624).
    """

    dense: bool
    data_type: DataType
    pooling: Pooling
    optimizer: str = ""
    """The tables' own; empty: the workload's, or a dense kernel's, which has none."""
    stashed: bool = False


def kernel_key(table: EmbeddingTable, compute_kernel: ComputeKernel) -> KernelKey:
    """Return the lookup kernel that serves a table."""
    dense = compute_kernel is ComputeKernel.DENSE
    own = "" if dense or table.optimizer is None else table.optimizer.value
    stashed = table.stash_weights and not dense
    return KernelKey(dense, table.data_type, table.pooling, own, stashed)


def group_key(table: EmbeddingTable, sharding_type: ShardingType) -> GroupKey:
    """Return the sharding group a table belongs to under a sharding type."""
    return GroupKey(table.pooling is not Pooling.NONE, table.weighted, sharding_type)


def joined_groups(key: GroupKey, keys: Iterable[GroupKey]) -> tuple[GroupKey, ...]:
    """Return the groups of a pooled module whose outputs TorchRec puts into one tensor.

    Empty where a group is the only one of its module, or its rows are not pooled.
    """
    same = tuple(each for each in keys if each[:2] == key[:2])
    return same if key.pooled and len(same) > 1 else ()
