"""Which tables TorchRec runs together: sharding groups, and the lookup kernels in them."""

from collections.abc import Iterable
from typing import NamedTuple

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Pooling


class GroupKey(NamedTuple):
    """What decides the sharding group of a table."""

    pooled: bool
    weighted: bool
    sharding_type: ShardingType


class KernelKey(NamedTuple):
    """What decides which lookup kernel of its group serves a table."""

    compute_kernel: ComputeKernel
    data_type: DataType


def group_key(table: EmbeddingTable, sharding_type: ShardingType) -> GroupKey:
    """Return the sharding group a table belongs to under a sharding type."""
    return GroupKey(table.pooling is not Pooling.NONE, table.weighted, sharding_type)


def joined_groups(key: GroupKey, keys: Iterable[GroupKey]) -> tuple[GroupKey, ...]:
    """Return the groups of a pooled module whose outputs TorchRec puts into one tensor.

    Empty where a group is the only one of its module, or its rows are not pooled.
    """
    same = tuple(each for each in keys if each[:2] == key[:2])
    return same if key.pooled and len(same) > 1 else ()
