import sys
from pathlib import Path
from random import Random

import pytest

from costmodel.errors import MissingDependencyError
from costmodel.objective import Objective
from planner.testing import example_problem, example_workload
from sharders.cost_greedy import CostGreedy
from sharders.optuna_search import OptunaSearch
from sharders.problem import Budget, ShardingProblem

optuna = pytest.importorskip("optuna", reason="optuna is not installed")


def _problem() -> ShardingProblem:
    return example_problem(example_workload(16), world_size=4)


def test_never_worse_than_the_greedy_it_tunes() -> None:
    problem = _problem()
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    tuned = OptunaSearch().shard(problem, Budget(max_evaluations=60), Random(0))
    assert tuned.step_time <= greedy.step_time


def test_processes_share_a_study(tmp_path: Path) -> None:
    problem = _problem()
    url = f"sqlite:///{tmp_path / 'study.db'}"
    first = OptunaSearch(storage=url).shard(problem, Budget(max_evaluations=60), Random(0))
    second = OptunaSearch(storage=url).shard(problem, Budget(max_evaluations=20), Random(1))
    study = optuna.load_study(study_name="workload on 1 x 4", storage=url)
    assert len(study.trials) > 40
    assert second.step_time <= first.step_time * (1 + 1e-9)


def test_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError) as error:
        OptunaSearch().shard(_problem(), Budget(), Random(0))
    assert error.value.hint == "pip install 'shardwise[search]'"


def test_objective_decides_not_the_weights() -> None:
    problem = _problem()
    objective = Objective(problem.workload, problem.topology)
    real = ShardingProblem(
        workload=problem.workload, topology=problem.topology, objective=objective
    )
    result = OptunaSearch().shard(real, Budget(max_evaluations=30), Random(0))
    assert result.step_time == pytest.approx(objective.step_time(result.plan))
