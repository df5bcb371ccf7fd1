from random import Random

import pytest

from costmodel.memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.cost_greedy import CostGreedy, Rule, rule_plan
from sharders.option_costs import OptionCosts
from sharders.problem import Budget, SearchStatus
from sharders.tuned_greedy import NEUTRAL, RANGES, TunedGreedy, tuned_plan


def test_without_weights_it_is_the_greedy() -> None:
    problem = example_problem(example_workload(16), world_size=4)
    costs = OptionCosts(problem)
    assert tuned_plan(problem, costs, NEUTRAL) == rule_plan(problem, costs, Rule(0.5, 1.0))


def test_weights_change_what_is_chosen() -> None:
    problem = example_problem(example_workload(16), world_size=4)
    costs = OptionCosts(problem)
    averse = {**NEUTRAL, "replicate_below": 4.0, "weight data_parallel": -1.5}
    assert tuned_plan(problem, costs, averse) != tuned_plan(problem, costs, NEUTRAL)


@pytest.mark.slow
def test_never_worse_than_the_greedy_it_tunes() -> None:
    problem = example_problem(example_workload(30, seed=6), fill=0.7)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    tuned = TunedGreedy().shard(problem, Budget(max_evaluations=80), Random(0))
    assert tuned.step_time <= greedy.step_time
    check_memory(problem.workload, problem.topology, tuned.plan)


def test_ends_by_itself() -> None:
    problem = example_problem(example_workload(8))
    assert TunedGreedy(patience=5).shard(problem, Budget(), Random(0)).status is (
        SearchStatus.CONVERGED
    )


def test_neutral_parameters_are_in_range() -> None:
    assert all(low <= NEUTRAL[name] <= high for name, (low, high) in RANGES.items())
