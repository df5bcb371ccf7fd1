"""Cold annealing over all decisions at once, under the objective itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from random import Random

from costmodel.domain.plan import ShardingPlan
from sharders.annealing.polish import Polisher
from sharders.annealing.schedule import anneal
from sharders.engine.params import AnnealingParams
from sharders.greedy.few_types import is_small, plans_of_few_types
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)


@dataclass(frozen=True, slots=True)
class Annealing:
    """Local search from the best greedy plans, a little downhill, all moves timed exactly.

    Moves are a column block to another rank, two tables swapped, another sharding type, split or
    kernel; each is timed and made if it improves the plan, or else with the probability exp(-loss /
    temperature) (Metropolis). Runs start from plans known before and from those of linear programs
    and greedy rules, and stay within a set of sharding types each (``type_sets``); the better
    a set's plans, the longer its runs (``schedule``). Small problems are descended in at the end
    (``polish``), from these plans and from those of few sharding types and kernels. No guarantee,
    but never worse than the plans it starts from, nor than itself with the same seed and less time.
    """

    params: AnnealingParams = field(default_factory=AnnealingParams)

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Anneal until nothing better is found for a while, or the budget is spent."""
        annealed, different = anneal(problem, budget, rng, self.params)
        if not is_small(problem):
            in_time = takewhile(lambda _: budget.time_left() > 0, different)
            return _with_others(annealed, in_time)
        others = tuple(different)
        found = dict.fromkeys([annealed.plan, *others, *problem.known])  # each of them once
        plans = chain(found, plans_of_few_types(problem))
        return _with_others(_polished(plans, annealed, problem, budget), others)


def _with_others(best: SearchResult, plans: Iterable[ShardingPlan]) -> SearchResult:
    """Return a result with the best plans of other sets of sharding types beside its own."""
    return replace(best, others=tuple(plan for plan in plans if plan != best.plan))


def _polished(
    plans: Iterable[ShardingPlan], best: SearchResult, problem: ShardingProblem, budget: Budget
) -> SearchResult:
    """Descend from some plans by changes of one table and of two, while the budget lasts."""
    polisher = Polisher(problem, budget, best.evaluated)
    for end, step_time in polisher.descend_from(plans):
        if step_time < best.step_time:
            best = replace(best, plan=end, step_time=step_time)
            budget.report(Progress(evaluated=polisher.evaluated, best=step_time))
    spent = budget.spent(polisher.evaluated)
    status = SearchStatus.LIMIT if spent else best.status
    return replace(best, evaluated=polisher.evaluated, status=status)
