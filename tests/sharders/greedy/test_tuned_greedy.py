from random import Random

import pytest

from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.greedy.cost_greedy import CostGreedy, TunedGreedy
from sharders.problem.sharding_problem import Budget, SearchStatus


@pytest.mark.slow
def test_never_worse_than_the_greedy_it_tunes() -> None:
    problem = example_problem(example_workload(30, seed=6), fill=0.7)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    tuned = TunedGreedy().shard(problem, Budget(max_evaluations=80), Random(0))
    assert tuned.step_time <= greedy.step_time
    check_memory(problem.workload, problem.topology, tuned.plan)


def test_ends_by_itself() -> None:
    problem = example_problem(example_workload(8))
    tuned = TunedGreedy(trials=50).shard(problem, Budget(), Random(0))
    assert tuned.status is SearchStatus.CONVERGED
