import numpy as np
import pytest
from machines import machine, topology
from plans import step, table, workload

from costmodel.execution.expansion import expand
from costmodel.execution.graph import NodeKind, Stage
from costmodel.execution.issue import COLLECTIVE
from costmodel.execution.program import ProcessGroup, Program, ProgramBuilder
from costmodel.hardware import CollectiveOp
from costmodel.plan import ShardingType
from costmodel.units import GB, MIB, US


def builder(world_size: int = 4, local_world_size: int = 2) -> ProgramBuilder:
    return ProgramBuilder(machine(), world_size=world_size, local_world_size=local_world_size)


def test_a_kernel_costs_its_operators_and_launches() -> None:
    # 2 operators of 10 us and 3 launches of 5 us
    made = builder()
    made.kernel("k", Stage.DENSE_FORWARD, 1e-3, num_ops=2, num_launches=3)
    launch, kernel = made.build().ops
    assert launch.seconds.tolist() == pytest.approx([35 * US] * 4)
    assert (kernel.resource, kernel.launched_by) == ("compute", 0)


def test_a_rank_without_work_launches_nothing() -> None:
    made = builder()
    made.kernel("k", Stage.DENSE_FORWARD, np.array([0.0, 1e-3, 0.0, 0.0]))
    launch, _ = made.build().ops
    assert launch.seconds.tolist() == pytest.approx([0.0, 15 * US, 0.0, 0.0])


def test_autograd_has_its_own_operator_time() -> None:
    made = builder()
    made.join("autograd")
    made.host("op")
    assert made.build().ops[-1].seconds[0] == pytest.approx(12 * US)


def test_a_collective_costs_the_host_what_the_trace_shows() -> None:
    made = builder()
    made.collective("c", Stage.ALL_TO_ALL, 1e-3)
    launch, _ = made.build().ops
    assert launch.seconds[0] == pytest.approx(COLLECTIVE.num_ops * 10 * US + 5 * US)


def test_marks_are_waited_for_in_the_next_step() -> None:
    made = builder()
    made.wait("w", (), after_previous=("done", "never set"))
    made.mark("done", made.kernel("k", Stage.DENSE_FORWARD, 1e-3))
    assert made.build().ops[0].after_previous == (2,)


def test_a_stream_moves_bytes_after_its_latency() -> None:
    # 1 MB at 1000 GB/s is 1 us, after 2 us
    assert builder().stream_time(np.array([1e6, 0.0])) == pytest.approx([3 * US, 0.0])


def test_uneven_messages_count_as_the_largest_of_the_group() -> None:
    made, sizes = builder(), np.array([1.0, 2.0, 3.0, 4.0]) * MIB

    def times(group: ProcessGroup) -> np.ndarray:
        return np.asarray(made.exchange_time(CollectiveOp.ALL_TO_ALL, sizes, group))

    assert np.ptp(times(ProcessGroup.WORLD)) == 0
    assert np.ptp(times(ProcessGroup.CROSS_NODE)) == 0
    inside = times(ProcessGroup.INTRA_NODE)
    # 10 us and half of 2 (4) MiB at 100 GB/s
    assert inside[0] == inside[1] == pytest.approx(10 * US + MIB / (100 * GB))
    assert inside[2] == inside[3] == pytest.approx(10 * US + 2 * MIB / (100 * GB))


def test_members_of_process_groups() -> None:
    made = Program(ops=(), world_size=6, local_world_size=3, launch_delay=0.0)
    assert [made.members(ProcessGroup.WORLD, r) for r in range(6)] == [0] * 6
    assert [made.members(ProcessGroup.INTRA_NODE, r) for r in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [made.members(ProcessGroup.CROSS_NODE, r) for r in range(6)] == [0, 1, 2, 0, 1, 2]


def test_expand_repeats_the_step_for_every_rank() -> None:
    made = step(workload(table()), topology(4, 2), ShardingType.TABLE_WISE, 0)
    graph = expand(made, 3)
    assert len(graph.nodes) == 3 * 4 * len(made.ops)
    node = graph.nodes[(1 * len(made.ops) + 5) * 4 + 2]
    assert (node.step, node.rank, node.name) == (1, 2, made.ops[5].name)


def test_steps_wait_only_for_the_step_before() -> None:
    made = step(workload(table()), topology(4, 2), ShardingType.TABLE_WISE, 0)
    nodes = expand(made, 3).nodes
    assert {nodes[i].step - node.step for node in nodes for i in node.after} == {0, -1}


def test_members_of_a_collective_share_its_number() -> None:
    made = step(workload(table()), topology(4, 2), ShardingType.TABLE_ROW_WISE, 0)
    numbers: dict[int, list[int]] = {}
    for node in expand(made, 1).nodes:
        if node.name == "table_row_wise outputs":
            assert node.kind is NodeKind.COLLECTIVE
            assert node.collective is not None
            numbers.setdefault(node.collective, []).append(node.rank)
    assert sorted(numbers.values()) == [[0, 2], [1, 3]]
