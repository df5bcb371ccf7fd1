"""A greedy that places by predicted time, and chooses splits: a small grid of rules, timed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from costmodel.errors import InfeasibleError
from costmodel.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.units import Seconds
from costmodel.workload import EmbeddingTable
from sharders.option_costs import Costs, OptionCost, OptionCosts
from sharders.options import TableOption
from sharders.placement import Loads, Occupancy, place, place_or_pack
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem

SPLIT_ABOVE = (float("inf"), 1.0, 0.5, 0.25)
"""Split a table whose load exceeds this share of a balanced rank's load."""
REPLICATE_BELOW = (0.0, 0.5, 1.0, 2.0)
"""Replicate a table if that costs every rank at most this times its share of the sharded load."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which tables a plan splits and which it replicates."""

    split_above: float
    replicate_below: float


@dataclass(frozen=True, slots=True)
class CostGreedy:
    """Longest predicted time first, each table on the ranks that are done soonest.

    For every pair of thresholds above, tables get an option by the predicted cost of each one
    alone (``OptionCosts``): replicated if that is cheap, split into the cheapest option whose
    shards are small enough if they are large, whole otherwise. Placement is by longest processing
    time, within memory; the objective decides between the plans. Without splits and where memory
    never binds, balance is within 4/3 of the best of the separable costs (Graham, 1969). Ignores
    the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Try every rule until the budget is spent."""
        del rng
        costs, best, evaluated = OptionCosts(problem), None, 0
        error: InfeasibleError | None = None
        for split, replicate in product(SPLIT_ABOVE, REPLICATE_BELOW):
            if best is not None and budget.spent(evaluated):
                return _result(best, SearchStatus.LIMIT, evaluated)
            try:
                plan = rule_plan(problem, costs, Rule(split, replicate))
            except InfeasibleError as refusal:
                error = refusal
                continue
            step_time = problem.objective.step_time(plan)
            evaluated += 1
            if best is None or step_time < best[0]:
                best = (step_time, plan)
            budget.report(Progress(evaluated=evaluated, best=best[0]))
        if best is None:
            raise error or ValueError("no rule was tried")
        return _result(best, SearchStatus.CONVERGED, evaluated)


def _result(
    best: tuple[Seconds, ShardingPlan], status: SearchStatus, evaluated: int
) -> SearchResult:
    return SearchResult(plan=best[1], step_time=best[0], status=status, evaluated=evaluated)


def rule_plan(problem: ShardingProblem, costs: Costs, rule: Rule) -> ShardingPlan:
    """Return the plan that a rule makes.

    Raises
    ------
    InfeasibleError
        The greedy finds no room for some table, whatever its option.

    """
    tables = problem.workload.tables
    whole = [_whole(problem, costs, table) for table in tables]
    balanced = sum(cost.total_load for cost in whole) / problem.topology.world_size
    ways = [_ranked(problem, costs, table, rule, balanced) for table in tables]
    return place_by_load(problem, ways)


def place_by_load(problem: ShardingProblem, ways: Sequence[Sequence[OptionCost]]) -> ShardingPlan:
    """Place tables by longest processing time, each in the first of its ways that fits.

    If that fails for lack of memory, tables are placed once more by decreasing size; and if that
    fails, packed by size alone (``packing``).

    Raises
    ------
    InfeasibleError
        A table fits nowhere, in either order, and no packing is found.

    """
    tables = problem.workload.tables
    order = sorted(range(len(tables)), key=lambda i: (-ways[i][0].shard_load, i))

    def choices(index: int) -> Iterator[tuple[TableOption, Loads]]:
        for cost in ways[index]:
            yield cost.option, _even(cost)

    def soonest_done(index: int, occupancy: Occupancy) -> Sequence[int]:
        del index
        return occupancy.least_loaded()

    try:
        return place(problem, order, choices, soonest_done)
    except InfeasibleError:
        by_size = sorted(range(len(tables)), key=lambda i: (-tables[i].weight_bytes, i))
        return place_or_pack(problem, by_size, choices, soonest_done)


def _even(cost: OptionCost) -> Loads:
    def loads(sharding: TableSharding) -> list[float]:
        return [cost.shard_load] * len(sharding.shards)

    return loads


def _whole(problem: ShardingProblem, costs: Costs, table: EmbeddingTable) -> OptionCost:
    """Return the cost of a table on one rank; where that is not allowed, the cheapest option."""
    options = problem.options[table.name]
    whole = [o for o in options if o.sharding_type is ShardingType.TABLE_WISE]
    return min(
        (costs.cost(table, option) for option in whole or options),
        key=lambda cost: cost.total_load,
    )


def _ranked(
    problem: ShardingProblem,
    costs: Costs,
    table: EmbeddingTable,
    rule: Rule,
    balanced: Seconds,
) -> list[OptionCost]:
    """Order a table's options: the rule's choice first, then by what they cost in all."""
    whole = _whole(problem, costs, table)
    every = sorted(
        (costs.cost(table, option) for option in problem.options[table.name]),
        key=lambda cost: (cost.option != whole.option, cost.total_load),
    )
    replicas = [c for c in every if c.option.sharding_type is ShardingType.DATA_PARALLEL]
    sharded = [c for c in every if c.option.sharding_type is not ShardingType.DATA_PARALLEL]
    per_rank = whole.total_load / problem.topology.world_size
    if replicas and replicas[0].shard_load <= rule.replicate_below * per_rank:
        return [*replicas, *sharded]
    limit = rule.split_above * balanced
    small = [cost for cost in sharded if cost.shard_load <= limit]
    large = [cost for cost in sharded if cost.shard_load > limit]
    large.sort(key=lambda cost: cost.shard_load if small else cost.total_load)
    return [*small, *large, *replicas]
