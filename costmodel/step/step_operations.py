"""One training step as the operations that all ranks run, each with its own durations.

Training is SPMD: every rank issues the same operations in the same order, and only sizes
differ. So a step is written once (``step.builder``), as a list of operations whose durations
are formulas, and evaluated at a plan's loads (``step.evaluation``): a list of ``Op`` with one
duration per rank. ``OperationGraph`` is the ``ExecutionGraph`` of all ranks and several steps that
comes of it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.hardware import NO_BASIS, Basis, Topology
from costmodel.kernels.collectives import RankGroup
from costmodel.step.graph import NodeKind, Role, Stage


class ProcessGroup(StrEnum):
    """Groups of ranks that collectives join; each group has one stream per rank."""

    WORLD = "world"
    """The ranks that tables are sharded among."""
    INTRA_NODE = "intra_node"
    CROSS_NODE = "cross_node"
    """Ranks of equal local rank, one per node."""
    JOB = "job"
    """All ranks of a job of several replica groups, where there are any (``Topology.replicas``)."""
    REPLICAS = "replicas"
    """The ranks of a job that hold the same shards: of those here, each is in one of its own."""


def group_ranks(topology: Topology, group: ProcessGroup) -> RankGroup:
    """Return the shape of a process group."""
    world, local = topology.world_size, topology.local_world_size
    own, peers = topology.node_strides
    count, per_node, stride = {
        ProcessGroup.WORLD: (world, local, own),
        ProcessGroup.INTRA_NODE: (local, local, 1),
        ProcessGroup.CROSS_NODE: (topology.num_nodes, 1, own),
        ProcessGroup.JOB: (topology.num_ranks, topology.node_ranks, 1),
        ProcessGroup.REPLICAS: (topology.num_ranks // world, topology.node_ranks // local, peers),
    }[group]
    return RankGroup(num_ranks=count, ranks_per_node=per_node, node_stride=stride)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op:
    """One operation of a step; ``seconds`` and ``num_bytes`` have shape (world_size,)."""

    name: str
    """For the screen, and for the random numbers of sampled errors; nothing else depends on it."""
    kind: NodeKind
    stage: Stage
    resource: str
    seconds: NDArray[np.float64]
    num_bytes: NDArray[np.float64]
    after: tuple[int, ...] = ()
    """Earlier operations of the same step."""
    after_previous: tuple[int, ...] = ()
    """Operations of the step before."""
    launched_by: int | None = None
    group: ProcessGroup | None = None
    role: Role = Role.OTHER
    basis: Basis = NO_BASIS


class LikeBatches(NamedTuple):
    """Batches of a step that are not written, as they do the same as those before them.

    Once batches follow one another in the same way, each of their operations ends as much later
    than in the batch before: its own time from one to the next, as a host may be slower than its
    GPU and yet not be waited for until it has lost its lead.
    """

    first: int
    """First operation of a batch."""
    second: int
    """First operation of the next batch, which does the same."""
    last: int
    """First operation of the batch after those left out."""
    left_out: int
    """Number of batches left out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepOperations:
    """The operations of one step, in the order they are issued."""

    ops: tuple[Op, ...]
    world_size: int
    local_world_size: int
    launch_delay: Seconds
    """From the end of a launching host operation to the start of its kernel."""
    like: LikeBatches | None = None
    """Batches left out of the operations; None: all are written."""

    def group_size(self, group: ProcessGroup) -> int:
        """Return the number of ranks of these that an instance of a group has."""
        per_node = self.local_world_size
        match group:
            case ProcessGroup.INTRA_NODE:
                return per_node
            case ProcessGroup.CROSS_NODE:
                return self.world_size // per_node
            case ProcessGroup.REPLICAS:
                return 1
            case _:
                return self.world_size

    def members(self, group: ProcessGroup, rank: int) -> int:
        """Return the number of the instance of a group that a rank belongs to."""
        per_node = self.local_world_size
        match group:
            case ProcessGroup.INTRA_NODE:
                return rank // per_node
            case ProcessGroup.CROSS_NODE:
                return rank % per_node
            case ProcessGroup.REPLICAS:
                return rank
            case _:
                return 0
