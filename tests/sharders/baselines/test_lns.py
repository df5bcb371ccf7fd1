from random import Random

from costmodel.domain.plan import ShardingType
from costmodel.domain.validity import check_plan
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.annealing.plan_editor import PlacedOption
from sharders.baselines.lns import LargeNeighbourhood, _NeighbourhoodSearch
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import Budget


def test_row_shards_within_a_node_are_on_all_its_ranks() -> None:
    problem = example_problem(example_workload(3), world_size=4, num_nodes=2)
    search = _NeighbourhoodSearch(problem, Budget(), Random(0), 0)
    rows = PlacedOption(TableOption(sharding_type=ShardingType.TABLE_ROW_WISE), (2,))
    whole = PlacedOption(TableOption(sharding_type=ShardingType.TABLE_WISE), (2,))
    assert [search._is_on(rows, [rank]) for rank in range(4)] == [False, False, True, True]
    assert [search._is_on(whole, [rank]) for rank in range(4)] == [False, False, True, False]
    assert search._is_on(whole, [0, 2])


def test_better_than_where_it_starts_and_within_memory() -> None:
    problem = example_problem(example_workload(40, seed=3), world_size=4, fill=0.9)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    found = LargeNeighbourhood().shard(problem, Budget(max_evaluations=60), Random(0))
    assert found.step_time < greedy.step_time
    check_plan(problem.workload, problem.topology, found.plan)
    check_memory(problem.workload, problem.topology, found.plan)
