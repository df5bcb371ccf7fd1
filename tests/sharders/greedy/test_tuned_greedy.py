from random import Random

from planner.examples import example_problem, example_workload
from sharders.greedy.cost_greedy import CostGreedy, TunedGreedy
from sharders.problem.sharding_problem import Budget, SearchStatus


def test_ends_after_its_trials() -> None:
    problem = example_problem(example_workload(8))
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    tuned = TunedGreedy(trials=50).shard(problem, Budget(), Random(0))
    assert (tuned.status, tuned.evaluated) == (SearchStatus.CONVERGED, greedy.evaluated + 50)
