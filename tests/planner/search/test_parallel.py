from dataclasses import replace

import pytest

from costmodel.base.errors import InfeasibleError
from planner.examples import example_problem, example_workload
from planner.search.one_sharder import with_storage
from planner.search.running import run_sharders
from planner.search.search import Search
from sharders.baselines.optuna_search import OptunaSearch
from sharders.greedy.one_pass import Naive
from sharders.problem.sharding_problem import Progress, ShardingProblem


@pytest.mark.slow
def test_the_first_process_does_what_a_search_alone_does(problem: ShardingProblem) -> None:
    alone = run_sharders(("random", "annealing"), problem, Search(seed=3))
    seen: list[Progress] = []
    search = Search(seed=3, jobs=2, watch=lambda _, progress: seen.append(progress))
    both = run_sharders(("random", "annealing"), problem, search)
    assert [attempt.plan for attempt in both[:2]] == [attempt.plan for attempt in alone]
    assert [attempt.sharder for attempt in both] == ["random", "annealing"] * 2
    assert both[2].plan is not None
    assert all(attempt.step_time < float("inf") for attempt in both)


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_found() -> None:
    problem = example_problem(example_workload(60), world_size=8)
    told: list[str] = []
    search = Search(
        jobs=2,
        time_limit=300.0,
        interrupted=lambda: "annealing" in told,
        watch=lambda name, _: told.append(name),
    )
    attempts = run_sharders(("naive", "annealing"), problem, search)
    assert all(attempt.plan for attempt in attempts)
    assert sum(attempt.time for attempt in attempts) < search.time_limit


@pytest.mark.slow
def test_when_nothing_fits_the_error_is_that_of_a_search_alone(problem: ShardingProblem) -> None:
    table = replace(problem.workload.tables[0], num_embeddings=10**11)
    large = ShardingProblem.of(replace(problem.workload, tables=(table,)), problem.topology)
    with pytest.raises(InfeasibleError):
        run_sharders(("naive",), large, Search(jobs=2))


@pytest.mark.slow
@pytest.mark.parametrize(("plans", "jobs"), [(1, 3), (50, 3)])
def test_processes_look_at_as_many_plans_as_asked_for(
    problem: ShardingProblem, plans: int, jobs: int
) -> None:
    attempts = run_sharders(("annealing",), problem, Search(max_plans=plans, jobs=jobs))
    assert sum(attempt.evaluated for attempt in attempts) == plans


def test_at_least_one_process_is_needed() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Search(jobs=0)


def test_only_sharders_that_keep_trials_get_a_storage() -> None:
    assert with_storage(OptunaSearch(), "sqlite:///a.db") == OptunaSearch(storage="sqlite:///a.db")
    assert with_storage(Naive(), "sqlite:///a.db") == Naive()
