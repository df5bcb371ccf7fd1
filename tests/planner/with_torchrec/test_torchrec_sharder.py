"""TorchRec's own planner, held to what every sharder is held to."""

from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType
from planner.examples import example_problem, example_workload
from planner.search.plugins import TORCHREC, load_sharder, sharder_names
from planner.search.running import run_sharders
from planner.search.search import Search
from planner.testing import SharderContract
from planner.torchrec.torchrec_sharder import TorchRecPlanner
from sharders.problem.sharding_problem import Budget, Sharder, ShardingProblem


@pytest.mark.slow
class TestContract(SharderContract):
    def make_sharder(self) -> Sharder:
        return TorchRecPlanner()

    @pytest.mark.xfail(reason="it does not minimise our objective, and may do worse by it")
    def test_no_worse_than_an_unlucky_random_placement(self) -> None:
        super().test_no_worse_than_an_unlucky_random_placement()


def problem() -> ShardingProblem:
    return example_problem(example_workload(12, seed=6), world_size=4, fill=0.05)


def test_it_is_one_of_the_sharders() -> None:
    assert TORCHREC in sharder_names()
    assert isinstance(load_sharder(TORCHREC), TorchRecPlanner)
    (attempt,) = run_sharders((TORCHREC,), problem(), Search(time_limit=2))
    assert attempt.plan is not None
    assert attempt.evaluated > 1


def test_grid_shard_is_not_chosen_unasked() -> None:
    result = TorchRecPlanner().shard(problem(), Budget(max_evaluations=100), Random(0))
    assert ShardingType.GRID_SHARD not in {each.sharding_type for each in result.plan.tables}


@pytest.mark.parametrize("data_type", [each for each in DataType if each is not DataType.TF32])
def test_tables_of_any_data_type_are_planned(data_type: DataType) -> None:
    asked = problem()
    tables = tuple(replace(each, data_type=data_type) for each in asked.workload.tables[:2])
    workload = replace(asked.workload, tables=tables)
    small = example_problem(workload, world_size=2, fill=0.05)
    result = TorchRecPlanner().shard(small, Budget(max_evaluations=10), Random(0))
    assert len(result.plan.tables) == 2


def test_it_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    TorchRecPlanner().shard(problem(), Budget(max_evaluations=10), Random(0))
    assert not caplog.records
