import sys
from dataclasses import replace

import pytest

from costmodel.errors import InfeasibleError, MissingDependencyError
from planner.search import Attempt, Search, run_apart, run_sharder, run_sharders, sharders_for
from sharders import PORTFOLIO, SHARDERS
from sharders.problem import ShardingProblem


def test_auto_stands_for_the_portfolio() -> None:
    assert sharders_for("auto") == tuple(PORTFOLIO)
    assert sharders_for("naive") == ("naive",)


def test_an_interrupt_keeps_what_was_found(problem: ShardingProblem) -> None:
    search = Search(interrupted=lambda: True)
    (attempt,) = run_sharders(tuple(SHARDERS), problem, search)
    assert attempt.plan is not None


def test_time_that_is_up_still_gives_a_plan(problem: ShardingProblem) -> None:
    attempts = run_sharders(("naive", "random"), problem, Search(time_limit=1e-9))
    assert [attempt.sharder for attempt in attempts] == ["naive"]


def test_ctrl_c_before_any_plan_is_an_interrupt(problem: ShardingProblem) -> None:
    def press() -> bool:
        raise KeyboardInterrupt

    hit = run_sharders(("naive", "random"), problem, Search())
    assert len(hit) == 2
    attempts = run_sharders(("naive", "random"), problem, replace(Search(), seed=1))
    assert all(attempt.plan for attempt in attempts)
    with pytest.raises(KeyboardInterrupt):
        run_sharders(("naive", "random"), problem, Search(interrupted=press))


def test_when_nothing_fits_the_first_error_is_raised(problem: ShardingProblem) -> None:
    table = replace(problem.workload.tables[0], num_embeddings=10**11)
    large = replace(problem, workload=replace(problem.workload, tables=(table,)))
    with pytest.raises(InfeasibleError):
        run_sharders(("naive", "random"), large, Search())


def test_a_sharder_whose_package_is_missing_is_passed_over(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    attempts = run_sharders(("optuna", "naive"), problem, Search())
    assert [attempt.sharder for attempt in attempts if attempt.plan] == ["naive"]
    with pytest.raises(MissingDependencyError):
        run_sharders(("optuna",), problem, Search())


def test_sharders_that_are_compared_share_the_time_and_know_nothing_of_each_other(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, float, int]] = []

    def watched(name: str, given: ShardingProblem, search: Search, deadline: float) -> Attempt:
        seen.append((name, deadline - search.clock(), len(given.known)))
        return run_sharder(name, given, search, deadline)

    monkeypatch.setattr("planner.search.run_sharder", watched)
    names = ("naive", "random", "size_greedy")
    apart = run_apart(names, problem, Search(time_limit=60.0, clock=lambda: 0.0))
    assert [attempt.sharder for attempt in apart] == list(names)
    assert seen == [("naive", 20.0, 0), ("random", 30.0, 0), ("size_greedy", 60.0, 0)]
    (auto,) = run_apart(("auto",), problem, Search(time_limit=1e-9))
    assert auto.sharder == "auto"
    assert auto.plan is not None


def test_a_comparison_says_why_a_sharder_found_nothing(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    missing, naive = run_apart(("optuna", "naive"), problem, Search())
    assert isinstance(missing.error, MissingDependencyError)
    assert naive.plan is not None


def test_an_interrupted_comparison_keeps_what_it_has(problem: ShardingProblem) -> None:
    (attempt,) = run_apart(("naive", "random"), problem, Search(interrupted=lambda: True))
    assert attempt.sharder == "naive"
