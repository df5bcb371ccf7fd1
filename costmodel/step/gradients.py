"""Backward of the sharding groups: gradients split and sent back, fused updates, all-reduces."""

from dataclasses import dataclass
from typing import TypeAlias

from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pipeline
from costmodel.step.buckets import ALONE, Accumulation
from costmodel.step.builder import StepBuilder, Wait
from costmodel.step.exchange_operations import label
from costmodel.step.graph import Role, Stage
from costmodel.step.group_kernels import GroupKernels
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.issue import (
    LOOKUP_BACKWARD,
    SCALE_GRADIENTS,
    SPLIT_GRADIENT_OPS,
    Issue,
)
from costmodel.step.replica_sync import ReplicaSync
from costmodel.step.replicas import ReplicaBuckets
from costmodel.step.stash import Stash
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import GroupFormulas, Linear, Work, WorkKind

_STAGE = Stage.LOOKUP_BACKWARD
Exchanges: TypeAlias = dict[GroupKey, int]
"""The collective that each group waits for."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """Adds the embeddings' backward of one step."""

    kernels: GroupKernels

    @property
    def builder(self) -> StepBuilder:
        """The step's builder."""
        return self.kernels.builder

    @property
    def _stash(self) -> Stash:
        return Stash(self.builder, self.kernels.workload, self.kernels.groups)

    def split(self) -> Exchanges:
        """Split the embeddings' gradient by group and start to send it back.

        Autograd runs operators in the reverse order of their forward, and forward waits for
        outputs after the last lookup: so all of this comes before the first lookup's backward.
        """
        sent: Exchanges = {}
        self.kernels.spread("add up samples' gradients", _STAGE, zeroed=True)
        self.kernels.divide("divide gradients by lengths", _STAGE)
        for group in reversed(self.kernels.groups):
            if group.key.pooled:
                self._separate(group)
            with self.builder.part_of(group.key):
                if not group.key.pooled:
                    self._join_rows(group)
                elif group.key.sharding_type.splits_columns:
                    moved = 2.0 * self.kernels.outputs.local_size(group)
                    views = self.kernels.gpu.view_efficiency
                    self.kernels.stream(
                        group, "permute gradients", moved, stage=_STAGE, efficiency=views
                    )
                if self.kernels.outputs.is_exchanged(group):
                    self._encode(group)
                    if self.kernels.outputs.waits_at_the_end(group):
                        sent[group.key] = self._send(group)
        return sent

    def _separate(self, group: GroupFormulas) -> None:
        """Add a copy of a group's part of a gradient that others share.

        On a CPU the kernel that orders column shards reads it as it is; on a GPU it wants it in one
        piece (FBGEMM, permute_pooled_embedding_ops_split.cu 86-89).
        """
        keys = self.kernels.joined(group)
        ordered = group.key.sharding_type.splits_columns and self.builder.synchronous
        if keys and self.kernels.outputs.is_exchanged(group) and not ordered:
            with self.builder.part_of(group.key, joined=keys):
                moved = 2.0 * self.kernels.outputs.local_size(group)
                self.kernels.copy(group, "separate gradients", moved, stage=_STAGE)

    def _join_rows(self, group: GroupFormulas) -> None:
        """Add the concatenation of the gradients of a collection's features, in their order.

        Rows that came from row shards were selected by index: their gradients are added to zeros.
        """
        local = self.kernels.outputs.local_size(group)
        self.kernels.copy(group, "join gradients", 2.0 * local, stage=_STAGE)
        if group.key.sharding_type is ShardingType.ROW_WISE and self.kernels.outputs.is_exchanged(
            group
        ):
            self.kernels.stream(group, "zero rows", local, stage=_STAGE)
            self.kernels.stream(group, "add rows", 3.0 * local, stage=_STAGE)

    def _encode(self, group: GroupFormulas) -> None:
        """Split pooled gradients by destination and encode them.

        Those of a hierarchical group on one node are encoded before their all-gather.
        """
        outputs, local = self.kernels.outputs, self.kernels.outputs.local_size(group)
        op = outputs.last_op(group)
        if op is CollectiveOp.ALL_TO_ALL and group.key.pooled:
            # a copy for every rank, then all in one buffer: 8 + 1 in the 8 x V100 trace
            hierarchical = group.key.sharding_type.within_node
            pieces = outputs.num_nodes if hierarchical else self.builder.world_size
            issue = Issue(SPLIT_GRADIENT_OPS + pieces, 1.0 + pieces)
            self.kernels.copy(group, "split gradients", 4.0 * local, stage=_STAGE, issue=issue)
        codec = outputs.codec(op, backward=True)
        self.kernels.encode(group, codec, "encode gradients", local, stage=_STAGE)

    def _send(self, group: GroupFormulas) -> int:
        """Start the collective of a group's gradients (hierarchical: across nodes).

        Return its number.
        """
        outputs = self.kernels.outputs
        op = outputs.last_op(group)
        codec = outputs.codec(op, backward=True)
        size = outputs.size(group) * outputs.wire_ratio(codec)
        if group.key.sharding_type.within_node:
            return self.kernels.collective(
                group, "gradients across nodes", CollectiveOp.ALL_TO_ALL,
                size / self.builder.local_world_size, members=ProcessGroup.CROSS_NODE,
            )  # fmt: skip
        if op is CollectiveOp.REDUCE_SCATTER:
            self.kernels.host(group, "send gradients", SPLIT_GRADIENT_OPS)
            return self.kernels.collective(group, "gradients", CollectiveOp.ALL_GATHER, size)
        size = outputs.all_to_all_size(group, codec)
        return self.kernels.collective(group, "gradients", CollectiveOp.ALL_TO_ALL, size)

    def backward(self, after: Exchanges, accumulation: Accumulation = ALONE) -> tuple[int, ...]:
        """Add every group's fused backward and update, and return the all-reduces.

        Each begins when its own gradients are there. Replicated tables wait for nothing, and are
        all-reduced as buckets fill.
        """
        reduced: list[int] = []
        replica_sync = ReplicaSync.of(self.builder, self.kernels.workload, self.kernels.groups)
        for group in reversed(self.kernels.groups):
            waits: tuple[Wait, ...] = (after[group.key],) if group.key in after else ()
            with self.builder.part_of(group.key):
                if self.kernels.outputs.is_exchanged(group):
                    waits = self._receive(group, waits)
                waits = (*waits, *self._stash.restored(group))
                waits = replica_sync.gather(group, waits)
                replicas = self._replicas(group, accumulation)
                for kernel in reversed(group.kernels):
                    self._lookup_backward(group, kernel, waits)
                    reduced += replicas.add(kernel) if replicas else []
        return tuple(reduced)

    def _replicas(self, group: GroupFormulas, accumulation: Accumulation) -> ReplicaBuckets | None:
        """Return the buckets that sum a replicated group's gradients over ranks.

        None for others.
        """
        replicated = group.key.sharding_type is ShardingType.DATA_PARALLEL
        return ReplicaBuckets(self.kernels, group, accumulation) if replicated else None

    def _receive(self, group: GroupFormulas, after: tuple[Wait, ...]) -> tuple[Wait, ...]:
        """Wait for a group's gradients and scale them; return the operations still to wait for.

        The reduce-scatter inside a node was waited for inside forward, so its all-gather starts
        only here. TorchRec divides by the number of ranks after each exchange (``comm_ops``,
        GRADIENT_DIVISION).
        """
        outputs, size = self.kernels.outputs, self.kernels.outputs.size(group)
        codec = outputs.codec(outputs.last_op(group), backward=True)
        if group.key.sharding_type.within_node and self.builder.local_world_size > 1:
            summed = outputs.codec(CollectiveOp.ALL_GATHER, backward=True)
            across = size / self.builder.local_world_size
            if after:
                self.kernels.decode(
                    group, codec, "decode gradients", across, stage=_STAGE, after=after
                )
                self._scale(group, "scale node gradients", across, after)
                self.kernels.encode(group, summed, "encode node gradients", across, stage=_STAGE)
            codec = summed
            self.kernels.host(group, "send gradients in the node", SPLIT_GRADIENT_OPS)
            after = (
                self.kernels.collective(
                    group, "gradients", CollectiveOp.ALL_GATHER,
                    size * outputs.wire_ratio(codec), members=ProcessGroup.INTRA_NODE, after=after,
                ),
            )  # fmt: skip
        self.kernels.decode(group, codec, "decode all gradients", size, stage=_STAGE, after=after)
        if not group.key.pooled:
            self.kernels.stream(
                group, "permute rows' gradients", 2.0 * size, stage=_STAGE, after=after
            )
        self._scale(group, "scale gradients", size, after)
        return after

    def _scale(
        self, group: GroupFormulas, name: str, size: Linear, after: tuple[Wait, ...]
    ) -> None:
        """Divide gradients by the number of ranks, in place."""
        if self.kernels.workload.pipeline is not Pipeline.DLRM:
            self.kernels.stream(
                group, name, 2.0 * size, stage=_STAGE, issue=SCALE_GRADIENTS, after=after,
                efficiency=self.kernels.gpu.in_place_efficiency,
            )  # fmt: skip

    def _lookup_backward(
        self, group: GroupFormulas, kernel: KernelKey, after: tuple[Wait, ...]
    ) -> None:
        """Update a kernel's tables; weights of ids get a gradient first, needed or not.

        FBGEMM gathers every row once more for it (embedding_backward_split_host_template.cpp
        1006-1035), which takes longer than the forward did (``kernels.embedding``).
        """
        if group.key.weighted:
            work = Work(kind=WorkKind.WEIGHT_GRADIENT, kernel=(group.key, kernel))
            self.builder.kernel(
                f"{label(group)} weights backward", _STAGE, work, after=after,
                role=Role.UPDATE, basis=None,
            )  # fmt: skip
        work = Work(kind=WorkKind.BACKWARD, kernel=(group.key, kernel))
        self.builder.kernel(
            f"{label(group)} lookup backward", _STAGE, work, after=after,
            issue=LOOKUP_BACKWARD, role=Role.UPDATE, basis=None,
        )  # fmt: skip
