import pytest

from costmodel.domain.traced import OperatorOverheads


@pytest.mark.parametrize(("num_launches", "expected"), [(0, 10_001), (1, 1_111), (3, 21_311)])
def test_the_host_time_of_an_operator_by_hand(num_launches: int, expected: float) -> None:
    # T1 + T2 + n T4 + (n - 1) T5 + T3; T1 + T5 without launches
    one = OperatorOverheads(
        name="one", count=1, before=1, lead=10, tail=1_000, call=100, between=10_000
    )
    assert one.own_time(num_launches) == expected
