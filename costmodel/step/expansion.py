"""The graph of all ranks over several steps, from the program of one."""

from collections.abc import Sequence

from costmodel.step.graph import ExecutionGraph, Node
from costmodel.step.program import Op, Program


def expand(program: Program, num_steps: int) -> ExecutionGraph:
    """Return the graph of all ranks over several consecutive steps.

    Nodes are ordered by step, operation, rank, so node ``(s * ops + i) * world_size + r`` is
    operation ``i`` of step ``s`` on rank ``r``.
    """
    nodes: list[Node] = []
    size, num_ops = program.world_size, len(program.ops)
    for step in range(num_steps):
        base = step * num_ops
        for index, op in enumerate(program.ops):
            after = [base + i for i in op.after]
            after += [base - num_ops + i for i in op.after_previous] if step else []
            nodes += _nodes(program, op, base + index, (step, base, after))
    return ExecutionGraph(nodes=nodes, world_size=size, num_steps=num_steps)


def _nodes(
    program: Program, op: Op, number: int, place: tuple[int, int, Sequence[int]]
) -> list[Node]:
    step, base, after = place
    size = program.world_size
    seconds, num_bytes = op.seconds.tolist(), op.num_bytes.tolist()
    launched = None if op.launched_by is None else (base + op.launched_by) * size
    return [
        Node(
            op.name,
            op.kind,
            op.stage,
            rank,
            op.resource,
            seconds[rank],
            tuple(i * size + rank for i in after),
            None if launched is None else launched + rank,
            program.launch_delay,
            None if op.group is None else number * size + program.members(op.group, rank),
            step,
            num_bytes[rank],
            op.basis,
            role=op.role,
        )
        for rank in range(size)
    ]
