from random import Random

import numpy as np
import pytest

from costmodel.domain.plan import ShardingType
from planner.examples import example_problem, example_workload
from sharders.baselines.dreamshard import NUM_FEATURES, DreamShardLike, _Player
from sharders.greedy.one_pass import SizeLookupGreedy
from sharders.problem.sharding_problem import Budget


@pytest.mark.slow
def test_training_beats_the_greedy_it_starts_from() -> None:
    problem = example_problem(example_workload(40, seed=5), world_size=4, fill=0.1)
    greedy = SizeLookupGreedy().shard(problem, Budget(), Random(0))
    trained = DreamShardLike().shard(problem, Budget(max_evaluations=150), Random(0))
    assert trained.step_time < greedy.step_time


def test_tables_that_fit_stay_whole() -> None:
    problem = example_problem(example_workload(20, seed=5), world_size=4, fill=0.1)
    plan = DreamShardLike().shard(problem, Budget(max_evaluations=50), Random(0)).plan
    assert {table.sharding_type for table in plan.tables} == {ShardingType.TABLE_WISE}


def test_a_policy_that_shuns_load_balances_it() -> None:
    problem = example_problem(example_workload(40, seed=5), world_size=4, fill=0.1)
    weights = np.zeros(NUM_FEATURES)
    weights[0] = -1.0
    player = _Player(problem)
    _, balanced = player.play(weights, Random(0))
    _, piled = player.play(-weights, Random(0))
    assert balanced < piled
