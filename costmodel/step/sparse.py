"""Lookups and output collectives of the sharding groups; ``step.gradients`` is the way back.

Written group by group as TorchRec 1.9 does (``torchrec/distributed/sharding``); section 3 of the
execution-graph notes is the table this follows. One sharding group is one set of collectives.
"""

from dataclasses import dataclass

from costmodel.domain.dense_layers import pooled_width
from costmodel.domain.hardware import Basis, Bound, CollectiveOp, Source
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pipeline, Workload
from costmodel.kernels.pointwise import concat_efficiency
from costmodel.step.builder import Mark, StepBuilder, Wait
from costmodel.step.exchange_operations import add_stream, label
from costmodel.step.gradients import Gradients
from costmodel.step.graph import Role, Stage
from costmodel.step.group_kernels import GroupKernels
from costmodel.step.groups import KernelKey
from costmodel.step.input_dist import InputDist
from costmodel.step.issue import (
    FETCH_ROWS,
    GATHER_OUTPUTS,
    GATHER_SUMS_OPS,
    LOOKUP,
    ORDER_FEATURES,
    SEND_OUTPUTS,
    SEND_SUMS_OPS,
)
from costmodel.step.replica_sync import ReplicaSync
from costmodel.step.stash import Stash
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import GroupFormulas, Linear, Work, WorkKind


