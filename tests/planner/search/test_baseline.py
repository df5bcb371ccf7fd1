"""What a plan is compared with, and what is said where there is nothing to compare with."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from costmodel.base.errors import InfeasibleError, MissingDependencyError, UnknownNameError
from planner import plan
from planner.environment import extras as presence
from planner.search import baseline
from planner.search.baseline import DEFAULT_BASELINE, NONE, check_baseline, cut_short, find_baseline
from planner.search.plugins import TORCHREC
from planner.search.running import run_sharders
from planner.search.search import Attempt, Search
from sharders.problem.sharding_problem import SearchStatus, ShardingProblem


def judged(
    name: str,
    problem: ShardingProblem,
    search: Search,
    searched: Sequence[str] = ("naive",),
    time_left: float = 10.0,
) -> Attempt | str | None:
    attempts = run_sharders(searched, problem, Search())
    return find_baseline(name, problem, search, attempts, lambda: time_left)


def found(told: Attempt | str | None) -> Attempt:
    assert isinstance(told, Attempt)
    return told


def test_nothing_to_compare_with(problem: ShardingProblem) -> None:
    assert judged(NONE, problem, Search()) is None
    planned = plan(problem.workload, gpus=2, sharder="naive", baseline=None, max_plans=1)
    assert planned.report.baseline is None


def test_a_sharder_runs_after_the_search(problem: ShardingProblem) -> None:
    told = found(judged(DEFAULT_BASELINE, problem, Search()))
    assert (told.sharder, cut_short(told)) == (DEFAULT_BASELINE, None)
    (itself,) = run_sharders((DEFAULT_BASELINE,), problem, Search())
    assert (told.step_time, told.plan) == (itself.step_time, itself.plan)


def test_the_default_ends_by_itself_where_plans_are_counted(problem: ShardingProblem) -> None:
    told = found(judged(DEFAULT_BASELINE, problem, Search(max_plans=1)))
    assert cut_short(told) is None


def test_what_the_search_ran_is_not_run_again(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Attempt:
        raise AssertionError

    monkeypatch.setattr(baseline, "run_sharder", never)
    assert found(judged("naive", problem, Search(), ("size_greedy", "naive"))).sharder == "naive"


def test_without_time_for_it_nothing_is_compared_with(problem: ShardingProblem) -> None:
    told = judged(DEFAULT_BASELINE, problem, Search(), time_left=0.0)
    assert told == f"no plan to compare with: no time was left for `{DEFAULT_BASELINE}`"


def test_one_that_finds_no_plan_says_why(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Attempt(sharder="beam", plan=None, error=InfeasibleError("there is no room"))
    monkeypatch.setattr(baseline, "run_sharder", lambda *_: failed)
    assert judged("beam", problem, Search()) == "no plan to compare with: there is no room"


def test_one_that_was_stopped_says_so(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (attempt,) = run_sharders(("naive",), problem, Search())
    cut = replace(attempt, status=SearchStatus.LIMIT, evaluated=1234)
    monkeypatch.setattr(baseline, "run_sharder", lambda *_: cut)
    assert found(judged(DEFAULT_BASELINE, problem, Search())) is cut
    assert cut_short(replace(cut, sharder=DEFAULT_BASELINE)) == "stopped after 1,234 plans"
    assert cut_short(replace(cut, sharder="beam")) is None  # it always is


def test_an_unknown_name_is_refused_before_the_search() -> None:
    check_baseline(NONE)
    check_baseline(DEFAULT_BASELINE)
    with pytest.raises(UnknownNameError):
        check_baseline("beem")


def test_torchrec_itself_is_refused_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="the baseline `torchrec`"):
        check_baseline(TORCHREC)
