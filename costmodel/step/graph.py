"""Execution graphs: what every rank does in a few training steps, and what waits for what.

Nodes on one resource of one rank (a host thread, a GPU stream, a process group's stream) run in
the order of the graph, one at a time. The simulator decides when.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import NO_BASIS, Basis


class NodeKind(StrEnum):
    """What occupies the resource."""

    HOST = "host"
    """CPU time of an operator: dispatch, launches."""
    WAIT = "wait"
    """The CPU blocked until its predecessors on the device are done."""
    KERNEL = "kernel"
    COPY = "copy"
    COLLECTIVE = "collective"


class Stage(StrEnum):
    """Stages of a step; the rows of every breakdown."""

    INPUT_DIST = "input_dist"
    MEMORY_COPY = "memory_copy"
    LOOKUP_FORWARD = "lookup_forward"
    LOOKUP_BACKWARD = "lookup_backward"
    ALL_TO_ALL = "all_to_all"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"
    DENSE_FORWARD = "dense_forward"
    DENSE_BACKWARD = "dense_backward"
    OPTIMIZER = "optimizer"
    HOST = "host"


class Role(StrEnum):
    """Roles of operations, where they matter beyond kind and stage."""

    OTHER = "other"
    """Moves memory, issues, or waits."""
    LOOKUP = "lookup"
    UPDATE = "update"
    """A lookup's backward, fused with the optimizer."""
    PRODUCT = "product"
    """A matrix product, single or batched."""
    BY_BYTES = "by_bytes"
    """An operator that no model knows: its time is that of its bytes."""
    EXCHANGE = "exchange"
    """A collective, or a core's own share of its work."""
    ORDER_FEATURES = "order_features"
    """Puts the embeddings of all groups in the model's order."""
    GRADIENTS_REDUCED = "gradients_reduced"
    """Waits for the all-reduces of all dense gradients."""
    BEFORE_TRACE = "before_trace"
    """Stands for what launched work before a recorded trace begins."""
    START_SKEW = "start_skew"
    """Lets a rank begin as late as its recorded trace does."""
    ABSENT = "absent"
    """Stands for what ranks do whose traces are not there."""


class Resource(StrEnum):
    """Where the operations of a synthesized step run, beside the streams of process groups."""

    MAIN = "main"
    AUTOGRAD = "autograd"
    COMPUTE = "compute"
    DATA_DIST = "data_dist"
    MEMCPY = "memcpy"
    STASH = "stash"


HOST_THREADS = (Resource.MAIN, Resource.AUTOGRAD)


@dataclass(frozen=True, slots=True)
class Node:
    """One piece of work on one rank."""

    name: str
    kind: NodeKind
    stage: Stage
    rank: int
    resource: str
    """A ``Resource``, a process group's stream, or a stream of a recorded trace."""
    seconds: Seconds
    after: tuple[int, ...] = ()
    """Nodes (by index in the graph) that must have ended."""
    launched_by: int | None = None
    """Host node that launches it: it starts at least ``launch_delay`` after that node's end."""
    launch_delay: Seconds = 0.0
    collective: int | None = None
    """Nodes of one number, one per member rank, end together."""
    step: int = 0
    num_bytes: Bytes = 0.0
    """Bytes moved: the message of a collective, the memory traffic of a kernel."""
    basis: Basis = NO_BASIS
    fills_gpu: float = 1.0
    """Share of a kernel's time in which none of another stream can start (``drain=True``)."""
    priority: int = 0
    """The stream's: kernels do not wait for those of lower priority (``drain=True``)."""
    role: Role = Role.OTHER


class NodeGroup(NamedTuple):
    """Nodes that differ only by rank, duration, and the nodes they wait for."""

    first: Node
    """One of them."""
    numbers: NDArray[np.intp]
    """Their indices in the graph."""
    ranks: NDArray[np.intp]
    seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionGraph:
    """The nodes of all ranks; a node comes after all nodes it depends on."""

    nodes: Sequence[Node]
    world_size: int
    num_steps: int = 1
    """Consecutive training steps the graph holds; the last one is the steady state."""

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that have nodes, in order: of a recorded run, those whose traces are there."""
        return sorted({node.rank for node in self.nodes})

    @property
    def resources(self) -> Sequence[str]:
        """The resources that nodes occupy, in the order of their first nodes."""
        return list(dict.fromkeys(node.resource for node in self.nodes))

    def nodes_of(self, ranks: Collection[int]) -> Sequence[int]:
        """Return the indices of some ranks' nodes, in order."""
        return [index for index, node in enumerate(self.nodes) if node.rank in ranks]

    def process_group(self, node: Node) -> tuple[str, int] | None:
        """Return the name and the number of ranks of a collective's group; None: not known."""
        del node
        return None

    def groups(self) -> Iterator[NodeGroup]:
        """Yield all nodes in groups: the same work on different ranks together."""
        numbers: dict[object, list[int]] = {}
        times: Counter[object] = Counter()
        for index, node in enumerate(self.nodes):
            alike = node.name, node.kind, node.stage, node.resource, node.basis, node.step
            times[node.rank, alike] += 1
            numbers.setdefault((alike, times[node.rank, alike]), []).append(index)
        for members in numbers.values():
            nodes = [self.nodes[index] for index in members]
            yield NodeGroup(
                first=nodes[0],
                numbers=np.array(members),
                ranks=np.array([node.rank for node in nodes]),
                seconds=np.array([node.seconds for node in nodes]),
            )
