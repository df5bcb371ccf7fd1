"""Averaging of the weights that several groups of ranks hold replicas of.

After the update, every ``sync_interval`` steps, each rank all-reduces the weights of its shards
over the ranks that hold the same ones, then their optimizer state: one coalesced call for every
data type of each. The compute stream waits for them. Gradients of replicated tables and of the
dense model are reduced over the whole job, and are not in it.

A step has its share of one averaging: 1/k of it every step, of k steps, takes as long. What else
would run beside it in the one step that has all of it, the next batch's distribution, is little.

References
----------
torchrec 1.9.2, distributed/model_parallel.py: ``DMPCollection.sync``, ``_sync``,
``_allreduce_tensors``, ``_cache_sync_tensors``.

"""

from dataclasses import dataclass
from typing import NamedTuple

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Basis, CollectiveOp, Topology
from costmodel.domain.workload import Workload
from costmodel.kernels.collectives import collective_estimate
from costmodel.step.builder import StepBuilder
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
    def of(cls, workload: Workload, topology: Topology) -> "AveragingTime":
        """Return the line of a workload's tables on the ranks of one group."""
        mean = sum(map(workload.held_bytes, workload.tables)) / topology.world_size
        peers = group_ranks(topology, ProcessGroup.REPLICAS)
        nothing, estimate = (
            collective_estimate(CollectiveOp.ALL_REDUCE, size, peers, topology.hardware)
            for size in (0.0, mean)
        )
        per_byte = (estimate.seconds - nothing.seconds) / mean
        return cls(num_calls(workload) * nothing.seconds, per_byte, mean, estimate.basis)

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

    def write(self) -> None:
        """Add the all-reduces of weights and state as one, and compute's wait for them."""
        builder, replicas = self.builder, self.builder.topology.replicas
        if replicas is None or not self.groups:
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
