from bench.nlp.tensor_layout import num_runs
from planner.traces.execution.operator_trace import Tensor, contiguous


def of(shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(
        shape=shape,
        strides=strides or contiguous(shape),
        element_bytes=4,
        element_type="float",
        device="cpu",
    )


def test_contiguous_tensors_are_one_run() -> None:
    assert num_runs([of((8, 4, 16)), of((8, 4, 16))]) == (1, False)


def test_exchanged_dimensions_leave_runs_of_the_inner_one() -> None:
    # (2, 3, 4) written in order, read from a (3, 2, 4): 4 elements at a time
    assert num_runs([of((2, 3, 4)), of((2, 3, 4), (4, 8, 1))]) == (6, False)


def test_a_transposed_matrix_is_read_against_the_grain() -> None:
    assert num_runs([of((5, 7)), of((5, 7), (1, 5))])[1]


def test_both_transposed_alike_are_one_run() -> None:
    assert num_runs([of((5, 7), (1, 5)), of((5, 7), (1, 5))]) == (1, False)


def test_a_repeated_row_is_read_row_by_row() -> None:
    assert num_runs([of((6, 10)), of((6, 10)), of((10,))]) == (6, False)


def test_one_number_for_all_is_one_run() -> None:
    assert num_runs([of((6, 10)), of(())]) == (1, False)


def test_nothing_is_one_run() -> None:
    assert num_runs([]) == (1, False)
