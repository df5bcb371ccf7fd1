from dataclasses import replace
from random import Random

import numpy as np
import pytest

from costmodel.domain.plan import ShardingType
from costmodel.memory.rank_memory import whole_table_bytes
from planner.examples import example_problem, example_workload
from sharders.baselines.dreamshard import NUM_FEATURES, DreamShardLike, _Player
from sharders.greedy.one_pass import SizeLookupGreedy
from sharders.problem.sharding_problem import Budget


def test_training_beats_the_greedy_it_starts_from() -> None:
    problem = example_problem(example_workload(40, seed=5), world_size=4, fill=0.1)
    greedy = SizeLookupGreedy().shard(problem, Budget(), Random(0))
    trained = DreamShardLike().shard(problem, Budget(max_evaluations=150), Random(0))
    assert trained.step_time < greedy.step_time


def test_features_of_a_table_are_shares_of_a_balanced_rank_s() -> None:
    one, other = example_workload(2, seed=5).tables
    tables = (
        replace(one, pooling_factor=3.0, embedding_dim=64, feature_names=("f", "g")),
        replace(other, pooling_factor=5.0, embedding_dim=32, feature_names=("h",)),
    )
    problem = example_problem(replace(example_workload(2), tables=tables), world_size=4)
    player = _Player(problem)
    load = np.array([some[0].total_load for some in player.candidates])
    size = np.array([whole_table_bytes(problem.workload, problem.topology, t) for t in tables])
    expected = [load, [3.0, 5.0], [64 * 2, 32], size]  # of which a rank has a quarter
    for found, amounts in zip(player.features.T, expected, strict=True):
        assert found == pytest.approx(np.asarray(amounts) / (np.sum(amounts) / 4))


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


def test_a_policy_without_preferences_draws_ranks() -> None:
    player = _Player(example_problem(example_workload(20, seed=5), world_size=4, fill=0.1))
    (one, _), (other, _) = (player.play(np.zeros(NUM_FEATURES), Random(seed)) for seed in (0, 1))
    assert one is not None
    assert one != other
    assert {rank for table in one.tables for rank in table.ranks} == set(range(4))
