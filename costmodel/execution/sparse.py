"""The model-parallel part of a step: input distribution, lookups, output collectives, backward.

Written group by group as TorchRec 1.9 does (``torchrec/distributed/sharding``); section 3 of the
execution-graph notes is the table this follows. One sharding group is one set of collectives.
"""

from dataclasses import dataclass

from costmodel.execution.dense import BUCKET
from costmodel.execution.graph import Stage
from costmodel.execution.groups import KernelKey
from costmodel.execution.loads import HIERARCHICAL, GroupLoad
from costmodel.execution.program import Amount, ProcessGroup, ProgramBuilder
from costmodel.hardware import CollectiveOp
from costmodel.kernels.embedding import Traffic
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
            with self.builder.part_of(group.key):
                lengths = group.sent_features / self._destinations(group) * batch * LENGTH_BYTES
                moved = 2.0 * (index * group.sent_ids + lengths)
                self._stream(
                    f"{_label(group)} permute ids", moved, stream=stream,
                    after=after, after_previous=after_previous,
                )  # fmt: skip
                if group.key.sharding_type in ROW_SHARDED:
                    spread = 2.0 * index * group.sent_ids
                    spread += lengths * (1 + self._destinations(group))
                    self._stream(f"{_label(group)} bucketize ids", spread, stream=stream, num_ops=3)
        if self.builder.world_size == 1 or not self.distributed:
            return None
        tensors = sum(
            group.present * (3 if group.key.weighted else 2) for group in self.distributed
        )
        with self.builder.part_of(*(group.key for group in self.distributed)):
            return self._collective(
                "splits", CollectiveOp.ALL_TO_ALL,
                tensors * float(SPLITS_BYTES * self.builder.world_size),
                stage=Stage.INPUT_DIST, stream=stream,
            )  # fmt: skip

    def finish_input_dist(self, stream: str, splits: int | None) -> tuple[int, ...]:
        """Wait on the host for the split sizes, then exchange lengths, ids and weights.

        Returns the collectives.
        """
        if splits is None:
            return ()
        with self.builder.part_of(*(group.key for group in self.distributed)):
            self.builder.wait("wait for splits", (splits,))
        exchanged: list[int] = []
        samples = float(self.workload.local_batch_size * self.builder.world_size)
        for group in self.distributed:
            sizes = [
                ("lengths", group.features * samples * LENGTH_BYTES),
                ("ids", group.ids * self.workload.index_bytes),
            ]
            sizes += [("weights", group.ids * 4.0)] if group.key.weighted else []
            with self.builder.part_of(group.key):
                exchanged += [
                    self._collective(
                        f"{_label(group)} {name}", CollectiveOp.ALL_TO_ALL, size,
                        stage=Stage.INPUT_DIST, stream=stream,
                    )
                    for name, size in sizes
                ]  # fmt: skip
        return tuple(exchanged)

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
            with self.builder.part_of(group.key):
                self._stream(
                    f"{_label(group)} reorder ids", moved, stream=stream, num_ops=3,
                    after=after, after_previous=after_previous,
                )  # fmt: skip
                self._stream(
                    f"{_label(group)} lengths per feature",
                    LENGTH_BYTES * group.features * samples,
                    stream=stream,
                )
        with self.builder.part_of(*(group.key for group in self.distributed)):
            self.builder.wait("wait for lengths", self.builder.last(stream))

    # -- forward ----------------------------------------------------------------------------

    def forward(self) -> tuple[int, ...]:
        """Look up every group and start its output collective; returns what to wait for."""
        started: list[int] = []
        for group in self.groups:
            with self.builder.part_of(group.key):
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
            name, stage = _label(group), Stage.LOOKUP_FORWARD
            with self.builder.part_of(group.key):
                self._codec(group, self.workload.comms_forward, "decode", moved / 2.0, after=after)
                self._stream(f"{name} concat outputs", moved, stage=stage, after=after)
                if group.key.sharding_type in COLUMN_SHARDED:
                    self._stream(f"{name} permute columns", moved, stage=stage)

    def _lookup(self, group: GroupLoad, kernel: KernelKey) -> None:
        traffic = group.traffic[kernel]
        seconds = self.builder.lookup_time(traffic)
        self.builder.kernel(
            f"{_label(group)} lookup", Stage.LOOKUP_FORWARD, seconds, num_ops=2,
            num_bytes=traffic[:, Traffic.FORWARD_HBM],
            bound_by=self.builder.lookup_bound(traffic),
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
            last = self._collective(f"{_label(group)} outputs", CollectiveOp.REDUCE_SCATTER, wire)
        else:
            self._stream(
                f"{_label(group)} copy to send buffer", 2.0 * size, stage=Stage.LOOKUP_FORWARD
            )
            last = self._collective(f"{_label(group)} outputs", CollectiveOp.ALL_TO_ALL, wire)
        return [last]

    def _send_hierarchical(self, group: GroupLoad, wire: Amount) -> int:
        """Reduce-scatter inside the node, waited for inside forward, then exchange across nodes."""
        inside = self._collective(
            f"{_label(group)} partial sums", CollectiveOp.REDUCE_SCATTER, wire,
            group=ProcessGroup.INTRA_NODE,
        )  # fmt: skip
        across = wire / self.builder.local_world_size
        self._stream(
            f"{_label(group)} order rows", 2.0 * across, stage=Stage.LOOKUP_FORWARD, after=(inside,)
        )
        return self._collective(
            f"{_label(group)} outputs", CollectiveOp.ALL_TO_ALL, across,
            group=ProcessGroup.CROSS_NODE,
        )  # fmt: skip

    # -- backward ---------------------------------------------------------------------------

    def split_gradients(self) -> tuple[int, ...]:
        """Split the embeddings' gradient by group and send it back; returns the collectives."""
        batch, sent = self.workload.local_batch_size, []
        for group in reversed(self.groups):
            moved = 2.0 * batch * group.table_columns * self._output_bytes
            with self.builder.part_of(group.key):
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
                f"{name} across nodes", CollectiveOp.ALL_TO_ALL, across,
                group=ProcessGroup.CROSS_NODE,
            )  # fmt: skip
            return [self._collective(
                name, CollectiveOp.ALL_GATHER, wire,
                group=ProcessGroup.INTRA_NODE, after=(first,),
            )]  # fmt: skip
        if sharding_type is ShardingType.ROW_WISE and group.key.pooled:
            return [self._collective(name, CollectiveOp.ALL_GATHER, wire)]
        return [self._collective(name, CollectiveOp.ALL_TO_ALL, wire)]

    def backward(self, after: tuple[int, ...]) -> None:
        """Fused backward and update of every group; the compute stream waits for its gradients."""
        for group in reversed(self.groups):
            size = self._output_size(group)
            codec = self.workload.comms_backward
            with self.builder.part_of(group.key):
                self._codec(group, codec, "decode gradients", size, after=after)
                for traffic in reversed(list(group.traffic.values())):
                    self._lookup_backward(group, traffic, after)

    def _lookup_backward(self, group: GroupLoad, traffic: Amount, after: tuple[int, ...]) -> None:
        self.builder.kernel(
            f"{_label(group)} lookup backward", Stage.LOOKUP_BACKWARD,
            self.builder.lookup_time(traffic, backward=True),
            after=after, num_ops=2, num_launches=4, num_bytes=traffic[:, Traffic.BACKWARD_HBM],
            bound_by=self.builder.lookup_bound(traffic, backward=True),
        )  # fmt: skip

    def reduce_replicas(self) -> tuple[int, ...]:
        """All-reduce the gradients of replicated tables, in DDP's buckets; returns what to await.

        The buckets are full at the same time and run back to back, so they are one operation.
        """
        replicated = [
            group for group in self.groups if group.key.sharding_type is ShardingType.DATA_PARALLEL
        ]
        if self.builder.world_size == 1 or not replicated:
            return ()
        with self.builder.part_of(*(group.key for group in replicated)):
            return (
                self._collective(
                    "replicated tables all-reduce", CollectiveOp.ALL_REDUCE, self.replicated_bytes,
                    bucket=BUCKET,
                ),
            )  # fmt: skip

    @property
    def replicated_bytes(self) -> Amount:
        """FP32 bytes of the data_parallel tables, which every rank holds and reduces."""
        return sum(group.parameter_bytes for group in self.groups)

    # -- shared -----------------------------------------------------------------------------

    @property
    def _output_bytes(self) -> int:
        return self.workload.output_type.num_bytes

    def _output_size(self, group: GroupLoad) -> Amount:
        """Bytes of a rank's output for the samples of all ranks."""
        samples = self.workload.local_batch_size * self.builder.world_size
        size: Amount = samples * group.columns * self._output_bytes
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
        size: Amount,
        after: tuple[int, ...] = (),
    ) -> None:
        """Convert to or from the wire format of quantized communication."""
        alone = self.builder.world_size == 1
        if codec is None or alone or group.key.sharding_type is ShardingType.DATA_PARALLEL:
            return
        moved = size * (1.0 + self._wire_ratio(codec))
        self._stream(f"{_label(group)} {name}", moved, stage=Stage.LOOKUP_FORWARD, after=after)

    def _collective(  # noqa: PLR0913 -- all but three have defaults
        self,
        name: str,
        op: CollectiveOp,
        size: Amount,
        *,
        group: ProcessGroup = ProcessGroup.WORLD,
        stage: Stage | None = None,
        stream: str = "compute",
        after: tuple[int, ...] = (),
        bucket: Bytes | None = None,
    ) -> int:
        """Start a collective that waits for the stream it is called on."""
        builder = self.builder
        bound_by, source = builder.exchange_bound(op, size, group)
        return builder.collective(
            name, stage or STAGE_OF[op], builder.exchange_time(op, size, group, bucket=bucket),
            group=group, after=(*builder.last(stream), *after), num_bytes=size,
            bound_by=bound_by, source=source,
        )  # fmt: skip

    def _stream(
        self,
        name: str,
        num_bytes: Amount,
        *,
        stage: Stage = Stage.INPUT_DIST,
        stream: str = "compute",
        num_ops: float = 1.0,
        after: tuple[int, ...] = (),
        after_previous: tuple[str, ...] = (),
    ) -> int:
        """Add a memory-bound kernel; nothing where there are no bytes."""
        return self.builder.kernel(
            name, stage, self.builder.stream_time(num_bytes), stream=stream, num_ops=num_ops,
            num_bytes=num_bytes, after=after, after_previous=after_previous,
        )  # fmt: skip


def _label(group: GroupLoad) -> str:
    """Name a group in timelines: its sharding type, and its module where that is not pooled."""
    kind = "" if group.key.pooled else "unpooled "
    return f"{kind}{'weighted ' if group.key.weighted else ''}{group.key.sharding_type}"
