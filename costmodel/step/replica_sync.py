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

from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.workload import Workload
from costmodel.kernels.collectives import collective_estimate
from costmodel.step.builder import StepBuilder
from costmodel.step.graph import Stage
from costmodel.step.issue import COLLECTIVE, Issue
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import GroupFormulas, Linear


@dataclass(frozen=True, slots=True)
class ReplicaSync:
    """Adds a step's share of averaging replicas; a job of one group has none."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]
    """Of tables that are sharded, not replicated on all ranks."""

    def write(self) -> None:
        """Add the all-reduces of weights and state, and the compute stream's wait for them."""
        replicas = self.builder.topology.replicas
        if replicas is not None and self.groups:
            with self.builder.part_of(*(group.key for group in self.groups)):
                self._write(replicas)

    def _write(self, replicas: ReplicaGroups) -> None:
        """Add them as one operation.

        A rank's seconds are on the straight line through the collective's latency and its time for
        the mean rank's bytes. These are so many that curves are straight there, and a line's
        maximum over plans can be bounded.
        """
        builder, share = self.builder, 1.0 / replicas.sync_interval
        mean = self._bytes_of_all_tables() / builder.world_size
        peers = builder.ranks(ProcessGroup.REPLICAS)
        nothing, estimate = (
            collective_estimate(CollectiveOp.ALL_REDUCE, size, peers, builder.hardware)
            for size in (0.0, mean)
        )
        size = sum((group.replica_bytes for group in self.groups), start=Linear())
        per_byte = (estimate.seconds - nothing.seconds) / mean
        seconds = per_byte * size + self._num_calls * nothing.seconds
        sent = builder.collective(
            "average replicas", Stage.ALL_REDUCE, builder.linear_time(share * seconds),
            group=ProcessGroup.REPLICAS, num_bytes=share * size, basis=estimate.basis,
            issue=Issue(
                share * self._num_calls * COLLECTIVE.num_ops,
                share * self._num_calls * COLLECTIVE.num_launches,
            ),
        )  # fmt: skip
        builder.kernel("wait for replicas", Stage.OPTIMIZER, 0.0, after=(sent,))

    @property
    def _num_calls(self) -> int:
        """Return the number of all-reduces: of weights by type, and of state, which is FP32."""
        tables = self.workload.tables
        states = any(self.workload.optimizer_of(t).state_bytes_per_row(1.0) for t in tables)
        return len({table.data_type for table in tables}) + states

    def _bytes_of_all_tables(self) -> float:
        """Return the bytes of weights and state of all tables, as if all were sharded."""
        return sum(
            table.weight_bytes
            + table.num_embeddings
            * self.workload.optimizer_of(table).state_bytes_per_row(table.embedding_dim)
            for table in self.workload.tables
        )
