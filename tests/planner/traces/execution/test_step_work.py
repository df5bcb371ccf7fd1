import pytest
from execution_trace_files import EtMaker, rank, tensor

from costmodel.base.errors import InputError
from planner.traces.execution.operator_trace import operator_traces
from planner.traces.execution.step_work import work_of_step


def in_steps(*num_relus: int) -> EtMaker:
    """A rank whose steps have as many relus each."""
    maker = EtMaker()
    for step, number in enumerate(num_relus):
        maker.add(f"ProfilerStep#{step}")
        for _ in range(number):
            maker.add("aten::relu", [tensor(100)], [tensor(100, storage=2)])
    return maker


def num_kernels(*makers: EtMaker) -> list[int]:
    documents = [(f"rank{n}.json", maker.document()) for n, maker in enumerate(makers)]
    works = work_of_step(operator_traces(documents, "job"), "job")
    return [len(work.items) for work in works]


def test_the_last_step_is_taken() -> None:
    assert num_kernels(in_steps(1, 2, 3)) == [3]
    assert num_kernels(rank()) == [6]


def test_steps_that_are_empty_on_some_rank_are_not() -> None:
    assert num_kernels(in_steps(2, 0)) == [2]
    assert num_kernels(in_steps(1, 2, 3), in_steps(4, 5, 0)) == [2, 5]
    assert num_kernels(in_steps(1, 2), in_steps(4, 5, 0)) == [2, 5]


def test_traces_without_work_are_refused() -> None:
    idle = in_steps(0, 0)
    idle.add("aten::view", [tensor(100)], [tensor(100)])
    with pytest.raises(InputError, match="the traces hold no work"):
        num_kernels(idle)
    with pytest.raises(InputError, match="the traces hold no work"):
        num_kernels(in_steps(1, 0), in_steps(0, 1))
