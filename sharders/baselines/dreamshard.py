"""Learned placement: a small policy, trained on the objective, places the tables one by one.

In the manner of Zha et al., *DreamShard: Generalizable Embedding Table Placement for Recommender
Systems*, NeurIPS 2022: tables come in order of cost, a policy gives every rank a score from the
table's features and from what the rank has so far, and a rank is drawn from their softmax.
DreamShard learns the costs, too, and trains policy networks on many tasks beforehand; here the
simulator gives the costs, and a policy of a few weights is trained on the one problem at hand, by
the cross-entropy method (Rubinstein, 1999).
"""

from dataclasses import dataclass, replace
from random import Random

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from sharders.greedy.one_pass import SizeLookupGreedy
from sharders.problem.first_fit import Loads, Occupancy, Ranks
from sharders.problem.option_costs import OptionCost
from sharders.problem.options import TableOption
from sharders.problem.placement import place_or_pack
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

POPULATION, ELITE = 24, 6
"""Number of policies drawn in a generation, and of those that the next one is drawn around."""
PATIENCE = 8
"""Generations without a faster plan before the search ends."""
SPREAD, LEAST_SPREAD = 2.0, 0.1
"""First and smallest standard deviation of the weights."""
TEMPERATURE = 0.02
"""Softmax temperature: it tells scores apart that differ by this share of a balanced load."""
NUM_FEATURES = 7


@dataclass(frozen=True, slots=True)
class DreamShardLike:
    """Trains a linear policy over features of table and rank, table-wise as DreamShard.

    Features: the rank's load, its lookups, columns and bytes so far, each over a balanced rank's,
    and load times the table's share of each of the others. A table that fits on no rank whole is
    split as little as possible. No guarantee. Deterministic for a seed.
    """

    patience: int = PATIENCE

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan after ``PATIENCE`` fruitless generations, or within the budget."""
        best = SizeLookupGreedy().shard(problem, replace(budget, max_evaluations=1), rng)
        player = _Player(problem)
        center, spread = np.zeros(NUM_FEATURES), np.full(NUM_FEATURES, SPREAD)
        center[0] = -1.0
        evaluated, quiet = best.evaluated, 0
        while quiet < self.patience and not budget.spent(evaluated):
            quiet += 1
            rated: list[tuple[Seconds, Array]] = []
            for _ in range(budget.left(evaluated, POPULATION)):
                if budget.should_stop():
                    break
                weights = center + spread * [rng.gauss(0.0, 1.0) for _ in center]
                plan, step_time = player.play(weights, rng)
                evaluated += 1
                rated.append((step_time, weights))
                if plan is not None and step_time < best.step_time:
                    best, quiet = replace(best, plan=plan, step_time=step_time), 0
                    budget.report(Progress(evaluated=evaluated, best=step_time))
            rated.sort(key=lambda pair: pair[0])
            elite = np.array([weights for _, weights in rated[:ELITE]] or [center])
            center = elite.mean(axis=0)
            spread = np.maximum(LEAST_SPREAD, elite.std(axis=0))
        limit = budget.spent(evaluated)
        status = SearchStatus.LIMIT if limit else SearchStatus.CONVERGED
        return replace(best, status=status, evaluated=evaluated)


class _Player:
    """Plays episodes: each places all tables of a problem as a policy says."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.problem = problem
        tables = problem.workload.tables
        self.candidates = [self._candidates(table) for table in tables]
        load = [candidates[0].total_load for candidates in self.candidates]
        self.order = sorted(range(len(tables)), key=lambda i: (-load[i], i))
        size = [
            sum(s.total for s in problem.groundwork.option_bytes(table, candidates[0].option))
            for table, candidates in zip(tables, self.candidates, strict=True)
        ]
        features = np.array([
            load,
            [table.pooling_factor for table in tables],
            [table.embedding_dim * table.num_features for table in tables],
            size,
        ]).T  # fmt: skip
        balanced = np.maximum(1e-12, features.sum(axis=0) / problem.topology.world_size)
        self.features: Array = features / balanced
        """Features of every table, as shares of a balanced rank's."""

    def _candidates(self, table: EmbeddingTable) -> list[OptionCost]:
        """Return a table's options: whole, then in as few shards as possible, copies last."""
        topology = self.problem.topology
        return sorted(
            self.problem.groundwork.costs.all_of(table),
            key=lambda cost: (
                cost.option.sharding_type is ShardingType.DATA_PARALLEL,
                cost.option.num_shards(topology),
                cost.total_load,
            ),
        )

    def play(self, weights: Array, rng: Random) -> tuple[ShardingPlan | None, Seconds]:
        """Return a policy's plan and its step time; None if it finds no room."""
        held = np.zeros((self.problem.topology.world_size, self.features.shape[1]))

        def order(index: int, occupancy: Occupancy) -> Ranks:
            del occupancy
            table = self.features[index]
            seen = np.concatenate([held, held[:, :1] * table[1:]], axis=1)
            noise = [-np.log(-np.log(rng.random() or 0.5)) for _ in held]  # Gumbel: softmax by max
            score = seen @ weights / TEMPERATURE + noise
            ranks = np.argsort(-score, kind="stable")
            fixed = self.problem.workload.tables[index].ranks
            # where it goes unless memory says otherwise
            held[list(fixed) or ranks[:1]] += table / max(1, len(fixed))
            return ranks

        def candidates(index: int) -> list[tuple[TableOption, Loads]]:
            return [(cost.option, _no_load) for cost in self.candidates[index]]

        try:
            plan = place_or_pack(self.problem, self.order, candidates, order)
        except InfeasibleError:
            return None, float("inf")
        return plan, self.problem.objective.step_time(plan)


def _no_load(sharding: TableSharding) -> list[float]:
    """Return loads of 0: the policy keeps its own account."""
    return [0.0] * len(sharding.shards)
