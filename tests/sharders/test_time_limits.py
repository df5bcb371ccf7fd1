"""Searches of many tables on many GPUs stop when told to; looks are counted, no clock is asked."""

from random import Random

from planner.testing import example_problem, example_workload
from sharders.lns import LargeNeighbourhood
from sharders.polish import TOGETHER, Polisher
from sharders.problem import Budget, SearchStatus, ShardingProblem
from sharders.table_iii import LookupGreedy

LOOKS = 3


def large() -> ShardingProblem:
    problem = example_problem(example_workload(856, seed=0), world_size=64)
    plan = LookupGreedy().shard(problem, Budget(), Random(0)).plan
    return problem.with_known((plan, plan))


def stopping(looks: int) -> Budget:
    """Return a budget that is spent when it has been looked at so often."""
    asked = iter(range(looks))
    return Budget(should_stop=lambda: next(asked, None) is None)


def test_a_descent_times_no_more_than_one_batch_of_moves_between_looks() -> None:
    problem = large()
    polisher = Polisher(problem, stopping(LOOKS), 0)
    polisher.descend(problem.known[0])
    assert 1 < polisher.evaluated <= 1 + LOOKS * TOGETHER


def test_a_large_neighbourhood_solves_no_more_than_one_program_between_looks() -> None:
    problem = large()
    result = LargeNeighbourhood().shard(problem, stopping(LOOKS), Random(0))
    assert result.status is SearchStatus.LIMIT
    assert result.evaluated <= len(problem.known) + LOOKS
