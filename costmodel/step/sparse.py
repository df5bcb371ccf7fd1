"""Lookups, output collectives and backward of the sharding groups.

Written group by group as TorchRec 1.9 does (``torchrec/distributed/sharding``); section 3 of the
execution-graph notes is the table this follows. One sharding group is one set of collectives.

Left out on GPUs: where a module has several groups, their outputs are concatenated once more, and
their gradients copied once more (3 and 4 us of a 14 ms step in the 8 x V100 trace; on two CPU
cores 8 ms each of 180 ms).
"""

from dataclasses import dataclass
from typing import TypeAlias

from costmodel.domain.hardware import CollectiveOp, Gpu
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pipeline, Pooling, Workload
from costmodel.step.builder import StepBuilder
from costmodel.step.exchange import add_collective, add_stream, label
from costmodel.step.graph import Resource, Role, Stage
from costmodel.step.groups import GroupKey, KernelKey, joined_groups
from costmodel.step.input_dist import LENGTH_BYTES, ROW_SHARDED, InputDist
from costmodel.step.issue import (
    GATHER_OUTPUTS,
    LOOKUP,
    LOOKUP_BACKWARD,
    ONE_OP,
    ORDER_FEATURES,
    SCALE_GRADIENTS,
    SEND_OUTPUTS,
    SPLIT_GRADIENT_OPS,
    Issue,
)
from costmodel.step.loads import HIERARCHICAL
from costmodel.step.outputs import OutputExchange
from costmodel.step.program import ProcessGroup
from costmodel.step.template import Event, GroupFormulas, Linear, Work, WorkKind

COLUMN_SHARDED = (
    ShardingType.COLUMN_WISE,
    ShardingType.TABLE_COLUMN_WISE,
    ShardingType.GRID_SHARD,
)
Exchanges: TypeAlias = dict[GroupKey, int]
"""The collective that each group waits for."""
__all__ = ["COLUMN_SHARDED", "LENGTH_BYTES", "ROW_SHARDED", "Exchanges", "SparsePart"]


