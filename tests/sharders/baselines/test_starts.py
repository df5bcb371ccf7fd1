"""Plans that searches start from."""

from dataclasses import replace
from random import Random

from plans import mixed

from sharders.baselines.starts import STARTS, starting_plans
from sharders.problem.sharding_problem import Budget, ShardingProblem


def test_plans_to_start_from_are_known_ones_or_those_of_greedies() -> None:
    work, ranks, plans = mixed()
    problem = ShardingProblem.of(work, ranks)
    times = sorted(map(problem.objective.step_time, plans))
    for known in (plans, plans[::-1]):
        found, evaluated = starting_plans(replace(problem, known=known), Budget(), Random(0))
        assert ([seconds for seconds, _ in found], evaluated) == (times, 2)
    for most, greedies in ((None, len(STARTS)), (2, 1)):  # a single plan may be any that fits
        one = replace(problem, known=plans[:1])
        found, evaluated = starting_plans(one, Budget(max_evaluations=most), Random(0))
        assert len(found) == 1 + greedies
        assert found == sorted(found, key=lambda pair: pair[0])
        assert evaluated >= len(found)
