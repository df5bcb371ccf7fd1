from importlib import import_module

import pytest

from costmodel.memory.rank_memory import usable_bytes
from planner.examples import example_problem, example_workload
from sharders import SHARDERS
from sharders.problem.sharding_problem import Budget


def test_capacity_is_what_memory_leaves() -> None:
    problem = example_problem(example_workload(3))
    assert problem.capacity == usable_bytes(problem.workload, problem.topology)


def test_a_budget_is_spent_by_number_or_by_word() -> None:
    assert not Budget().spent(10**9)
    assert [Budget(max_evaluations=2).spent(evaluated) for evaluated in (1, 2)] == [False, True]
    assert Budget(should_stop=lambda: True).spent(0)


@pytest.mark.parametrize("target", SHARDERS.values())
def test_every_registered_sharder_exists(target: str) -> None:
    module, _, name = target.partition(":")
    assert callable(getattr(import_module(module), name)().shard)
