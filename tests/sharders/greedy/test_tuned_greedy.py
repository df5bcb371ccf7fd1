from random import Random

from planner.examples import example_problem, example_workload
from sharders.greedy.cost_greedy import TunedGreedy
from sharders.problem.sharding_problem import Budget, SearchStatus


def test_ends_by_itself() -> None:
    problem = example_problem(example_workload(8))
    tuned = TunedGreedy(trials=50).shard(problem, Budget(), Random(0))
    assert tuned.status is SearchStatus.CONVERGED
