"""Averaging of the weights that several groups of ranks hold replicas of.

``DEFAULT``: after the update, every ``sync_interval`` steps, each rank all-reduces the weights of
its shards over the ranks that hold the same ones, then their optimizer state: one coalesced call
for every data type of each. The compute stream waits for them. A step has its share of one
averaging: of k steps, each has 1/k of it. What else would run beside it in the one step that has
all of it, the next batch's distribution, is little.

``FULLY_SHARDED``: in every step, weights are reduce-scattered when they are looked up, behind the
dense model, and gathered before they are updated, while the compute stream waits. TorchRec does so
lookup kernel by lookup kernel; here those of a sharding group are one.

Gradients of replicated tables and of the dense model are reduced over the whole job, and are not in
it.

References
----------
torchrec 1.9.2, distributed/model_parallel.py: ``DMPCollection.sync``, ``_sync``,
``_allreduce_tensors``, ``_cache_sync_tensors``; batched_embedding_kernel.py,
``ShardedBatchedFusedEmbeddingBag``.

"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.base.errors import PlanMismatchError
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Basis, CollectiveOp, Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pipeline, Workload
from costmodel.kernels.collectives import collective_estimate
from costmodel.step.builder import StepBuilder, Wait
from costmodel.step.exchange_operations import STAGE_OF, label
from costmodel.step.graph import Stage
from costmodel.step.issue import COLLECTIVE, Issue
from costmodel.step.step_operations import ProcessGroup, group_ranks
from costmodel.step.template import GroupFormulas, Linear


class AveragingTime(NamedTuple):
    """Seconds that a rank averages for: a straight line over the bytes it holds.

    It goes through the collectives' latency and the time of the mean rank's bytes. These are so
    many that curves are straight there, and a line's maximum over plans can be bounded.
    """

    latency: Seconds
    """Seconds that all calls take without bytes."""
    per_byte: float
    mean_bytes: Bytes
    """Weights and state that the mean rank holds if no table is replicated on all ranks."""
    basis: Basis

    @classmethod
    def of(
        cls, workload: Workload, topology: Topology, op: CollectiveOp = CollectiveOp.ALL_REDUCE
    ) -> "AveragingTime":
        """Return the line of a workload's tables on the ranks of one group."""
        reduced, tables = op is CollectiveOp.ALL_REDUCE, workload.tables
        held = sum(workload.held_bytes(each) if reduced else each.weight_bytes for each in tables)
        mean = held / topology.world_size
        peers = group_ranks(topology, ProcessGroup.REPLICAS)
        nothing, estimate = (
            collective_estimate(op, size, peers, topology.hardware) for size in (0.0, mean)
        )
        per_byte = (estimate.seconds - nothing.seconds) / mean
        calls = num_calls(workload) if reduced else 1
        return cls(calls * nothing.seconds, per_byte, mean, estimate.basis)

    @classmethod
    def exposed(cls, workload: Workload, topology: Topology) -> Seconds:
        """Return the mean rank's seconds of a step that the compute stream waits for replicas."""
        if topology.replicas is None:
            return 0.0
        if topology.replicas.is_fully_sharded:
            return cls.of(workload, topology, CollectiveOp.ALL_GATHER).mean
        return cls.of(workload, topology).mean / topology.replicas.sync_interval

    @property
    def mean(self) -> Seconds:
        """Seconds of the mean rank."""
        return self.latency + self.per_byte * self.mean_bytes


def num_calls(workload: Workload) -> int:
    """Return the number of all-reduces: of weights by type, and of state, which is FP32."""
    tables = workload.tables
    states = any(workload.optimizer_of(each).state_bytes_per_row(1.0) for each in tables)
    return len({each.data_type for each in tables}) + states


@dataclass(frozen=True, slots=True)
class ReplicaSync:
    """Adds a step's share of averaging replicas; a job of one group has none."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]
    """Groups of tables that are sharded, not replicated on all ranks."""

    @classmethod
    def of(
        cls, builder: StepBuilder, workload: Workload, groups: Sequence[GroupFormulas]
    ) -> "ReplicaSync":
        """Return the averaging of those of some groups that are sharded."""
        kind = ShardingType.DATA_PARALLEL
        sharded = tuple(group for group in groups if group.key.sharding_type is not kind)
        return cls(builder, workload, sharded)

    def write(self) -> None:
        """Add the all-reduces of weights and state as one, and compute's wait for them."""
        builder, replicas = self.builder, self.builder.topology.replicas
        if replicas is None or replicas.is_fully_sharded or not self.groups:
            return
        share = 1.0 / replicas.sync_interval
        line, calls = AveragingTime.of(self.workload, builder.topology), num_calls(self.workload)
        size = sum((group.replica_bytes for group in self.groups), start=Linear())
        seconds = line.per_byte * size + line.latency
        with builder.part_of(*(group.key for group in self.groups)):
            sent = builder.collective(
                "average replicas", Stage.ALL_REDUCE, builder.linear_time(share * seconds),
                group=ProcessGroup.REPLICAS, num_bytes=share * size, basis=line.basis,
                issue=Issue(
                    share * calls * COLLECTIVE.num_ops, share * calls * COLLECTIVE.num_launches
                ),
            )  # fmt: skip
            builder.kernel("wait for replicas", Stage.OPTIMIZER, 0.0, after=(sent,))

    def scatter(self, group: GroupFormulas) -> None:
        """Add the reduce-scatter of a group's weights, once they are looked up."""
        if self._is_scattered(group):
            self._send(group, "scatter replicas", CollectiveOp.REDUCE_SCATTER, ())

    def gather(self, group: GroupFormulas, after: tuple[Wait, ...]) -> tuple[Wait, ...]:
        """Add the gathering of a group's weights after other waits; return the waits to go on."""
        if not self._is_scattered(group):
            return after
        return (self._send(group, "gather replicas", CollectiveOp.ALL_GATHER, after),)

    def _is_scattered(self, group: GroupFormulas) -> bool:
        replicas = self.builder.topology.replicas
        scattered = replicas is not None and replicas.is_fully_sharded and group in self.groups
        if scattered and self.workload.pipeline is Pipeline.SEMI_SYNC:
            raise PlanMismatchError(
                "fully sharded replicas are apart when `pipeline: semi_sync` looks a batch up "
                "before the update of the one before",
                hint="another pipeline, or `--sharding-strategy default`",
            )
        return scattered

    def _send(
        self, group: GroupFormulas, name: str, op: CollectiveOp, after: tuple[Wait, ...]
    ) -> int:
        """Add a collective of a group's weights over their replicas, and return its number."""
        line = AveragingTime.of(self.workload, self.builder.topology, op)
        seconds = line.per_byte * group.replica_bytes + line.latency
        return self.builder.collective(
            f"{label(group)} {name}", STAGE_OF[op], self.builder.linear_time(seconds),
            group=ProcessGroup.REPLICAS, after=after, num_bytes=group.replica_bytes,
            basis=line.basis,
        )  # fmt: skip
