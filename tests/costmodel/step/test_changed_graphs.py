import pytest

from costmodel.step.changed_graphs import balanced, scaled, with_collectives
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage


def kernel(rank: int, seconds: float, stage: Stage = Stage.DENSE_FORWARD) -> Node:
    return Node("k", NodeKind.KERNEL, stage, rank, "compute", seconds)


def collective(rank: int, num_bytes: float) -> Node:
    return Node(
        "c", NodeKind.COLLECTIVE, Stage.ALL_TO_ALL, rank, "world", 1.0,
        collective=0, num_bytes=num_bytes,
    )  # fmt: skip


def graph(*nodes: Node) -> ExecutionGraph:
    return ExecutionGraph(nodes=nodes, world_size=2)


def seconds(changed: ExecutionGraph) -> list[float]:
    return [node.seconds for node in changed.nodes]


def test_only_the_chosen_are_scaled() -> None:
    before = graph(kernel(0, 2.0), collective(0, 8.0))
    chosen = scaled(before, lambda node: node.kind is NodeKind.KERNEL, 0.5)
    assert seconds(chosen) == [1.0, 1.0]


def test_balance_gives_every_rank_the_mean_of_a_stage() -> None:
    # 1 + 3 and 8 make 6 each; the lookups of rank 1 alone stay, there is nobody to share them
    before = graph(
        kernel(0, 1.0), kernel(0, 3.0), kernel(1, 8.0), kernel(1, 5.0, Stage.LOOKUP_FORWARD),
        collective(0, 1.0), collective(1, 1.0),
    )  # fmt: skip
    assert seconds(balanced(before)) == pytest.approx([1.5, 4.5, 6.0, 5.0, 1.0, 1.0])


def test_a_model_times_collectives_by_their_largest_message() -> None:
    before = graph(kernel(0, 2.0), collective(0, 100.0), collective(1, 300.0))
    changed = with_collectives(before, lambda _, num_bytes, members: num_bytes / members)
    assert seconds(changed) == [2.0, 150.0, 150.0]
