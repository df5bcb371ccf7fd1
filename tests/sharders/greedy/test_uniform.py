"""One sharding type for all tables, and the case it is for."""

from dataclasses import replace
from random import Random

import pytest

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pooling
from planner.examples import example_problem, example_workload
from planner.files.profiles import load_profile
from planner.verbs.topologies import make_topology
from sharders.annealing.sharder import Annealing
from sharders.greedy.uniform import Uniform
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem


def launch_bound() -> ShardingProblem:
    """26 one-hot tables at a small batch: host and launches decide the step."""
    workload = example_workload(26, seed=5)
    tables = tuple(
        replace(table, pooling_factor=1.0, pooling=Pooling.SUM, feature_names=(), weighted=False)
        for table in workload.tables
    )
    small = replace(workload, tables=tables, local_batch_size=1024)
    topology = make_topology(load_profile("h100-sxm"), 4)
    return ShardingProblem.of(small, topology)


def test_uses_one_type_where_every_table_allows_it() -> None:
    plan = Uniform().shard(launch_bound(), Budget(), Random(0)).plan
    assert len({table.sharding_type for table in plan.tables}) == 1


def test_tables_that_do_not_allow_the_type_get_another() -> None:
    problem = example_problem(example_workload(20))
    plan = Uniform().shard(problem, Budget(), Random(0)).plan
    assert {table.table for table in plan.tables} == {t.name for t in problem.workload.tables}


@pytest.mark.slow
def test_annealing_from_it_is_at_least_as_good() -> None:
    problem = launch_bound()
    uniform = Uniform().shard(problem, Budget(), Random(0))
    known = replace(problem, known=(uniform.plan,))
    best = Annealing().shard(known, Budget(max_evaluations=2000), Random(0))
    assert best.step_time <= uniform.step_time
    types = {table.sharding_type for table in uniform.plan.tables}
    assert types <= set(ShardingType)


def test_it_is_done_when_every_type_was_tried() -> None:
    problem = launch_bound()
    count = Uniform().shard(problem, Budget(), Random(0)).evaluated
    for most, status in ((count, SearchStatus.CONVERGED), (count - 1, SearchStatus.LIMIT)):
        found = Uniform().shard(problem, Budget(max_evaluations=most), Random(0))
        assert (found.evaluated, found.status) == (most, status)
