"""Searches of many tables on many GPUs stop when told to; looks are counted, no clock is asked."""

from dataclasses import replace
from random import Random

import pytest

from planner.examples import example_problem, example_workload
from sharders.annealing.polish import TOGETHER, Polisher
from sharders.baselines.ilp import Ilp
from sharders.baselines.lns import LargeNeighbourhood
from sharders.baselines.solvers import Limits
from sharders.greedy.one_pass import LookupGreedy
from sharders.lp.lp import Lp
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem

LOOKS = 3


def large() -> ShardingProblem:
    problem = example_problem(example_workload(856, seed=0), world_size=64)
    plan = LookupGreedy().shard(problem, Budget(), Random(0)).plan
    return replace(problem, known=(plan, plan))


def stopping(looks: int) -> Budget:
    """Return a budget that is spent when it has been looked at so often."""
    asked = iter(range(looks))
    return Budget(should_stop=lambda: next(asked, None) is None)


@pytest.mark.slow
def test_a_descent_times_no_more_than_one_batch_of_moves_between_looks() -> None:
    problem = large()
    polisher = Polisher(problem, stopping(LOOKS), 0)
    polisher.descend(problem.known[0])
    assert 1 < polisher.evaluated <= 1 + LOOKS * TOGETHER


@pytest.mark.slow
def test_a_large_neighbourhood_solves_no_more_than_one_program_between_looks() -> None:
    problem = large()
    result = LargeNeighbourhood().shard(problem, stopping(LOOKS), Random(0))
    assert result.status is SearchStatus.LIMIT
    assert result.evaluated <= len(problem.known) + LOOKS


@pytest.mark.slow
def test_programs_for_the_integer_search_are_told_how_long_they_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Limits] = []

    def noted(program: object, first: object, limits: Limits) -> tuple[None, bool]:
        del program, first
        given.append(limits)
        return None, False

    monkeypatch.setattr("sharders.baselines.ilp_relaxation.solve", noted)
    problem = large()
    Ilp().solve(problem, Budget(time_left=lambda: 5.0), problem.known[0])
    assert [limits.time is not None and limits.time < 5.0 for limits in given] == [True]


@pytest.mark.slow
def test_an_integer_search_solves_no_more_than_one_program_between_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved: list[object] = []

    def noted(sharder: Ilp, problem: ShardingProblem, *others: object) -> None:
        del sharder, problem
        solved.append(others)

    monkeypatch.setattr(Ilp, "solve", noted)
    result = Ilp().shard(large(), stopping(LOOKS), Random(0))
    assert result.status is SearchStatus.LIMIT
    assert len(solved) < LOOKS


@pytest.mark.slow
def test_a_relaxed_step_is_solved_for_no_more_than_one_plan_between_looks() -> None:
    problem = large()
    result = Lp().shard(problem, stopping(LOOKS), Random(0))
    assert result.status is SearchStatus.LIMIT
    assert len(problem.known) < result.evaluated < len(problem.known) + LOOKS
