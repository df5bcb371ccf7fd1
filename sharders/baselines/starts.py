"""Plans to start a search from: known ones, or else those of greedies."""

from random import Random

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from sharders.greedy.cost_greedy import CostGreedy
from sharders.greedy.one_pass import LookupGreedy, NormLookupGreedy, SizeGreedy
from sharders.greedy.uniform import Uniform
from sharders.problem.sharding_problem import Budget, Sharder, ShardingProblem

STARTS = (CostGreedy, Uniform, NormLookupGreedy, LookupGreedy, SizeGreedy)
ENOUGH = 2
"""Number of plans that are enough: a single one may be any that fits."""


def starting_plans(
    problem: ShardingProblem, budget: Budget, rng: Random
) -> tuple[list[tuple[Seconds, ShardingPlan]], int]:
    """Return known plans with their steps, best first, and the number of plans timed.

    If there are hardly any, greedy ones are added.

    Raises
    ------
    InfeasibleError
        No greedy finds a plan.

    """
    found = problem.known_times()
    evaluated, enough = len(found), len(found) >= ENOUGH
    refusals: list[InfeasibleError] = []
    for greedy in () if enough else STARTS:
        sharder: Sharder = greedy()
        if found and budget.spent(evaluated):
            break
        try:
            result = sharder.shard(problem, _remaining(budget, evaluated), rng)
        except InfeasibleError as refusal:
            refusals.append(refusal)
        else:
            found.append((result.step_time, result.plan))
            evaluated += result.evaluated
    if not found:
        raise refusals[0]
    return sorted(found, key=lambda pair: pair[0]), evaluated


def _remaining(budget: Budget, evaluated: int) -> Budget:
    """Return the rest of a budget, for a sharder that runs inside another without reports."""
    most = budget.max_evaluations
    left = None if most is None else most - evaluated
    return Budget(max_evaluations=left, should_stop=budget.should_stop)