@dataclass(frozen=True, slots=True)
class SparsePart:
    """Adds the embedding work of one step."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]

    @property
    def inputs(self) -> InputDist:
        """The input distribution of the same groups."""
        return InputDist(self.builder, self.workload, self.groups)

    @property
    def gradients(self) -> Gradients:
        """The backward of the same groups."""
        return Gradients(self._kernels)

    @property
    def stash(self) -> Stash:
        """The copies of the same groups' weights to the host and back."""
        return Stash(self.builder, self.workload, self.groups)

    @property
    def replica_sync(self) -> ReplicaSync:
        """The averaging of the sharded groups' replicas on other ranks of the job."""
        return ReplicaSync.of(self.builder, self.workload, self.groups)

    @property
    def replicated(self) -> tuple[GroupFormulas, ...]:
        """The groups of data_parallel tables, which every rank holds and reduces."""
        kind = ShardingType.DATA_PARALLEL
        return tuple(group for group in self.groups if group.key.sharding_type is kind)

    def forward(self) -> None:
        """Add every group's lookup and start of its output collective, on the current stream."""
        for group in self.groups:
            with self.builder.part_of(group.key):
                for kernel in group.kernels:
                    self._lookup(group, kernel)
                self._join_lookups(group)
                self.stash.save(group)
                self.replica_sync.scatter(group)
                if self._kernels.outputs.is_exchanged(group):
                    self.builder.mark(_sent(group), self._send_outputs(group))

    def fetch(self) -> None:
        """Add the fetch of the latest batch's rows into UVM caches, on the current stream.

        A lookup kernel without cached tables fetches nothing.
        """
        for group in self.inputs.distributed:
            with self.builder.part_of(group.key):
                self.builder.kernel(
                    f"{label(group)} fetch rows", Stage.LOOKUP_FORWARD,
                    self.builder.linear_time(group.fetch_time), issue=FETCH_ROWS,
                    basis=Basis(Bound.HOST_MEMORY, Source.FITTED),
                )  # fmt: skip

    def gather_outputs(self) -> None:
        """Add the concatenation of received outputs, each group when its collective is done.

        A pooled all-to-all brings one block per rank, to be concatenated; a reduce-scatter's output
        is in place. Column shards are put in the tables' order. A module's groups become one
        tensor. TorchRec's DLRM then splits the features and concatenates them in the model's order
        (``SparseArch``).
        """
        kernels, views = self._kernels, self._kernels.gpu.view_efficiency
        for group in self.groups:
            local = kernels.outputs.local_size(group)
            with self.builder.part_of(group.key):
                if kernels.outputs.is_exchanged(group):
                    self._gather(group, self.builder.latest(_sent(group)))
                if group.key.sharding_type.splits_columns and group.key.pooled:
                    kernels.stream(group, "permute columns", 2.0 * local, efficiency=views)
                elif group.key.sharding_type.splits_columns:
                    kernels.copy(group, "concat columns", 2.0 * local)
        self._join_groups()
        kernels.divide("divide by lengths", Stage.LOOKUP_FORWARD)
        kernels.spread("spread over samples", Stage.LOOKUP_FORWARD)
        if self.workload.pipeline is not Pipeline.DLRM:
            samples = self.workload.local_batch_size * kernels.outputs.element_bytes
            num_bytes = 2.0 * samples * pooled_width(self.workload)
            efficiency = views if self.builder.synchronous else concat_efficiency(kernels.gpu)
            add_stream(
                self.builder, "order features", num_bytes,
                stage=Stage.LOOKUP_FORWARD, issue=ORDER_FEATURES, efficiency=efficiency,
                role=Role.ORDER_FEATURES,
            )  # fmt: skip

    @property
    def _kernels(self) -> GroupKernels:
        return GroupKernels(self.builder, self.workload, self.groups)

    def _join_groups(self) -> None:
        """Concatenate the outputs of a module's groups, where it has several."""
        kernels = self._kernels
        for keys in filter(None, dict.fromkeys(map(kernels.joined, self.groups))):
            sizes = (
                kernels.outputs.local_size(group) for group in self.groups if group.key in keys
            )
            local = sum(sizes, start=Linear())
            with self.builder.part_of(*keys, joined=keys):
                kernels.copy(None, "concat groups", 2.0 * local)

    def _lookup(self, group: GroupFormulas, kernel: KernelKey) -> None:
        work = Work(kind=WorkKind.FORWARD, kernel=(group.key, kernel))
        self.builder.kernel(
            f"{label(group)} lookup", Stage.LOOKUP_FORWARD, work,
            issue=LOOKUP, role=Role.LOOKUP, basis=None,
        )  # fmt: skip

    def _join_lookups(self, group: GroupFormulas) -> None:
        """Concatenate the outputs of several lookup kernels, on ranks where they have work.

        For the global batch, before they are exchanged (torchrec 1.9.2, embedding_lookup.py
        178-190); of replicated tables, for the rank's own. Backward takes slices of the gradient
        as they are.
        """
        outputs = self._kernels.outputs
        replicated = group.key.sharding_type is ShardingType.DATA_PARALLEL
        size = outputs.local_size(group) if replicated else outputs.size(group)
        if len(group.kernels) > 1:
            add_stream(
                self.builder, f"{label(group)} concat lookups", 2.0 * size,
                stage=Stage.LOOKUP_FORWARD, efficiency=self._kernels.gpu.concat_efficiency,
                where=tuple((group.key, kernel) for kernel in group.kernels), least=2,
            )  # fmt: skip

    def _send_outputs(self, group: GroupFormulas) -> int:
        """Start a group's output collective, and return the operation that gathering waits for.

        Rows that are not pooled are first put in the order of the ranks they go to.
        """
        kernels, outputs = self._kernels, self._kernels.outputs
        size = outputs.size(group)
        if group.key.sharding_type.within_node:
            return self._send_hierarchical(group, size)
        op = outputs.last_op(group)
        codec = outputs.codec(op, backward=False)
        if not group.key.pooled:
            kernels.stream(group, "permute outputs", 2.0 * size, issue=SEND_OUTPUTS)
        wire = kernels.encode(group, codec, "encode", size)
        if op is CollectiveOp.ALL_TO_ALL:
            if group.key.pooled:
                kernels.stream(group, "copy to send buffer", 2.0 * wire, issue=SEND_OUTPUTS)
            wire = outputs.all_to_all_size(group, codec)
        else:
            kernels.host(group, "send sums", SEND_SUMS_OPS)
        return kernels.collective(group, "outputs", op, wire)

    def _send_hierarchical(self, group: GroupFormulas, size: Linear) -> int:
        """Reduce-scatter inside the node, waited for inside forward, then exchange across nodes.

        A process group of one rank exchanges nothing (``comm_ops`` returns at once).
        """
        kernels, outputs = self._kernels, self._kernels.outputs
        inside: tuple[Wait, ...] = ()
        across = size / self.builder.local_world_size
        summed = outputs.codec(CollectiveOp.REDUCE_SCATTER, backward=False)
        if self.builder.local_world_size > 1:
            wire = kernels.encode(group, summed, "encode", size)
            kernels.host(group, "send sums", SEND_SUMS_OPS)
            inside = (
                kernels.collective(
                    group, "partial sums", CollectiveOp.REDUCE_SCATTER, wire,
                    members=ProcessGroup.INTRA_NODE,
                ),
            )  # fmt: skip
            kernels.host(group, "gather sums", GATHER_SUMS_OPS)
        if outputs.num_nodes == 1:
            return self.builder.kernel(
                f"{label(group)} wait for sums", Stage.LOOKUP_FORWARD, 0.0, after=inside
            )
        if inside:
            kernels.decode(group, summed, "decode sums", across, after=inside)
        codec = outputs.codec(CollectiveOp.ALL_TO_ALL, backward=False)
        wire = kernels.encode(group, codec, "encode sums", across, after=inside)
        kernels.stream(group, "copy to send buffer", 2.0 * wire, issue=SEND_OUTPUTS, after=inside)
        return kernels.collective(
            group, "outputs", CollectiveOp.ALL_TO_ALL, wire, members=ProcessGroup.CROSS_NODE
        )

    def _gather(self, group: GroupFormulas, after: tuple[Wait, ...]) -> None:
        """Add what brings a group's outputs together on a rank once they have come."""
        kernels, op = self._kernels, self._kernels.outputs.last_op(group)
        local = kernels.outputs.local_size(group)
        codec = kernels.outputs.codec(op, backward=False)
        kernels.decode(group, codec, "decode", local, after=after)
        if op is CollectiveOp.ALL_TO_ALL and group.key.pooled:
            kernels.copy(group, "concat outputs", 2.0 * local, issue=GATHER_OUTPUTS, after=after)
            return
        if group.key.sharding_type is ShardingType.ROW_WISE and group.key.pooled:
            kernels.host(group, "gather sums", GATHER_SUMS_OPS)
        name = f"{label(group)} wait for outputs"
        self.builder.kernel(name, Stage.LOOKUP_FORWARD, 0.0, after=after)
        if group.key.sharding_type is ShardingType.ROW_WISE and not group.key.pooled:
            kernels.stream(group, "select rows", 2.0 * local, issue=GATHER_OUTPUTS)


def _sent(group: GroupFormulas) -> Mark:
    """Return the mark of the end of a group's output exchange."""
    return Mark("outputs exchanged", group.key)
