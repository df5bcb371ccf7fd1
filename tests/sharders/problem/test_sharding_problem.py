from dataclasses import replace

import pytest
from plans import mixed

from costmodel.memory.rank_memory import usable_bytes
from planner.examples import example_problem, example_workload
from sharders.problem.sharding_problem import Budget, Proof, ShardingProblem


def test_capacity_is_what_memory_leaves() -> None:
    problem = example_problem(example_workload(3))
    assert problem.capacity == usable_bytes(problem.workload, problem.topology)


def test_a_budget_is_spent_by_number_or_by_word() -> None:
    assert not Budget().spent(10**9)
    assert [Budget(max_evaluations=2).spent(evaluated) for evaluated in (1, 2)] == [False, True]
    assert Budget(should_stop=lambda: True).spent(0)


@pytest.mark.parametrize(
    ("max_evaluations", "evaluated", "left"), [(None, 9, 5), (20, 9, 5), (12, 9, 3), (7, 9, 0)]
)
def test_plans_left_are_those_of_the_budget(
    max_evaluations: int | None, evaluated: int, left: int
) -> None:
    assert Budget(max_evaluations=max_evaluations).left(evaluated, 5) == left


@pytest.mark.parametrize(
    ("value", "bound", "gap"),
    [(8.0, 6.0, 0.25), (0.8, 0.6, 0.25), (8.0, 9.0, 0.0), (8.0, None, None), (0.0, 0.0, None)],
)
def test_a_gap_is_the_share_that_the_bound_leaves_open(
    value: float, bound: float | None, gap: float | None
) -> None:
    found = Proof(value=value, bound=bound).gap
    assert found == (None if gap is None else pytest.approx(gap))


def test_the_best_plan_known_is_the_fastest() -> None:
    work, ranks, plans = mixed()
    for known in (plans, plans[::-1]):
        problem = replace(ShardingProblem.of(work, ranks), known=known)
        times = [problem.objective.step_time(plan) for plan in known]
        best = problem.best_known()
        assert best is not None
        assert (best.step_time, best.plan) == min(
            zip(times, known, strict=True), key=lambda x: x[0]
        )
    assert ShardingProblem.of(work, ranks).best_known() is None
