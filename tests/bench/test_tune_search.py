import pytest

from bench.tune_search import SearchParams, line, search_with, value_at, with_value
from planner.planning.plugins import load_sharder
from planner.planning.search import configured
from sharders.annealing.sharder import Annealing


def test_a_path_reaches_into_annealing_and_the_portfolio() -> None:
    params = with_value(SearchParams(), ["annealing", "moves", "keep_share"], 0.5)
    assert params.annealing.moves.keep_share == 0.5
    assert SearchParams().annealing.moves.keep_share != 0.5
    params = with_value(params, ["portfolio", "members", "annealing", "time_fraction"], 0.4)
    assert params.portfolio.member("annealing").time_fraction == 0.4
    assert params.portfolio.member("annealing").mandatory
    assert params.annealing.moves.keep_share == 0.5


def test_a_wrong_path_is_named() -> None:
    with pytest.raises(ValueError, match="no `warmth` in AnnealingParams"):
        value_at(SearchParams(), ["annealing", "warmth"])


def test_parameters_reach_the_search() -> None:
    params = with_value(SearchParams(), ["annealing", "max_contenders"], 3)
    search = search_with(params, seconds=1.0, seed=0)
    assert configured("annealing", search) == Annealing(params.annealing)
    assert configured("lp", search) == load_sharder("lp")
    assert search.portfolio is params.portfolio


def test_differences_are_shown_by_instance_and_over_all() -> None:
    shown = line("0.5", {"a": [1.1, 1.1], "b": [1.0, 1.0]}, {"a": [1.0, 1.0], "b": [1.0, 1.0]})
    assert "+10.00%" in shown
    assert "all +4.77% ±" in shown
