from random import Random

import pytest

from costmodel.domain.plan import ShardingType
from costmodel.domain.validity import check_plan
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.annealing.plan_editor import PlanEditor
from sharders.baselines.lns import LargeNeighbourhood
from sharders.baselines.neighbourhood import Neighbourhoods
from sharders.baselines.solvers import Limits
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.options import TableOption, places
from sharders.problem.sharding_problem import Budget, ShardingProblem


def _state(problem: ShardingProblem) -> PlanEditor:
    state = PlanEditor(problem)
    state.start(CostGreedy().shard(problem, Budget(), Random(0)).plan)
    return state


def test_a_program_lowers_the_largest_load() -> None:
    problem = example_problem(example_workload(24, seed=7), world_size=4)
    near = Neighbourhoods(_state(problem))
    before = near.loads().max()
    free = {index: near.choices(index, range(4), 6) for index in range(24)}
    move = near.best(free, Limits(gap=0.01, max_nodes=500))
    assert move is not None
    assert near.state.fits(move)
    near.state.apply(move)
    assert near.loads().max() < before


def test_what_is_at_its_best_stays() -> None:
    problem = example_problem(example_workload(3), world_size=2)
    near = Neighbourhoods(_state(problem))
    free = {index: near.choices(index, range(2), 6) for index in range(3)}
    move = near.best(free, Limits(gap=0.0))
    if move:
        near.state.apply(move)
    again = near.best({i: near.choices(i, range(2), 6) for i in range(3)}, Limits(gap=0.0))
    assert again is None or near.loads().max() == pytest.approx(near.loads().max())


def test_places_are_distinct_ranks_and_within_a_node_where_they_must_be() -> None:
    problem = example_problem(example_workload(3), world_size=4, num_nodes=2)
    columns = TableOption(sharding_type=ShardingType.TABLE_COLUMN_WISE, num_column_shards=2)
    rows = TableOption(sharding_type=ShardingType.TABLE_ROW_WISE)
    assert list(places(problem.topology, columns, range(4))) == [(0, 1), (2, 3)]
    assert list(places(problem.topology, rows, [3, 1, 0, 2])) == [(2,), (0,)]


@pytest.mark.slow
def test_better_than_where_it_starts_and_within_memory() -> None:
    problem = example_problem(example_workload(40, seed=3), world_size=4, fill=0.9)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    found = LargeNeighbourhood().shard(problem, Budget(max_evaluations=60), Random(0))
    assert found.step_time < greedy.step_time
    check_plan(problem.workload, problem.topology, found.plan)
    check_memory(problem.workload, problem.topology, found.plan)
