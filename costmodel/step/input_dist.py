"""Input distribution: from a batch on the host to every rank's ids on its GPU.

As TorchRec's ``KJTAllToAll`` and its pipelines do it; section 2 of the execution-graph notes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.dense_layers import input_bytes_per_sample
from costmodel.domain.hardware import Basis, Bound, CollectiveOp, Source
from costmodel.domain.lengths import fullest_batch
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pipeline, Workload
from costmodel.step.builder import Mark, StepBuilder, Wait
from costmodel.step.exchange_operations import add_collective, add_stream, label
from costmodel.step.graph import Stage
from costmodel.step.groups import GroupKey
from costmodel.step.issue import (
    COLLECTIVE,
    COPY_BATCH,
    PERMUTE_IDS,
    PLAN_EXCHANGE_OPS,
    REORDER_IDS,
    STACK_SPLITS,
    SUM_LENGTHS,
)
from costmodel.step.template import GroupFormulas, Linear

_UNFUSED = (Pipeline.NONE, Pipeline.DLRM)
LENGTH_BYTES = 4.0
"""Bytes of one length on the wire: TorchRec sends int32."""
WEIGHT_BYTES = 4.0
"""Bytes of one per-sample weight on the wire."""
SPLIT_BYTES = 8.0
"""Bytes of one split size, an int64."""
CORE_BUCKETIZE_TIME: Seconds = 15.5e-9
"""Time of a core for an id beyond its bytes: ``block_bucketize_sparse_features`` divides each by
the rows of a shard, twice. 15.3-15.9 ns over 4 shapes, AMD EPYC at 2.6 GHz, fbgemm-gpu-cpu 1.8.0,
2026-11-21, processor time; the bytes of a permutation explain 0.6 ns."""
BATCH_COPIED = Mark("batch copied")
_SPLITS_EXCHANGED = Mark("splits exchanged")
_COPIED = Basis(Bound.PCIE_BANDWIDTH, Source.ROOFLINE)


@dataclass(frozen=True, slots=True)
class InputDist:
    """Adds the input distribution of one batch, on the current stream."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]

    @property
    def distributed(self) -> tuple[GroupFormulas, ...]:
        """Groups that exchange ids and outputs: all but data_parallel."""
        return tuple(
            g for g in self.groups if g.key.sharding_type is not ShardingType.DATA_PARALLEL
        )

    def copy(self) -> None:
        """Add the copy of dense features, ids (and weights), lengths and labels to the GPU."""
        host = self.builder.hardware.host
        num_bytes = _batch_bytes(self.workload, self.builder.world_size)
        stays = self.builder.synchronous  # a CPU has the batch where it computes
        copied = self.builder.kernel(
            "copy batch", Stage.MEMORY_COPY, 0.0 if stays else num_bytes / host.pcie_bandwidth,
            issue=COPY_BATCH, num_bytes=num_bytes, basis=_COPIED,
        )  # fmt: skip
        self.builder.mark(BATCH_COPIED, copied)

    def start(self, copied: tuple[Wait, ...]) -> None:
        """Add the permutation of features, bucketizing of ids, and exchange of split sizes.

        They begin once the batch is ``copied``. The splits of all groups travel in one message:
        lengths, ids, weights if any, and the batch size.
        """
        if not self.distributed:
            return
        with self.builder.part_of(*(group.key for group in self.distributed)):
            self.builder.kernel("wait for batch", Stage.INPUT_DIST, 0.0, after=copied)
        for keys in self._modules:
            self._permute(keys)
        for group in self.distributed:
            if group.key.sharding_type.splits_rows:
                self._bucketize(group)
        if not self._exchanges:
            return
        for group in self.distributed:
            self._copy_splits(group)
        splits = (group.present * (4 if group.key.weighted else 3) for group in self.distributed)
        size = sum(splits, start=Linear()) * float(SPLIT_BYTES * self.builder.world_size)
        with self.builder.part_of(*(group.key for group in self.distributed)):
            add_stream(
                self.builder, "stack splits", 2.0 * size,
                stage=Stage.INPUT_DIST, issue=STACK_SPLITS,
            )  # fmt: skip
            self.builder.mark(_SPLITS_EXCHANGED, self._exchange("splits", size))

    def finish(self) -> None:
        """Wait on the host for the latest split sizes, then exchange lengths, ids and weights.

        Marks the last collective of every group, for ``receive``. One rank exchanges nothing but
        splits, with itself (torchrec 1.9.2, dist_data.py ``KJTAllToAllTensorsAwaitable``).
        """
        if not self._exchanges or not self.distributed:
            return
        with self.builder.part_of(*(group.key for group in self.distributed)):
            self.builder.wait("wait for splits", self.builder.latest(_SPLITS_EXCHANGED))
        for group in self.distributed:
            with self.builder.part_of(group.key):
                last = self.builder.host(f"{label(group)} plan exchange", num_ops=PLAN_EXCHANGE_OPS)
                for name, size in self._sizes(group):
                    last = self._exchange(f"{label(group)} {name}", size)
            self.builder.mark(_exchanged(group), last)

    def _sizes(self, group: GroupFormulas) -> Iterator[tuple[str, Linear]]:
        """Yield (name, bytes) of a group's exchanges when splits are known; none on one rank."""
        if self.builder.world_size == 1:
            return
        samples = float(self.workload.local_batch_size * self.builder.world_size)
        features = self.builder.all_to_all_size(group.features, group.sent_features)
        ids = self.builder.all_to_all_size(
            group.ids, group.sent_ids * float(self.builder.world_size), self._fullest - 1.0
        )
        yield "lengths", features * samples * LENGTH_BYTES
        yield "ids", ids * self.workload.index_bytes
        if group.key.weighted:
            yield "weights", ids * WEIGHT_BYTES

    def receive(self) -> None:
        """Reorder received ids by table, and block the host until their lengths are known.

        Group by group: each waits for its own latest exchange, and the host for a copy of its
        lengths per feature (``KeyedJaggedTensor.dist_init`` ends in ``sync``).
        """
        if not self._exchanges:
            return
        samples = float(self.workload.local_batch_size * self.builder.world_size)
        for group in self.distributed:
            name = label(group)
            lengths = LENGTH_BYTES * group.features * samples
            with self.builder.part_of(group.key):
                if self.builder.world_size > 1:
                    add_stream(
                        self.builder, f"{name} reorder ids",
                        2.0 * (self._id_bytes(group) * group.ids + lengths),
                        stage=Stage.INPUT_DIST, issue=REORDER_IDS,
                        after=self.builder.latest(_exchanged(group)),
                    )  # fmt: skip
                add_stream(
                    self.builder, f"{name} lengths per feature", lengths,
                    stage=Stage.INPUT_DIST, issue=SUM_LENGTHS,
                )  # fmt: skip
                self.builder.wait(f"wait for {name} lengths", self._issued)

    @property
    def _exchanges(self) -> bool:
        """Return whether splits are exchanged: on one rank, if a pipeline fuses all groups'.

        ``KJTAllToAllSplitsAwaitable`` leaves one rank alone, ``FusedKJTListSplitsAwaitable`` does
        not (torchrec 1.9.2; steps of one H200, gpu_study_h200_2026-11-26).
        """
        return self.builder.world_size > 1 or self.workload.pipeline not in _UNFUSED

    @property
    def _fullest(self) -> float:
        """Ids of the rank with most of them in its batch, over the mean."""
        return fullest_batch(self.workload, self.builder.world_size)

    @property
    def _issued(self) -> tuple[Wait, ...]:
        """Everything issued to the current stream."""
        return self.builder.last(self.builder.stream)

    @property
    def _modules(self) -> tuple[tuple[GroupKey, ...], ...]:
        """The sharding groups of every module that has any ids to distribute."""
        modules: dict[tuple[bool, bool], list[GroupKey]] = {}
        for group in self.groups:
            modules.setdefault(group.key[:2], []).append(group.key)
        distributed = {group.key for group in self.distributed}
        return tuple(tuple(keys) for keys in modules.values() if distributed.intersection(keys))

    def _permute(self, keys: tuple[GroupKey, ...]) -> None:
        """Add the permutation of a module's features to the order of its groups and ranks.

        There is none if all its tables are in every rank's order anyway, split by rows over all
        ranks or replicated (torchrec 1.9.2, embeddingbag.py 1648-1659, 1844-1851).
        """
        moving = tuple(key for key in keys if not self._is_in_order(key.sharding_type))
        if not moving:
            return
        groups = (group for group in self.groups if group.key in keys)
        with self.builder.part_of(*moving):
            add_stream(
                self.builder, "permute ids",
                2.0 * sum(map(self._sent_bytes, groups), start=Linear()),
                stage=Stage.INPUT_DIST, issue=PERMUTE_IDS,
            )  # fmt: skip

    def _is_in_order(self, kind: ShardingType) -> bool:
        one_node = self.builder.world_size == self.builder.local_world_size
        return kind.everywhere or (one_node and kind is ShardingType.TABLE_ROW_WISE)

    def _copy_splits(self, group: GroupFormulas) -> None:
        """Block the host for every split tensor of a group.

        Each is made of a list, on the GPU, and read back once (torchrec 1.9.2,
        train_pipeline/runtime_forwards.py 474-481, embedding_sharding.py 957-958): lengths, ids,
        weights if any, batch sizes. Bucketized lengths are added up and read first.
        """
        if self.builder.synchronous:
            return
        count = 4 if group.key.weighted else 3
        count += group.key.sharding_type.splits_rows
        with self.builder.part_of(group.key):
            self.builder.wait(f"copy {label(group)} splits", self._issued, times=count)

    def _bucketize(self, group: GroupFormulas) -> None:
        """Group the ids by the rank that has their row; every rank gets all lengths."""
        lengths, builder = self._sent_lengths(group), self.builder
        moved = 2.0 * self._sent_id_bytes(group)
        moved += lengths * (1.0 + self._destinations(group))
        seconds = builder.stream_time(moved)
        if builder.synchronous:  # a core divides for longer than it copies
            copied = (1.0 / builder.hardware.gpu.memory_bandwidth) * moved
            divided = CORE_BUCKETIZE_TIME * self._fullest * group.sent_ids
            seconds = builder.linear_time(divided + copied)
        with builder.part_of(group.key):
            builder.kernel(
                f"{label(group)} bucketize ids", Stage.INPUT_DIST, seconds,
                num_bytes=moved, issue=PERMUTE_IDS,
            )  # fmt: skip
            if group.key.sharding_type.within_node:
                # from nodes by features to features by nodes (twrw_sharding.py 419-434)
                spread = self._destinations(group) * lengths
                add_stream(
                    self.builder, f"{label(group)} stagger ids",
                    2.0 * (self._sent_id_bytes(group) + spread),
                    stage=Stage.INPUT_DIST, issue=PERMUTE_IDS,
                )  # fmt: skip

    def _exchange(self, name: str, size: Linear) -> int:
        if self.builder.world_size == 1:
            return self.builder.kernel(
                f"{name} of one rank", Stage.INPUT_DIST, 0.0, issue=COLLECTIVE
            )
        return add_collective(
            self.builder, name, CollectiveOp.ALL_TO_ALL, size, stage=Stage.INPUT_DIST
        )

    def _id_bytes(self, group: GroupFormulas) -> float:
        """Bytes of an id with its weight."""
        return self.workload.index_bytes + (WEIGHT_BYTES if group.key.weighted else 0.0)

    def _sent_bytes(self, group: GroupFormulas) -> Linear:
        """Bytes of ids, weights and lengths of a rank's batch, one copy per column shard."""
        return self._sent_id_bytes(group) + self._sent_lengths(group)

    def _sent_id_bytes(self, group: GroupFormulas) -> Linear:
        return self._id_bytes(group) * self._fullest * group.sent_ids

    def _sent_lengths(self, group: GroupFormulas) -> Linear:
        features = group.sent_features / self._destinations(group)
        return LENGTH_BYTES * self.workload.local_batch_size * features

    def _destinations(self, group: GroupFormulas) -> float:
        """Return the number of ranks that each feature is sent to."""
        if group.key.sharding_type.everywhere:
            return float(self.builder.world_size)
        if group.key.sharding_type.within_node:
            return float(self.builder.local_world_size)
        return 1.0


def _exchanged(group: GroupFormulas) -> Mark:
    """Return the mark of the end of a group's exchange."""
    return Mark("ids exchanged", group.key)


@lru_cache(maxsize=16)
def _batch_bytes(workload: Workload, world_size: int) -> Bytes:
    """Return the bytes of features, ids (and weights), lengths and labels of a fullest batch."""
    fullest = fullest_batch(workload, world_size)
    per_sample = input_bytes_per_sample(workload)
    for table in workload.tables:
        per_id = workload.index_bytes + (WEIGHT_BYTES if table.weighted else 0.0)
        per_sample += fullest * table.pooling_factor * per_id + LENGTH_BYTES * table.num_bags
    return workload.local_batch_size * per_sample
