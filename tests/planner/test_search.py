import sys
from dataclasses import replace

import pytest

from costmodel.errors import InfeasibleError, MissingDependencyError
from planner.search import Search, run_sharders, sharders_for
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
