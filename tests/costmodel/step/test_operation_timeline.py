"""Timing a program for all ranks at once gives what timing its nodes one by one does."""

import pickle

import pytest
from hypothesis import given, settings
from strategies import Case, cases, fixed_cases
from timelines import simulated

from costmodel.step.expansion import OperationGraph
from costmodel.step.graph import ExecutionGraph
from costmodel.step.operation_timeline import operation_timeline, plan_timeline
from costmodel.step.synthesis import step_operations


@pytest.mark.slow
@given(cases() | fixed_cases())
@settings(max_examples=30)
def test_equals_the_event_driven_simulator(case: Case) -> None:
    made, known = plan_timeline(*case), simulated(step_operations(*case))
    assert list(made.starts) == known.starts
    assert list(made.ready) == known.ready
    assert list(made.ends) == known.ends
    assert made.step_ends == known.step_ends
    assert made.breakdown() == known.breakdown()
    assert [made.busy(rank) for rank in range(made.graph.world_size)] == [
        known.busy(rank) for rank in range(made.graph.world_size)
    ]
    assert made.waiting_times.tolist() == known.waiting_times.tolist()


@given(cases())
@settings(max_examples=3)
def test_timelines_go_to_other_processes(case: Case) -> None:
    made = plan_timeline(*case)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert (again.starts, again.ready, again.ends) == (made.starts, made.ready, made.ends)
    assert again.critical_path() == made.critical_path()


@given(cases())
@settings(max_examples=30)
def test_what_a_node_waited_for_ended_when_it_became_ready(case: Case) -> None:
    made = plan_timeline(*case)
    for index, cause in enumerate(made.binding):
        node = made.graph.nodes[index]
        if cause is None:
            assert made.starts[index] == 0
        else:
            delay = node.launch_delay if cause == node.launched_by else 0.0
            assert node.collective is not None or made.starts[index] == made.ends[cause] + delay


@given(cases())
@settings(max_examples=20)
def test_nodes_are_the_same_whenever_they_are_made(case: Case) -> None:
    graph = OperationGraph.of(step_operations(*case), 2)
    nodes = list(graph.nodes)
    assert graph.nodes[-1] == nodes[-1]
    assert graph.nodes[1:3] == nodes[1:3]
    found = {int(number) for group in graph.groups() for number in group.numbers}
    assert found == set(range(len(nodes)))
    plain = ExecutionGraph(nodes=nodes, world_size=graph.world_size, num_steps=graph.num_steps)
    assert list(graph.ranks) == list(plain.ranks)
    assert graph.resources == plain.resources
    for some in ({0}, set(range(0, graph.world_size, 2))):
        assert graph.nodes_of(some) == plain.nodes_of(some)


def test_a_program_of_no_operations_takes_no_time() -> None:
    from costmodel.step.step_operations import StepOperations

    nothing = StepOperations(ops=(), world_size=2, local_world_size=2, launch_delay=0.0)
    assert operation_timeline(nothing, 2).step_ends == [0.0, 0.0]
