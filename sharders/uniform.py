"""All tables by one sharding type: what wins where a step is bound by launches."""

from dataclasses import dataclass
from random import Random

from costmodel.errors import InfeasibleError
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.units import Seconds
from sharders.few_types import of_type, plan_preferring
from sharders.option_costs import OptionCosts
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem

SECONDS_PER_SHARD: Seconds = 8e-6
"""A plan of one type for all tables takes up to this for each table and rank (x86 core, 2026: 0.4 s
for 856 tables on 64 ranks and for 788 on 128)."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """The best of the plans that use one sharding type wherever a table allows it.

    Every type in use costs all ranks a set of collectives and the host time to issue them. With
    small batches that outweighs balance, and a search that changes tables one by one does not get
    from one type to another. Other types serve tables that do not allow the type, or find no room.
    Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Try every sharding type that some table allows."""
        del rng
        costs, evaluated = OptionCosts(problem), 0
        needed = self.needed_time(problem, compiled=False)
        best: tuple[float, ShardingPlan] | None = None
        refusal = InfeasibleError("no plan fits")
        for kind in _types(problem):
            if best is not None and (budget.spent(evaluated) or budget.time_left() < needed):
                break
            try:
                plan = plan_preferring(problem, costs, of_type(kind))
            except InfeasibleError as error:
                refusal = error
                continue
            step_time = problem.objective.step_time(plan)
            evaluated += 1
            if best is None or step_time < best[0]:
                best = (step_time, plan)
                budget.report(Progress(evaluated=evaluated, best=step_time))
        if best is None:
            raise refusal
        tried = evaluated >= len(_types(problem))
        status = SearchStatus.CONVERGED if tried else SearchStatus.LIMIT
        return SearchResult(plan=best[1], step_time=best[0], status=status, evaluated=evaluated)

    def needed_time(self, problem: ShardingProblem, *, compiled: bool) -> Seconds:
        """Return about how long a plan takes."""
        del compiled
        return SECONDS_PER_SHARD * len(problem.workload.tables) * problem.topology.world_size


def _types(problem: ShardingProblem) -> list[ShardingType]:
    """Return the types that some table allows, table-wise first: it always has room to try."""
    offered = {o.sharding_type for options in problem.options.values() for o in options}
    return sorted(offered, key=lambda kind: (kind is not ShardingType.TABLE_WISE, kind))
