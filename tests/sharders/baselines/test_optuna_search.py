import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from costmodel.base.errors import MissingDependencyError
from costmodel.domain.plan import ShardingType
from costmodel.engine.objective import Objective
from planner.examples import example_problem, example_workload
from sharders.baselines.optuna_search import OptunaSearch, _storage, study_name
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem

optuna = pytest.importorskip("optuna", reason="optuna is not installed")


def _problem() -> ShardingProblem:
    return example_problem(example_workload(16), world_size=4)


@pytest.mark.slow
def test_never_worse_than_the_greedy_it_tunes() -> None:
    problem = _problem()
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    tuned = OptunaSearch().shard(problem, Budget(max_evaluations=60), Random(0))
    assert tuned.step_time <= greedy.step_time


SCRIPT = """
import sys
from dataclasses import replace
from random import Random
from planner.examples import example_problem, example_workload
from sharders.baselines.optuna_search import OptunaSearch
from sharders.problem.sharding_problem import Budget

problem = example_problem(example_workload(16), world_size=4)
url, seed = sys.argv[1:]
OptunaSearch(storage=url).shard(problem, Budget(max_evaluations=24), Random(int(seed)))
"""
"""Half of the evaluations are the greedy's."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param("sqlite:///", marks=pytest.mark.nightly), "journal://"]
)
def test_two_processes_share_a_study(tmp_path: Path, kind: str) -> None:
    url = f"{kind}{tmp_path / 'study'}"
    root = str(Path(__file__).parents[3])
    both = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, url, seed], cwd=root)  # noqa: S603 - ours
        for seed in ("0", "1")
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    third = OptunaSearch(storage=url).shard(_problem(), Budget(max_evaluations=14), Random(2))
    study = optuna.load_study(study_name=study_name(_problem()), storage=_storage(url))
    assert len(study.trials) == 12 + 12 + 7
    # a plan of the others', made again from its parameters
    assert third.step_time <= study.best_value * (1 + 1e-9)


@pytest.mark.parametrize("plans", [None, 1])
def test_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, plans: int | None) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError) as error:
        OptunaSearch().shard(_problem(), Budget(max_evaluations=plans), Random(0))
    assert error.value.hint == "pip install '.[search]' in the checkout that the planner is from"


def test_it_ends_after_so_many_trials_without_a_faster_plan() -> None:
    (table,) = example_workload(1).tables  # whole, it has plans of one step time
    whole = replace(table, sharding_types=(ShardingType.TABLE_WISE,))
    problem = example_problem(replace(example_workload(1), tables=(whole,)), fill=0.1)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    result = OptunaSearch(patience=3).shard(problem, Budget(), Random(0))
    assert (result.status, result.evaluated) == (SearchStatus.CONVERGED, greedy.evaluated + 3)


def test_objective_decides_not_the_weights() -> None:
    problem = _problem()
    objective = Objective(problem.workload, problem.topology)
    real = replace(problem, objective=objective)
    result = OptunaSearch().shard(real, Budget(max_evaluations=30), Random(0))
    assert result.step_time == pytest.approx(objective.step_time(result.plan))


def test_another_workload_has_another_study() -> None:
    smaller = example_problem(example_workload(15), world_size=4)
    assert study_name(smaller) != study_name(_problem())
    assert study_name(_problem()) == study_name(_problem())
