"""The tables with most ids first, each on the rank that has fewest; and a few random variations."""

from dataclasses import dataclass
from random import Random

from planner import (
    Budget,
    InfeasibleError,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingPlan,
    ShardingProblem,
)
from sharders.problem.placement import place_tables

VARIATIONS = 8


@dataclass(frozen=True)
class HeaviestFirst:
    """Places tables by ids times columns, several times with a little noise."""

    noise: float = 0.2

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best of some placements."""
        plan = self._plan(problem, rng, 0.0)
        best, evaluated = (problem.objective.step_time(plan), plan), 1
        while evaluated < VARIATIONS and not budget.spent(evaluated):
            try:
                plan = self._plan(problem, rng, self.noise)
            except InfeasibleError:
                continue
            best = min(best, (problem.objective.step_time(plan), plan), key=lambda pair: pair[0])
            evaluated += 1
            budget.report(Progress(evaluated=evaluated, best=best[0]))
        return SearchResult(
            plan=best[1], step_time=best[0], status=SearchStatus.CONVERGED, evaluated=evaluated
        )

    def _plan(self, problem: ShardingProblem, rng: Random, noise: float) -> ShardingPlan:
        weight = {
            table.name: table.pooling_factor * table.embedding_dim * (1 + noise * rng.random())
            for table in problem.workload.tables
        }
        return place_tables(
            problem,
            score=lambda table: weight[table.name],
            order=lambda _, occupancy: occupancy.least_loaded(),
        )
