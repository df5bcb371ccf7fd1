import pytest

pytest.importorskip("torch")

from costmodel.operators.operator_families import OperatorFamily, family_of, plain_name
from costmodel.operators.operator_list import DenseOperator, OperatorTensor
from costmodel.operators.work import moved, num_elements
from planner.calibration.fit_operators import MOVED
from planner.calibration.operator_calls import CALLS, Numbers
from planner.operators.recording import RecordedOperator, RecordedTensor, Recorder

ELEMENTS = 2**17


@pytest.mark.parametrize("name", CALLS)
def test_a_call_runs_its_operator_alone_on_what_the_fit_says(name: str) -> None:
    numbers = Numbers(ELEMENTS, "cpu")
    call, recorder = CALLS[name](numbers), Recorder()
    with recorder:
        call()
    (found,) = map(_operator, recorder.operators)
    assert plain_name(found.name) == name
    assert family_of(found.name) is not OperatorFamily.OTHER
    assert num_elements(found) == numbers.elements
    assert sum(moved(found)) / numbers.elements == pytest.approx(MOVED[name], abs=0.9)


def test_all_that_is_fitted_can_be_called() -> None:
    assert MOVED.keys() == CALLS.keys()


def _operator(recorded: RecordedOperator) -> DenseOperator[int]:
    return DenseOperator(
        name=recorded.name,
        direction=recorded.direction,
        inputs=tuple(map(_tensor, recorded.inputs)),
        outputs=tuple(map(_tensor, recorded.outputs)),
    )


def _tensor(recorded: RecordedTensor) -> OperatorTensor[int]:
    return OperatorTensor(**recorded._asdict())
