"""The graph of all ranks over several steps, from the operations of one.

Nodes are ordered by step, operation, rank, so node ``(s * ops + i) * world_size + r`` is operation
``i`` of step ``s`` on rank ``r``.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from costmodel.step.graph import ExecutionGraph, Node, NodeGroup
from costmodel.step.step_operations import StepOperations


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationGraph(ExecutionGraph):
    """The graph of a step's operations, whose nodes are made when asked for: most never are."""

    operations: StepOperations

    @classmethod
    def of(cls, operations: StepOperations, num_steps: int) -> "OperationGraph":
        """Return the graph of all ranks over several consecutive steps."""
        nodes = OperationNodes(operations, num_steps)
        size = operations.world_size
        return cls(nodes=nodes, world_size=size, num_steps=num_steps, operations=operations)

    @property
    def ranks(self) -> Sequence[int]:
        """All ranks."""
        return range(self.world_size)

    @property
    def resources(self) -> Sequence[str]:
        """The resources that operations occupy, in the order of their first operations."""
        return list(dict.fromkeys(op.resource for op in self.operations.ops))

    def nodes_of(self, ranks: Collection[int]) -> Sequence[int]:
        """Return the indices of some ranks' nodes, in order."""
        rows = np.arange(0, len(self.nodes), self.world_size)
        indices: list[int] = (rows[:, None] + sorted(ranks)).ravel().tolist()
        return indices

    def process_group(self, node: Node) -> tuple[str, int] | None:
        """Return the name and the number of ranks of a collective's group; None: no collective."""
        if node.collective is None:
            return None
        operations, (row, instance) = self.operations, divmod(node.collective, self.world_size)
        group = operations.ops[row % len(operations.ops)].group
        if group is None:
            return None
        return f"{group} {instance}", operations.group_size(group)

    def groups(self) -> Iterator[NodeGroup]:
        """Yield the nodes of all ranks for every operation of every step."""
        size = self.world_size
        ranks = np.arange(size)
        for row in range(self.num_steps * len(self.operations.ops)):
            seconds = self.operations.ops[row % len(self.operations.ops)].seconds
            yield NodeGroup(self.nodes[row * size], row * size + ranks, ranks, seconds)


@dataclass(frozen=True, slots=True)
class OperationNodes(Sequence[Node]):
    """The nodes of an operation graph."""

    operations: StepOperations
    num_steps: int

    def __len__(self) -> int:
        """Return the number of nodes of all ranks and steps."""
        return self.num_steps * len(self.operations.ops) * self.operations.world_size

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        """Return a node, or several."""
        if isinstance(index, slice):
            return [self._node(each) for each in range(*index.indices(len(self)))]
        return self._node(range(len(self))[index])

    def _node(self, index: int) -> Node:
        """Return the node of a number: the operation of one step on one rank."""
        operations, size = self.operations, self.operations.world_size
        row, rank = divmod(index, size)
        step, number = divmod(row, len(operations.ops))
        op, base = operations.ops[number], row - number
        return Node(
            op.name,
            op.kind,
            op.stage,
            rank,
            op.resource,
            float(op.seconds[rank]),
            tuple(each * size + rank for each in rows_before(operations, row)),
            None if op.launched_by is None else (base + op.launched_by) * size + rank,
            operations.launch_delay,
            None if op.group is None else row * size + operations.members(op.group, rank),
            step,
            float(op.num_bytes[rank]),
            op.basis,
            role=op.role,
        )


def rows_before(operations: StepOperations, row: int) -> list[int]:
    """Return the operations that one comes after, without its launch and its resource's queue.

    Operations are numbered through all steps; the first step has none before it.
    """
    number = row % len(operations.ops)
    op, base = operations.ops[number], row - number
    before = [base - len(operations.ops) + each for each in op.after_previous] if base else []
    return [*(base + each for each in op.after), *before]
