"""Algorithm 1 on operators few enough to walk by hand; times in microseconds."""

import pytest

from costmodel.base.units import US
from planner.traces.replay.algorithm1 import Launch, Operator, Stream, algorithm1


def kernel(us: float, *, call: float = 0.0, gap: float = 0.0) -> Launch:
    return Launch(stream=Stream.COMPUTE, seconds=us * US, call_time=call * US, gap=gap * US)


def collective(us: float, number: int) -> Launch:
    return Launch(stream=Stream.COMMUNICATION, seconds=us * US, collective=number)


def op(*launches: Launch, waits: bool = False, **us: float) -> Operator:
    times = {name: value * US for name, value in us.items()}
    return Operator(name="op", launches=launches, waits_for_collective=waits, **times)


def ends(*ranks: list[Operator]) -> list[float]:
    return [rank.end / US for rank in algorithm1(ranks)]


def test_a_kernel_starts_in_the_middle_of_its_launch() -> None:
    # T1 + T2 = 5; half of T4 = 2; the kernel runs from 7 to 17
    assert ends([op(kernel(10, call=4), before=2, lead=3, tail=1)]) == [pytest.approx(17)]


def test_queued_kernels_are_a_microsecond_apart() -> None:
    # 0 + 1 (the stream was at 0) to 11, 12 to 22
    assert ends([op(kernel(10), kernel(10))]) == [pytest.approx(22)]


def test_the_host_can_be_the_last() -> None:
    # T4 and T5 of both launches, then T3: 2 (4 + 6) + 30
    times = algorithm1([[op(kernel(1, call=4, gap=6), kernel(1, call=4, gap=6), tail=30)]])
    assert times[0].end == pytest.approx(50 * US)


def test_an_operator_without_launches_takes_its_time() -> None:
    assert ends([op(before=2, lead=7, tail=3)]) == [pytest.approx(5)]


def test_a_collective_ends_on_all_ranks_with_the_last() -> None:
    # rank 1 gets there at 101; both end at 102 + 20
    first, second = (
        [op(kernel(10)), op(collective(20, 0))],
        [op(kernel(100)), op(collective(20, 0))],
    )
    assert ends(first, second) == [pytest.approx(122), pytest.approx(122)]


def test_compute_runs_beside_a_collective_until_it_waits() -> None:
    beside = [op(collective(50, 0)), op(kernel(10))]
    behind = [op(collective(50, 0)), op(kernel(10), waits=True)]
    assert ends(beside, beside) == [pytest.approx(51)] * 2
    # 51, one microsecond, 10
    assert ends(behind, behind) == [pytest.approx(62)] * 2


def test_groups_of_some_ranks_do_not_hold_up_others() -> None:
    pair = [op(collective(5, 0))]
    assert ends(pair, pair, [op(kernel(1))])[2] == pytest.approx(2)


def test_ranks_that_disagree_never_finish() -> None:
    with pytest.raises(ValueError, match="collectives of 2 ranks never complete"):
        ends(
            [op(collective(1, 0)), op(collective(1, 1))],
            [op(collective(1, 1)), op(collective(1, 0))],
        )


def test_no_operators_take_no_time() -> None:
    assert ends([]) == [0.0]
