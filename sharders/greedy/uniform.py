"""Plans of one sharding type for all tables, which win where launches bound a step."""

from dataclasses import dataclass
from math import inf
from random import Random

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingPlan, ShardingType
from sharders.greedy.few_types import of_type, plan_preferring
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)


@dataclass(frozen=True, slots=True)
class Uniform:
    """The best of the plans that use one sharding type wherever a table allows it.

    Every type in use costs all ranks a set of collectives and the host time to issue them. With
    small batches that outweighs balance, and a search that changes tables one by one does not get
    from one type to another. Other types serve tables that do not allow the type, or find no room.
    Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan over all sharding types that some table allows."""
        del rng
        evaluated = 0
        took = 0.0
        best: tuple[float, ShardingPlan] | None = None
        refusal = InfeasibleError("no plan fits")
        for kind in _types(problem):
            if best is not None and (budget.spent(evaluated) or budget.time_left() < took):
                break
            left = budget.time_left()
            try:
                plan = plan_preferring(problem, of_type(kind))
            except InfeasibleError as error:
                refusal = error
                continue
            step_time = problem.objective.step_time(plan)
            took = left - budget.time_left() if left < inf else 0.0
            evaluated += 1
            if best is None or step_time < best[0]:
                best = (step_time, plan)
                budget.report(Progress(evaluated=evaluated, best=step_time))
        if best is None:
            raise refusal
        tried = evaluated >= len(_types(problem))
        status = SearchStatus.CONVERGED if tried else SearchStatus.LIMIT
        return SearchResult(plan=best[1], step_time=best[0], status=status, evaluated=evaluated)


def _types(problem: ShardingProblem) -> list[ShardingType]:
    """Return the types that some table allows, table-wise first: it always has room to try."""
    offered = {o.sharding_type for options in problem.options.values() for o in options}
    return sorted(offered, key=lambda kind: (kind is not ShardingType.TABLE_WISE, kind))
