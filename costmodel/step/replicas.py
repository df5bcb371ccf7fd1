"""Gradients of replicated tables: DistributedDataParallel's reducer of a lookup with replicas.

A lookup kernel's tables are one parameter (the 8 x V100 trace reduces its two replicated tables as
one tensor of 112 numbers; ``BatchedDenseEmbeddingBag``), which the reducer copies into a bucket and
never splits. Buckets have one data type each.
"""

from functools import lru_cache

from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Workload
from costmodel.step.buckets import ADD_PASSES, BUCKET, FIRST_BUCKET, Accumulation
from costmodel.step.graph import Stage
from costmodel.step.group_kernels import GroupKernels
from costmodel.step.groups import GroupKey, KernelKey, group_key, kernel_key
from costmodel.step.template import GroupFormulas, Linear


class ReplicaBuckets:
    """All-reduces the gradients of one group's lookup kernels, bucket by bucket."""

    def __init__(
        self, kernels: GroupKernels, group: GroupFormulas, accumulation: Accumulation
    ) -> None:
        self._kernels, self._group, self._accumulation = kernels, group, accumulation
        self._waiting = [
            members
            for bucket in buckets(kernels.workload, group.key)
            if (members := [kernel for kernel in bucket if kernel in group.kernels])
        ]
        self._copied: set[KernelKey] = set()

    def add(self, kernel: KernelKey) -> list[int]:
        """Add the copy of a kernel's gradient, and all-reduce complete buckets.

        Return the all-reduces.

        The gradient is added to that of earlier batches, if there is one.
        """
        size, stage = self._group.parameter_bytes[kernel], Stage.DENSE_BACKWARD
        if self._accumulation.adds:
            self._kernels.stream(self._group, "add gradient", ADD_PASSES * size, stage=stage)
        if self._kernels.builder.world_size == 1 or not self._accumulation.reduces:
            return []
        self._kernels.stream(self._group, "gradient copy", 2.0 * size, stage=stage)
        self._copied.add(kernel)
        sent = []
        while self._waiting and self._copied.issuperset(self._waiting[0]):
            sent.append(self._send(self._waiting.pop(0)))
        return sent

    def _send(self, bucket: list[KernelKey]) -> int:
        """Add the all-reduce of a bucket; it sends nothing in plans without the kernels."""
        parameters = (self._group.parameter_bytes[kernel] for kernel in bucket)
        return self._kernels.collective(
            self._group, "all-reduce", CollectiveOp.ALL_REDUCE, sum(parameters, start=Linear()),
            members=self._kernels.builder.everyone, optional=len(bucket) < len(self._group.kernels),
        )  # fmt: skip


@lru_cache(maxsize=64)
def buckets(workload: Workload, key: GroupKey) -> tuple[tuple[KernelKey, ...], ...]:
    """Return the lookup kernels of a group that share each bucket, in the order of all-reduces.

    Gradients fill the bucket of their type as they become ready: the last kernel's first. Full
    buckets come in that order, then the others in reverse, as torch keeps them in a hash table
    (torch 2.13, ``compute_bucket_assignment_by_size`` in reducer.cpp, as it is called from
    ``rebuildBuckets``). How full they are follows from the tables that could be replicated, so that
    it is the same for all plans.
    """
    sizes: dict[KernelKey, float] = {}
    for table in workload.tables:
        if group_key(table, key.sharding_type) == key:
            kernel = kernel_key(table, ComputeKernel.DENSE)
            sizes[kernel] = sizes.get(kernel, 0.0) + table.weight_bytes
    full: list[tuple[KernelKey, ...]] = []
    filling: dict[DataType, list[KernelKey]] = {}
    for kernel in sorted(sizes, reverse=True):
        bucket = filling.setdefault(kernel.data_type, [])
        bucket.append(kernel)
        is_first = all(each[0].data_type is not kernel.data_type for each in full)
        if sum(sizes[each] for each in bucket) >= (FIRST_BUCKET if is_first else BUCKET):
            full.append(tuple(bucket))
            bucket.clear()
    return (*full, *(tuple(rest) for rest in reversed(filling.values()) if rest))
