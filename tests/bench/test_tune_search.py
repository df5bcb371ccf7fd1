import pytest

from bench.tune_search import SearchParams, line, step_found, value_at, with_value


def test_a_path_reaches_into_annealing_and_the_portfolio() -> None:
    params = with_value(SearchParams(), ["annealing", "moves", "keep_share"], 0.5)
    assert params.annealing.moves.keep_share == 0.5
    assert SearchParams().annealing.moves.keep_share != 0.5
    params = with_value(params, ["portfolio", "members", "lp", "time_fraction"], 0.4)
    assert params.portfolio.member("lp").time_fraction == 0.4
    assert params.portfolio.member("lp").mandatory
    assert params.annealing.moves.keep_share == 0.5


def test_a_wrong_path_is_named() -> None:
    with pytest.raises(ValueError, match="no `warmth` in AnnealingParams"):
        value_at(SearchParams(), ["annealing", "warmth"])


def test_parameters_reach_the_search() -> None:
    usual = step_found("26x4", SearchParams(), 0.3, 0)
    none_left = with_value(SearchParams(), ["annealing", "max_starts"], 1)
    none_left = with_value(none_left, ["annealing", "max_quiet_rounds"], 1)
    assert step_found("26x4", none_left, 0.3, 0) != usual


def test_differences_are_shown_by_instance_and_over_all() -> None:
    shown = line("0.5", {"a": [1.1, 1.1], "b": [1.0, 1.0]}, {"a": [1.0, 1.0], "b": [1.0, 1.0]})
    assert "+10.00%" in shown
    assert "all +4.77% ±" in shown
