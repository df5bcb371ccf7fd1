"""What a plan is compared with, and what happens when TorchRec's planner does not answer."""

import pickle
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import pytest
from needed import needs_torchrec

from costmodel.base.errors import MissingDependencyError, UnknownNameError
from planner import plan
from planner.environment import torchrec_presence as presence
from planner.planning import baseline
from planner.planning.baseline import NONE, STAND_IN, baseline_beside, default_baseline
from planner.planning.plugins import TORCHREC
from planner.planning.report import Baseline
from planner.planning.running import run_sharders
from planner.planning.search import Attempt, Search
from sharders.problem.sharding_problem import ShardingProblem


def judged(
    name: str, problem: ShardingProblem, search: Search, searched: Sequence[str] = ("naive",)
) -> Baseline | None:
    with baseline_beside(name, problem, search, searched) as judge:
        return judge(run_sharders(searched, problem, Search()), lambda: 10.0)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torchrec found whether or not it is there."""
    monkeypatch.setattr(presence, "find_spec", lambda name: name)


def test_nothing_to_compare_with(problem: ShardingProblem) -> None:
    assert judged(NONE, problem, Search()) is None
    planned = plan(problem.workload, gpus=2, sharder="naive", baseline=None, max_plans=1)
    assert planned.report.baseline is None


def test_a_sharder_runs_after_the_search(problem: ShardingProblem) -> None:
    found = judged(STAND_IN, problem, Search())
    assert found is not None
    assert (found.sharder, found.reason) == (STAND_IN, None)
    assert found.step_time == run_sharders((STAND_IN,), problem, Search())[0].step_time


def test_what_the_search_ran_is_not_run_again(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Attempt:
        raise AssertionError

    monkeypatch.setattr(baseline, "run_sharder", never)
    found = judged("naive", problem, Search(), ("size_greedy", "naive"))
    assert found is not None
    assert found.sharder == "naive"


def test_an_unknown_name_is_refused_before_the_search(problem: ShardingProblem) -> None:
    with pytest.raises(UnknownNameError), baseline_beside("beem", problem, Search()):
        raise AssertionError


def test_the_default_is_torchrec_where_it_is_installed(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "find_spec", lambda _: None)
    assert default_baseline() == STAND_IN
    with pytest.raises(MissingDependencyError), baseline_beside(TORCHREC, problem, Search()):
        raise AssertionError
    monkeypatch.setattr(presence, "find_spec", lambda name: name)
    assert default_baseline() == TORCHREC


@pytest.mark.usefixtures("pretend")
def test_what_takes_longer_to_import_than_the_search_is_not_started(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "_started", None)  # nothing to call
    found = judged(TORCHREC, problem, Search(time_limit=1.0, wait=False))
    assert found is not None
    assert found.sharder == STAND_IN
    assert "import" in (found.reason or "")
    with pytest.raises(TypeError):
        judged(TORCHREC, problem, Search(time_limit=1.0, wait=True))


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("executable", "search", "reason"),
    [
        (sys.executable, Search(time_limit=1e-3), "was not done in 0.001 s"),
        (sys.executable, Search(interrupted=lambda: True), "was interrupted"),
        ("/nowhere/python", Search(), "could not be started"),
        ("false", Search(), "failed"),
    ],
)
def test_without_an_answer_the_stand_in_says_why_it_is_there(
    problem: ShardingProblem,
    monkeypatch: pytest.MonkeyPatch,
    executable: str,
    search: Search,
    reason: str,
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    found = judged(TORCHREC, problem, search)
    assert found is not None
    assert found.sharder == STAND_IN
    assert found.reason == f"TorchRec's own planner {reason}"


@pytest.mark.usefixtures("pretend")
def test_an_answer_may_be_longer_than_a_pipe(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    answer = b64encode(pickle.dumps("answered" + 200_000 * "!")).decode()
    script.write_text(f"#!/bin/sh\necho a warning\ncat <<END\n{answer}\nEND\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    found = judged(TORCHREC, problem, Search(time_limit=10))
    assert found is not None
    assert found.reason is not None
    assert found.reason.startswith("TorchRec's own planner answered!!")


@pytest.mark.slow
@needs_torchrec
def test_torchrec_plans_beside_the_search(problem: ShardingProblem) -> None:
    search = Search(time_limit=60)
    found = judged(TORCHREC, problem, search)
    assert found is not None
    assert (found.sharder, found.reason) == (TORCHREC, None)
    (itself,) = run_sharders((TORCHREC,), problem, search)
    assert found.step_time == itself.step_time