@dataclass(frozen=True, slots=True)
class SparsePart:
    """Writes the embedding work of one step into a program."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]

    @property
    def inputs(self) -> InputDist:
        """The input distribution of the same groups."""
        return InputDist(self.builder, self.workload, self.groups)

    # -- forward ----------------------------------------------------------------------------

    def forward(self) -> Exchanges:
        """Look up every group and start its output collective; returns what to wait for."""
        started: Exchanges = {}
        for group in self.groups:
            with self.builder.part_of(group.key):
                for kernel in group.kernels:
                    self._lookup(group, kernel)
                if self._outputs.is_exchanged(group):
                    started[group.key] = self._send_outputs(group)
        return started

    def gather_outputs(self, after: Exchanges) -> None:
        """Put together what the collectives brought, each group when its own is done.

        An all-to-all brings one block per rank, to be concatenated; a reduce-scatter's output is
        in place. Column shards are put in the tables' order. A module's groups become one tensor.
        TorchRec's DLRM then splits the features and concatenates them in the model's order
        (``SparseArch``).
        """
        views = self._gpu.view_efficiency
        for group in self.groups:
            with self.builder.part_of(group.key):
                if group.key in after:
                    self._gather(group, (after[group.key],))
                if group.key.sharding_type in COLUMN_SHARDED:
                    moved = 2.0 * self._outputs.local_size(group)
                    self._stream(group, "permute columns", moved, efficiency=views)
        self._join_groups()
        if self.workload.pipeline is not Pipeline.DLRM:
            columns = sum(
                table.embedding_dim * table.num_features
                for table in self.workload.tables
                if table.pooling is not Pooling.NONE
            )
            num_bytes = 2.0 * self.workload.local_batch_size * columns * self._outputs.element_bytes
            add_stream(
                self.builder, "order features", num_bytes,
                stage=Stage.LOOKUP_FORWARD, issue=ORDER_FEATURES, efficiency=views,
                role=Role.ORDER_FEATURES,
            )  # fmt: skip

    def _join_groups(self) -> None:
        """Concatenate the outputs of a module's groups, where it has several."""
        for keys in filter(None, dict.fromkeys(self._joined(group) for group in self.groups)):
            sizes = (self._outputs.local_size(group) for group in self.groups if group.key in keys)
            local = sum(sizes, start=Linear())
            with self.builder.part_of(*keys, joined=keys):
                self._copy(None, "concat groups", 2.0 * local)

    def _joined(self, group: GroupFormulas) -> tuple[GroupKey, ...]:
        """Return the groups of a module, where they are put together: ``construct_output_kt``."""
        if not self.builder.synchronous or self.workload.pipeline is Pipeline.DLRM:
            return ()
        return joined_groups(group.key, (each.key for each in self.groups))

    def _lookup(self, group: GroupFormulas, kernel: KernelKey) -> None:
        work = Work(kind=WorkKind.FORWARD, kernel=(group.key, kernel))
        self.builder.kernel(
            f"{label(group)} lookup", Stage.LOOKUP_FORWARD, work,
            issue=LOOKUP, role=Role.LOOKUP, basis=None,
        )  # fmt: skip

    def _send_outputs(self, group: GroupFormulas) -> int:
        """Start the forward output collective of a group; returns what its gathering waits for."""
        codec, size = self.workload.comms_forward, self._outputs.size(group)
        self._codec(group, codec, "encode", size)
        wire = size * self._outputs.wire_ratio(codec)
        if group.key.sharding_type in HIERARCHICAL:
            return self._send_hierarchical(group, wire)
        op = self._outputs.last_op(group)
        if op is CollectiveOp.ALL_TO_ALL:
            self._stream(group, "copy to send buffer", 2.0 * wire, issue=SEND_OUTPUTS)
            wire = self._outputs.all_to_all_size(group, codec)
        return self._collective(group, "outputs", op, wire)

    def _send_hierarchical(self, group: GroupFormulas, wire: Linear) -> int:
        """Reduce-scatter inside the node, waited for inside forward, then exchange across nodes.

        A process group of one rank exchanges nothing (``comm_ops`` returns at once).
        """
        codec = self.workload.comms_forward
        inside: tuple[Event, ...] = ()
        if self.builder.local_world_size > 1:
            inside = (
                self._collective(
                    group, "partial sums", CollectiveOp.REDUCE_SCATTER, wire,
                    members=ProcessGroup.INTRA_NODE,
                ),
            )  # fmt: skip
        if self._outputs.num_nodes == 1:
            return self.builder.kernel(
                f"{label(group)} wait for sums", Stage.LOOKUP_FORWARD, 0.0, after=inside
            )
        across = wire / self.builder.local_world_size
        if inside:
            summed = across / self._outputs.wire_ratio(codec)
            self._codec(group, codec, "decode sums", summed, after=inside)
            self._codec(group, codec, "encode sums", summed)
        self._stream(group, "copy to send buffer", 2.0 * across, issue=SEND_OUTPUTS, after=inside)
        return self._collective(
            group, "outputs", CollectiveOp.ALL_TO_ALL, across, members=ProcessGroup.CROSS_NODE
        )

    def _gather(self, group: GroupFormulas, after: tuple[Event, ...]) -> None:
        local = self._outputs.local_size(group)
        self._codec(group, self.workload.comms_forward, "decode", local, after=after)
        if self._outputs.last_op(group) is CollectiveOp.ALL_TO_ALL:
            self._copy(group, "concat outputs", 2.0 * local, issue=GATHER_OUTPUTS, after=after)
        else:
            name = f"{label(group)} wait for outputs"
            self.builder.kernel(name, Stage.LOOKUP_FORWARD, 0.0, after=after)

    # -- backward ---------------------------------------------------------------------------

    def split_gradients(self) -> Exchanges:
        """Split the embeddings' gradient by group and start to send it back.

        Autograd runs operators in the reverse order of their forward, and forward waits for
        outputs after the last lookup: so all of this comes before the first lookup's backward.
        """
        sent: Exchanges = {}
        views = self._gpu.view_efficiency
        for group in reversed(self.groups):
            local, stage = self._outputs.local_size(group), Stage.LOOKUP_BACKWARD
            self._separate_gradients(group)
            with self.builder.part_of(group.key):
                if group.key.sharding_type in COLUMN_SHARDED:
                    self._stream(
                        group, "permute gradients", 2.0 * local, stage=stage, efficiency=views
                    )
                if not self._outputs.is_exchanged(group):
                    continue
                if self._outputs.last_op(group) is CollectiveOp.ALL_TO_ALL:
                    # a copy for every rank, then all in one buffer: 8 + 1 in the 8 x V100 trace
                    ranks = self.builder.world_size
                    issue = Issue(SPLIT_GRADIENT_OPS + ranks, 1.0 + ranks)
                    self._copy(group, "split gradients", 4.0 * local, stage=stage, issue=issue)
                codec = self.workload.comms_backward
                self._codec(group, codec, "encode gradients", local, stage=stage)
                if self._outputs.waits_at_the_end(group):
                    sent[group.key] = self._send_gradients(group)
        return sent

    def _separate_gradients(self, group: GroupFormulas) -> None:
        """Copy a group's part of a gradient that others share; ordering column shards does so."""
        keys = self._joined(group)
        ordered = group.key.sharding_type in COLUMN_SHARDED
        if keys and self._outputs.is_exchanged(group) and not ordered:
            with self.builder.part_of(group.key, joined=keys):
                moved = 2.0 * self._outputs.local_size(group)
                self._copy(group, "separate gradients", moved, stage=Stage.LOOKUP_BACKWARD)

    def _send_gradients(self, group: GroupFormulas) -> int:
        """Start the collective of a group's gradients; of a hierarchical one, across nodes."""
        wire = self._outputs.size(group) * self._outputs.wire_ratio(self.workload.comms_backward)
        if group.key.sharding_type in HIERARCHICAL:
            return self._collective(
                group, "gradients across nodes", CollectiveOp.ALL_TO_ALL,
                wire / self.builder.local_world_size, members=ProcessGroup.CROSS_NODE,
            )  # fmt: skip
        if self._outputs.last_op(group) is CollectiveOp.REDUCE_SCATTER:
            return self._collective(group, "gradients", CollectiveOp.ALL_GATHER, wire)
        wire = self._outputs.all_to_all_size(group, self.workload.comms_backward)
        return self._collective(group, "gradients", CollectiveOp.ALL_TO_ALL, wire)

    def backward(self, after: Exchanges) -> tuple[int, ...]:
        """Fused backward and update of every group, each when its own gradients are there.

        Replicated tables wait for nothing, and their all-reduce starts at once. Returns the
        all-reduces.
        """
        reduced: list[int] = []
        for group in reversed(self.groups):
            waits: tuple[Event, ...] = (after[group.key],) if group.key in after else ()
            with self.builder.part_of(group.key):
                if self._outputs.is_exchanged(group):
                    waits = self._receive_gradients(group, waits)
                for kernel in reversed(group.kernels):
                    self._lookup_backward(group, kernel, waits)
                if group.key.sharding_type is ShardingType.DATA_PARALLEL:
                    reduced += self._reduce_replicas(group)
        return tuple(reduced)

    def _receive_gradients(
        self, group: GroupFormulas, after: tuple[Event, ...]
    ) -> tuple[Event, ...]:
        """Wait for a group's gradients and scale them; returns what they still wait for.

        The reduce-scatter inside a node was waited for inside forward, so its all-gather starts
        only here. TorchRec divides by the number of ranks (``comm_ops``, GRADIENT_DIVISION).
        """
        codec, size = self.workload.comms_backward, self._outputs.size(group)
        stage = Stage.LOOKUP_BACKWARD
        if group.key.sharding_type in HIERARCHICAL and self.builder.local_world_size > 1:
            if after:
                across = size / self.builder.local_world_size
                self._codec(group, codec, "decode gradients", across, stage=stage, after=after)
                self._codec(group, codec, "encode node gradients", across, stage=stage)
            after = (
                self._collective(
                    group, "gradients", CollectiveOp.ALL_GATHER,
                    size * self._outputs.wire_ratio(codec),
                    members=ProcessGroup.INTRA_NODE, after=after,
                ),
            )  # fmt: skip
        self._codec(group, codec, "decode all gradients", size, stage=stage, after=after)
        if self.workload.pipeline is not Pipeline.DLRM:
            self._stream(
                group, "scale gradients", 2.0 * size,
                stage=stage, issue=SCALE_GRADIENTS, after=after,
                efficiency=self._gpu.in_place_efficiency,
            )  # fmt: skip
        return after

    def _lookup_backward(
        self, group: GroupFormulas, kernel: KernelKey, after: tuple[Event, ...]
    ) -> None:
        work = Work(kind=WorkKind.BACKWARD, kernel=(group.key, kernel))
        self.builder.kernel(
            f"{label(group)} lookup backward", Stage.LOOKUP_BACKWARD, work, after=after,
            issue=LOOKUP_BACKWARD, role=Role.UPDATE, basis=None,
        )  # fmt: skip

    def _reduce_replicas(self, group: GroupFormulas) -> list[int]:
        """All-reduce the gradients of replicated tables in one message.

        A lookup kernel's tables are one parameter (the 8 x V100 trace reduces its two replicated
        tables as one tensor of 112 numbers; ``BatchedDenseEmbeddingBag``), and
        DistributedDataParallel never splits a parameter over buckets.
        """
        if self.builder.world_size == 1:
            return []
        size, stage = group.parameter_bytes, Stage.DENSE_BACKWARD
        self._stream(group, "gradient copy", 2.0 * size, stage=stage)
        return [self._collective(group, "all-reduce", CollectiveOp.ALL_REDUCE, size)]

    @property
    def replicated(self) -> tuple[GroupFormulas, ...]:
        """The groups of data_parallel tables, which every rank holds and reduces."""
        kind = ShardingType.DATA_PARALLEL
        return tuple(group for group in self.groups if group.key.sharding_type is kind)

    # -- shared -----------------------------------------------------------------------------

    @property
    def _gpu(self) -> Gpu:
        return self.builder.hardware.gpu

    @property
    def _outputs(self) -> OutputExchange:
        """How outputs are exchanged."""
        return OutputExchange(self.builder, self.workload)

    def _codec(
        self,
        group: GroupFormulas,
        codec: DataType | None,
        name: str,
        size: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        after: tuple[Event, ...] = (),
    ) -> None:
        """Convert to or from the wire format of quantized communication."""
        if codec is not None:
            moved = size * (1.0 + self._outputs.wire_ratio(codec))
            self._stream(group, name, moved, stage=stage, after=after)

    def _collective(
        self,
        group: GroupFormulas,
        name: str,
        op: CollectiveOp,
        size: Linear,
        *,
        members: ProcessGroup = ProcessGroup.WORLD,
        after: tuple[Event, ...] = (),
    ) -> int:
        """Start a collective that waits for the compute stream."""
        return add_collective(
            self.builder, f"{label(group)} {name}", op, size,
            group=members, after=(*self.builder.last(Resource.COMPUTE), *after),
        )  # fmt: skip

    def _copy(
        self,
        group: GroupFormulas | None,
        name: str,
        num_bytes: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        issue: Issue = ONE_OP,
        after: tuple[Event, ...] = (),
    ) -> None:
        """Add a kernel that puts whole tensors side by side, or takes them apart."""
        share = self._gpu.concat_efficiency
        self._stream(
            group, name, num_bytes, stage=stage, issue=issue, after=after, efficiency=share
        )

    def _stream(
        self,
        group: GroupFormulas | None,
        name: str,
        num_bytes: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        issue: Issue = ONE_OP,
        after: tuple[Event, ...] = (),
        efficiency: float = 1.0,
    ) -> int:
        """Add a memory-bound kernel on the compute stream; nothing where there are no bytes."""
        return add_stream(
            self.builder, f"{label(group)} {name}" if group else name, num_bytes,
            stage=stage, issue=issue, after=after, efficiency=efficiency,
        )  # fmt: skip
