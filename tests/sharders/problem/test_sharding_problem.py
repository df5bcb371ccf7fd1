from dataclasses import replace

from plans import mixed

from costmodel.memory.rank_memory import usable_bytes
from planner.examples import example_problem, example_workload
from sharders.problem.sharding_problem import Budget, ShardingProblem


def test_capacity_is_what_memory_leaves() -> None:
    problem = example_problem(example_workload(3))
    assert problem.capacity == usable_bytes(problem.workload, problem.topology)


def test_a_budget_is_spent_by_number_or_by_word() -> None:
    assert not Budget().spent(10**9)
    assert [Budget(max_evaluations=2).spent(evaluated) for evaluated in (1, 2)] == [False, True]
    assert Budget(should_stop=lambda: True).spent(0)


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
