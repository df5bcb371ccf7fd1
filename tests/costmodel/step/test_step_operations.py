from collections import Counter

from machines import topology
from plans import step, table, workload

from costmodel.domain.plan import ShardingType
from costmodel.step.expansion import OperationGraph
from costmodel.step.graph import NodeKind
from costmodel.step.step_operations import ProcessGroup, StepOperations


def test_members_of_process_groups() -> None:
    made = StepOperations(ops=(), world_size=6, local_world_size=3, launch_delay=0.0)
    assert [made.members(ProcessGroup.WORLD, r) for r in range(6)] == [0] * 6
    assert [made.members(ProcessGroup.INTRA_NODE, r) for r in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [made.members(ProcessGroup.CROSS_NODE, r) for r in range(6)] == [0, 1, 2, 0, 1, 2]
    for group in ProcessGroup:
        sizes = Counter(made.members(group, rank) for rank in range(6))
        assert set(sizes.values()) == {made.group_size(group)}


def test_expand_repeats_the_step_for_every_rank() -> None:
    made = step(workload(table()), topology(4, 2), ShardingType.TABLE_WISE, 0)
    graph = OperationGraph.of(made, 3)
    assert len(graph.nodes) == 3 * 4 * len(made.ops)
    node = graph.nodes[(1 * len(made.ops) + 5) * 4 + 2]
    assert (node.step, node.rank, node.name) == (1, 2, made.ops[5].name)


def test_steps_wait_only_for_the_step_before() -> None:
    made = step(workload(table()), topology(4, 2), ShardingType.TABLE_WISE, 0)
    nodes = OperationGraph.of(made, 3).nodes
    assert {nodes[i].step - node.step for node in nodes for i in node.after} == {0, -1}


def test_members_of_a_collective_share_its_number() -> None:
    made = step(workload(table()), topology(4, 2), ShardingType.TABLE_ROW_WISE, 0)
    numbers: dict[int, list[int]] = {}
    for node in OperationGraph.of(made, 1).nodes:
        if node.name == "table_row_wise outputs":
            assert node.kind is NodeKind.COLLECTIVE
            assert node.collective is not None
            numbers.setdefault(node.collective, []).append(node.rank)
    assert sorted(numbers.values()) == [[0, 2], [1, 3]]
