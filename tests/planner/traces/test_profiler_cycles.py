from planner.traces.profiler_cycles import Profiled, cycle_rounds


def of(begin: float, *steps: int, long: float = 20.0) -> Profiled:
    return Profiled(steps=frozenset(steps), span=(begin, begin + long))


def test_steps_tell_cycles_though_clocks_do_not() -> None:
    late = [of(1_000.0, 4, 5)]
    assert cycle_rounds([[of(0.0, 1, 2), of(30.0, 4, 5)], late]) == [{0: 0}, {0: 1, 1: 0}]


def test_where_steps_begin_anew_most_time_in_common_tells() -> None:
    # 1 late, and 0.5 apart: the first overlaps both
    ours = [of(0.0, 1, 2), of(20.5, 1, 2)]
    assert cycle_rounds([ours, [of(1.0, 1, 2)]]) == [{0: 0, 1: 0}, {0: 1}]
    assert cycle_rounds([ours, [of(21.5, 1, 2)]]) == [{0: 0}, {0: 1, 1: 0}]
    assert cycle_rounds([ours, [of(19.5, 1, 2)]]) == [{0: 0}, {0: 1, 1: 0}]


def test_what_nothing_tells_is_matched_by_its_place() -> None:
    ours = [of(0.0, 1), of(30.0, 1)]
    assert cycle_rounds([ours, [of(500.0, 1), of(530.0, 1)]]) == [{0: 0, 1: 0}, {0: 1, 1: 1}]
    assert cycle_rounds([[of(0.0, 1)], [of(500.0, 3)]]) == [{0: 0, 1: 0}]
    assert cycle_rounds([ours, [of(500.0, 1)]]) == [{0: 0}, {0: 1}, {1: 0}]
