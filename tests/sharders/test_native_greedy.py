"""The compiled greedy keeps to memory, and tuned finds what the Python one finds."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

import sharders.native.greedy as compiled
from costmodel.hardware import Topology
from costmodel.memory import check_memory
from costmodel.objective import Objective
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.validity import check_plan
from costmodel.workload import Workload
from planner.examples import example_problem, example_workload
from sharders.cost_greedy import CostGreedy, Rule, rule_plan
from sharders.native.engine import Engine
from sharders.native.greedy import rule_of
from sharders.native.tuning import Tuning
from sharders.option_costs import OptionCosts
from sharders.problem import Budget, ShardingProblem
from sharders.tuned_greedy import NEUTRAL, drawn

PROBLEM = example_problem(example_workload(30, seed=3), world_size=8)


def filled(engine: Engine, parameters: dict[str, float]) -> float | None:
    problem = engine.problem
    balanced = OptionCosts(problem).balanced_load
    return engine.fill(rule_of(parameters, balanced, problem.capacity))


@given(cases(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_plans_are_valid_and_timed_as_the_objective_times_them(
    case: tuple[Workload, Topology, ShardingPlan], seed: int
) -> None:
    workload, topology, _ = case
    objective = Objective(workload, topology)
    engine = Engine(ShardingProblem(workload=workload, topology=topology, objective=objective))
    step_time = filled(engine, dict(drawn(Random(seed))))
    if step_time is not None:
        plan = engine.plan_of(engine.present())
        check_plan(workload, topology, plan)
        check_memory(workload, topology, plan)
        assert step_time == pytest.approx(objective.step_time(plan), rel=1e-9)


@pytest.mark.parametrize(("split", "replicate"), [(4.0, 0.0), (0.5, 1.0), (0.25, 2.0)])
def test_rules_choose_the_options_that_they_choose_in_python(
    split: float, replicate: float
) -> None:
    engine = Engine(PROBLEM)
    filled(engine, {**NEUTRAL, "split_above": split, "replicate_below": replicate})
    ours = engine.plan_of(engine.present())
    theirs = rule_plan(PROBLEM, OptionCosts(PROBLEM), Rule(split, replicate))
    for table in PROBLEM.workload.tables:
        ours_of, theirs_of = ours.table(table.name), theirs.table(table.name)
        assert ours_of.sharding_type == theirs_of.sharding_type
        assert len(ours_of.shards) == len(theirs_of.shards)


def test_weights_decide_which_types_are_used() -> None:
    engine = Engine(PROBLEM)
    for kind in (ShardingType.ROW_WISE, ShardingType.COLUMN_WISE):
        weights = {f"weight {each.value}": -1.5 if each is kind else 1.5 for each in ShardingType}
        filled(engine, {**NEUTRAL, **weights, "split_above": 0.02})
        used = [table.sharding_type for table in engine.plan_of(engine.present()).tables]
        assert used.count(kind) > len(used) / 2


def test_tuning_is_at_least_as_good_as_the_greedy() -> None:
    tuning = Tuning(Engine(PROBLEM), Budget(), Random(0), ())
    best, choices = tuning.run()[0]
    plan = tuning.engine.plan_of(choices)
    assert best == pytest.approx(PROBLEM.objective.step_time(plan), rel=1e-9)
    greedy = CostGreedy().shard(PROBLEM, Budget(), Random(0))
    assert best <= greedy.step_time * 1.001


def test_tuning_takes_its_share_of_the_plans_and_of_the_time() -> None:
    tuning = Tuning(Engine(PROBLEM), Budget(max_evaluations=400), Random(0), ())
    tuning.run()
    assert tuning.evaluated == 100
    clock = iter(range(1000))  # a second a look
    timed = Budget(time_left=lambda: 100.0 - next(clock))
    tuning = Tuning(Engine(PROBLEM), timed, Random(0), ())
    tuning.run()
    assert 40 < tuning.evaluated < 80
    clock = iter(range(1000))
    tuning = Tuning(Engine(PROBLEM), timed, Random(0), (1e-9,))  # far better than any it finds
    tuning.run()
    assert tuning.evaluated < 40


def test_tables_are_sorted_by_decreasing_key_then_by_index() -> None:
    import numpy as np

    key = np.array([2.0, 5.0, 2.0, 7.0, 5.0])
    order = np.arange(5)
    compiled._sort(order, key)
    assert order.tolist() == [3, 1, 4, 0, 2]
