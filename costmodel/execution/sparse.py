"""The model-parallel part of a step: input distribution, lookups, output collectives, backward.

Written group by group as TorchRec 1.9 does (``torchrec/distributed/sharding``); section 3 of the
execution-graph notes is the table this follows. One sharding group is one set of collectives.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.graph import Stage
from costmodel.execution.loads import HIERARCHICAL, GroupLoad, KernelKey
from costmodel.execution.program import ProcessGroup, ProgramBuilder
from costmodel.hardware import CollectiveOp
from costmodel.kernels.collectives import RankGroup, collective_time
from costmodel.kernels.embedding import backward_bound, backward_time, forward_bound, forward_time
from costmodel.plan import ShardingType
from costmodel.units import Bytes
from costmodel.workload import DataType, Workload

LENGTH_BYTES = 4
"""Bytes of one length on the wire: TorchRec sends int32."""
SPLITS_BYTES = 8
"""Bytes of one split size: one int64 per destination and tensor."""
ROW_SHARDED = (ShardingType.ROW_WISE, *HIERARCHICAL)
COLUMN_SHARDED = (
    ShardingType.COLUMN_WISE,
    ShardingType.TABLE_COLUMN_WISE,
    ShardingType.GRID_SHARD,
)
STAGE_OF = {
    CollectiveOp.ALL_TO_ALL: Stage.ALL_TO_ALL,
    CollectiveOp.ALL_REDUCE: Stage.ALL_REDUCE,
    CollectiveOp.REDUCE_SCATTER: Stage.REDUCE_SCATTER,
    CollectiveOp.ALL_GATHER: Stage.ALL_GATHER,
}


@dataclass(frozen=True, slots=True)
class SparsePart:
    """Writes the embedding work of one step into a program."""

    builder: ProgramBuilder
    workload: Workload
    groups: tuple[GroupLoad, ...]

    @property
    def distributed(self) -> tuple[GroupLoad, ...]:
        """Groups that exchange ids and outputs: all but data_parallel."""
        return tuple(
            g for g in self.groups if g.key.sharding_type is not ShardingType.DATA_PARALLEL
        )

    # -- input distribution ---------------------------------------------------------------

    def copy_inputs(self, stream: str) -> int:
        """Copy dense features, ids, lengths and labels of a batch to the GPU."""
        workload, host = self.workload, self.builder.hardware.host
        batch = workload.local_batch_size
        ids = sum(t.pooling_factor for t in workload.tables) * workload.index_bytes
        features = sum(t.num_features for t in workload.tables)
        num_bytes = batch * (4.0 * workload.dense.num_dense_features + ids + 4.0 * features + 4.0)
        return self.builder.kernel(
            "copy batch", Stage.MEMORY_COPY, num_bytes / host.pcie_bandwidth,
            stream=stream, num_ops=4, num_launches=4, num_bytes=num_bytes,
            bound_by="PCIe bandwidth",
        )  # fmt: skip

    def start_input_dist(
        self, stream: str, after: tuple[int, ...] = (), after_previous: tuple[str, ...] = ()
    ) -> int | None:
        """Permute features, bucketize ids by row range, exchange split sizes.

        Returns the all-to-all of the splits, or None on one rank.
        """
        batch, index = self.workload.local_batch_size, self.workload.index_bytes
        for group in self.distributed:
            lengths = group.sent_features / self._destinations(group) * batch * 4.0
            moved = 2.0 * (index * group.sent_ids + lengths)
            self._stream(
                f"{_label(group)} permute ids", moved, stream=stream,
                after=after, after_previous=after_previous,
            )  # fmt: skip
            if group.key.sharding_type in ROW_SHARDED:
                spread = 2.0 * index * group.sent_ids + lengths * (1 + self._destinations(group))
                self._stream(f"{_label(group)} bucketize ids", spread, stream=stream, num_ops=3)
        if self.builder.world_size == 1 or not self.distributed:
            return None
        per_peer = sum(3 if g.key.weighted else 2 for g in self.distributed) * SPLITS_BYTES
        return self._collective(
            "splits", CollectiveOp.ALL_TO_ALL, float(per_peer * self.builder.world_size),
            stage=Stage.INPUT_DIST, stream=stream,
        )  # fmt: skip

    def finish_input_dist(self, stream: str, splits: int | None) -> int | None:
        """Wait on the host for the split sizes, then exchange lengths, ids and weights.

        Returns the last collective.
        """
        if splits is None:
            return None
        self.builder.wait("wait for splits", (splits,))
        last = splits
        samples = float(self.workload.local_batch_size * self.builder.world_size)
        for group in self.distributed:
            sizes = [
                ("lengths", group.features * samples * LENGTH_BYTES),
                ("ids", group.ids * self.workload.index_bytes),
            ]
            sizes += [("weights", group.ids * 4.0)] if group.key.weighted else []
            for name, size in sizes:
                last = self._collective(
                    f"{_label(group)} {name}", CollectiveOp.ALL_TO_ALL, float(size.max()),
                    stage=Stage.INPUT_DIST, stream=stream,
                )  # fmt: skip
        return last

    def receive_inputs(
        self, stream: str, after: tuple[int, ...] = (), after_previous: tuple[str, ...] = ()
    ) -> None:
        """Reorder received ids by table, and block the host until their lengths are known.

        The host waits for a copy of the lengths per feature (TorchRec, ``KJTAllToAll``).
        """
        samples = float(self.workload.local_batch_size * self.builder.world_size)
        if self.builder.world_size == 1 or not self.distributed:
            return
        for group in self.distributed:
            moved = 2.0 * (group.ids * self.workload.index_bytes + 4.0 * group.features * samples)
            self._stream(
                f"{_label(group)} reorder ids", moved, stream=stream, num_ops=3,
                after=after, after_previous=after_previous,
            )  # fmt: skip
            self._stream(
                f"{_label(group)} lengths per feature",
                4.0 * group.features * samples,
                stream=stream,
            )
        self.builder.wait("wait for lengths", self.builder.last(stream))

    # -- forward ----------------------------------------------------------------------------

    def forward(self) -> tuple[int, ...]:
        """Look up every group and start its output collective; returns what to wait for."""
        started: list[int] = []
        for group in self.groups:
            for kernel in group.traffic:
                self._lookup(group, kernel)
            if group.key.sharding_type is not ShardingType.DATA_PARALLEL:
                started += self._send_outputs(group)
        return tuple(started)

    def gather_outputs(self, after: tuple[int, ...]) -> None:
        """Concatenate what the collectives brought; column shards are put in order first."""
        batch = self.workload.local_batch_size
        for group in self.groups:
            moved = 2.0 * batch * group.table_columns * self._output_bytes
            name = _label(group)
            self._codec(group, self.workload.comms_forward, "decode", moved / 2.0, after=after)
            self._stream(f"{name} concat outputs", moved, stage=Stage.LOOKUP_FORWARD, after=after)
            if group.key.sharding_type in COLUMN_SHARDED:
                self._stream(f"{name} permute columns", moved, stage=Stage.LOOKUP_FORWARD)

    def _lookup(self, group: GroupLoad, kernel: KernelKey) -> None:
        traffic = group.traffic[kernel]
        seconds = forward_time(traffic, self.builder.hardware)
        self.builder.kernel(
            f"{_label(group)} lookup", Stage.LOOKUP_FORWARD, seconds, num_ops=2,
            num_bytes=traffic[:, 0],
            bound_by=forward_bound(traffic[seconds.argmax()], self.builder.hardware),
        )  # fmt: skip

    def _send_outputs(self, group: GroupLoad) -> list[int]:
        """Start the forward output collective of a group."""
        if self.builder.world_size == 1:
            return []
        size, sharding_type = self._output_size(group), group.key.sharding_type
        self._codec(group, self.workload.comms_forward, "encode", size)
        wire = size * self._wire_ratio(self.workload.comms_forward)
        if sharding_type in HIERARCHICAL:
            last = self._send_hierarchical(group, wire)
        elif sharding_type is ShardingType.ROW_WISE and group.key.pooled:
            last = self._collective(
                f"{_label(group)} outputs", CollectiveOp.REDUCE_SCATTER, float(wire.max())
            )
        else:
            self._stream(
                f"{_label(group)} copy to send buffer", 2.0 * size, stage=Stage.LOOKUP_FORWARD
            )
            last = self._collective(
                f"{_label(group)} outputs", CollectiveOp.ALL_TO_ALL, float(wire.max())
            )
        return [last]

    def _send_hierarchical(self, group: GroupLoad, wire: NDArray[np.float64]) -> int:
        """Reduce-scatter inside the node, waited for inside forward, then exchange across nodes."""
        inside = self._collective(
            f"{_label(group)} partial sums", CollectiveOp.REDUCE_SCATTER, self._of_node(wire),
            group=ProcessGroup.INTRA_NODE,
        )  # fmt: skip
        across = wire / self.builder.local_world_size
        self._stream(
            f"{_label(group)} order rows", 2.0 * across, stage=Stage.LOOKUP_FORWARD, after=(inside,)
        )
        return self._collective(
            f"{_label(group)} outputs", CollectiveOp.ALL_TO_ALL, float(across.max()),
            group=ProcessGroup.CROSS_NODE,
        )  # fmt: skip

    # -- backward ---------------------------------------------------------------------------

    def split_gradients(self) -> tuple[int, ...]:
        """Split the embeddings' gradient by group and send it back; returns the collectives."""
        batch, sent = self.workload.local_batch_size, []
        for group in reversed(self.groups):
            moved = 2.0 * batch * group.table_columns * self._output_bytes
            self._stream(f"{_label(group)} split gradients", moved, stage=Stage.LOOKUP_BACKWARD)
            if group.key.sharding_type is not ShardingType.DATA_PARALLEL:
                sent += self._send_gradients(group)
        return tuple(sent)

    def _send_gradients(self, group: GroupLoad) -> list[int]:
        if self.builder.world_size == 1:
            return []
        size, sharding_type = self._output_size(group), group.key.sharding_type
        self._codec(group, self.workload.comms_backward, "encode gradients", size)
        wire = size * self._wire_ratio(self.workload.comms_backward)
        name = f"{_label(group)} gradients"
        if sharding_type in HIERARCHICAL:
            across = wire / self.builder.local_world_size
            first = self._collective(
                f"{name} across nodes", CollectiveOp.ALL_TO_ALL, float(across.max()),
                group=ProcessGroup.CROSS_NODE,
            )  # fmt: skip
            return [self._collective(
                name, CollectiveOp.ALL_GATHER, self._of_node(wire),
                group=ProcessGroup.INTRA_NODE, after=(first,),
            )]  # fmt: skip
        if sharding_type is ShardingType.ROW_WISE and group.key.pooled:
            return [self._collective(name, CollectiveOp.ALL_GATHER, float(wire.max()))]
        return [self._collective(name, CollectiveOp.ALL_TO_ALL, float(wire.max()))]

    def backward(self, after: tuple[int, ...]) -> None:
        """Fused backward and update of every group; the compute stream waits for its gradients."""
        for group in reversed(self.groups):
            size = self._output_size(group)
            self._codec(group, self.workload.comms_backward, "decode gradients", size, after=after)
            for kernel, traffic in reversed(list(group.traffic.items())):
                seconds = backward_time(traffic, self.builder.hardware)
                del kernel
                self.builder.kernel(
                    f"{_label(group)} lookup backward", Stage.LOOKUP_BACKWARD, seconds,
                    after=after, num_ops=2, num_launches=4, num_bytes=traffic[:, 3],
                    bound_by=backward_bound(traffic[seconds.argmax()], self.builder.hardware),
                )  # fmt: skip

    @property
    def replicated_bytes(self) -> Bytes:
        """FP32 bytes of the data_parallel tables, which every rank holds and reduces."""
        return sum(group.parameter_bytes for group in self.groups)

    # -- shared -----------------------------------------------------------------------------

    @property
    def _output_bytes(self) -> int:
        return self.workload.output_type.num_bytes

    def _output_size(self, group: GroupLoad) -> NDArray[np.float64]:
        """Bytes of a rank's output for the samples of all ranks."""
        samples = self.workload.local_batch_size * self.builder.world_size
        size: NDArray[np.float64] = samples * group.columns * self._output_bytes
        return size

    def _destinations(self, group: GroupLoad) -> float:
        """Ranks that one feature's ids are spread over."""
        if group.key.sharding_type is ShardingType.ROW_WISE:
            return float(self.builder.world_size)
        if group.key.sharding_type in HIERARCHICAL:
            return float(self.builder.local_world_size)
        return 1.0

    def _wire_ratio(self, codec: DataType | None) -> float:
        return 1.0 if codec is None else codec.num_bytes / self._output_bytes

    def _codec(
        self,
        group: GroupLoad,
        codec: DataType | None,
        name: str,
        size: float | NDArray[np.float64],
        after: tuple[int, ...] = (),
    ) -> None:
        """Convert to or from the wire format of quantized communication."""
        alone = self.builder.world_size == 1
        if codec is None or alone or group.key.sharding_type is ShardingType.DATA_PARALLEL:
            return
        moved = size * (1.0 + self._wire_ratio(codec))
        self._stream(f"{_label(group)} {name}", moved, stage=Stage.LOOKUP_FORWARD, after=after)

    def _of_node(self, size: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest size in every node, for all its ranks."""
        per_node = self.builder.local_world_size
        return np.repeat(size.reshape(-1, per_node).max(axis=1), per_node)

    def _collective(
        self,
        name: str,
        op: CollectiveOp,
        size: float | NDArray[np.float64],
        *,
        group: ProcessGroup = ProcessGroup.WORLD,
        stage: Stage | None = None,
        stream: str = "compute",
        after: tuple[int, ...] = (),
    ) -> int:
        """Start a collective that waits for the stream it is called on."""
        builder = self.builder
        ranks = {
            ProcessGroup.WORLD: RankGroup(
                num_ranks=builder.world_size, ranks_per_node=builder.local_world_size
            ),
            ProcessGroup.INTRA_NODE: RankGroup(
                num_ranks=builder.local_world_size, ranks_per_node=builder.local_world_size
            ),
            ProcessGroup.CROSS_NODE: RankGroup(
                num_ranks=builder.world_size // builder.local_world_size, ranks_per_node=1
            ),
        }[group]
        seconds = collective_time(op, size, ranks, builder.hardware)
        return builder.collective(
            name, stage or STAGE_OF[op], seconds, group=group,
            after=(*builder.last(stream), *after), num_bytes=size,
        )  # fmt: skip

    def _stream(
        self,
        name: str,
        num_bytes: float | NDArray[np.float64],
        *,
        stage: Stage = Stage.INPUT_DIST,
        stream: str = "compute",
        num_ops: float = 1.0,
        after: tuple[int, ...] = (),
        after_previous: tuple[str, ...] = (),
    ) -> int:
        """Add a memory-bound kernel; nothing where there are no bytes."""
        gpu = self.builder.hardware.gpu
        moved = np.asarray(num_bytes, dtype=np.float64)
        seconds = np.where(moved > 0, gpu.kernel_latency + moved / gpu.memory_bandwidth, 0.0)
        return self.builder.kernel(
            name, stage, seconds, stream=stream, num_ops=num_ops, num_bytes=moved,
            after=after, after_previous=after_previous,
        )  # fmt: skip


def _label(group: GroupLoad) -> str:
    """Name a group in timelines: its sharding type, and its module where that is not pooled."""
    kind = "" if group.key.pooled else "unpooled "
    return f"{kind}{'weighted ' if group.key.weighted else ''}{group.key.sharding_type}"
