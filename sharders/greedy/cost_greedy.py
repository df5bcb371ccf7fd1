"""Greedies that place by predicted time, and choose splits: a grid of rules, or rules tuned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from random import Random

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, TableSharding
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.tuning import NEUTRAL, REPLICATE_BELOW, SPLIT_ABOVE, TRIALS, Parameters, Tuning
from sharders.problem.first_fit import Loads, OutOfRoomError, least_loaded, place
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


class GreedyPlans:
    """Makes plans by rules (``engine.fill``), and times them."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.engine = Engine(problem, every_option=True)

    def step_time(self, rule: Parameters) -> Seconds:
        """Make a rule's plan, and return its step time, infinite if a table finds no room."""
        return self.engine.fill(rule)

    def choices(self) -> Choices:
        """Return the plan made last."""
        return self.engine.present()

    def plan(self, choices: Choices) -> ShardingPlan:
        """Return a plan made before."""
        return self.engine.plan_of(choices)


@dataclass(frozen=True, slots=True)
class CostGreedy:
    """Longest predicted time first, each table on the ranks that are done soonest.

    For every pair of thresholds (``SPLIT_ABOVE``, ``REPLICATE_BELOW``), tables get an option by the
    predicted cost of each one alone (``OptionCosts``): replicated if that is cheap, split into the
    cheapest option whose shards are small enough if they are large, whole otherwise. Placement is
    by longest processing time, within memory; the objective decides between the plans. Without
    splits and where memory never binds, balance is within 4/3 of the best of the separable costs
    (Graham, 1969). Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan of all rules, or of those within the budget."""
        del rng
        greedy, best, least, evaluated = GreedyPlans(problem), None, inf, 0
        for split, replicate in product(SPLIT_ABOVE, REPLICATE_BELOW):
            if best is not None and budget.spent(evaluated):
                return _result(problem, greedy.plan(best), SearchStatus.LIMIT, evaluated)
            rule = {**NEUTRAL, "split_above": split, "replicate_below": replicate}
            seconds = greedy.step_time(rule)
            if seconds == inf:
                continue
            evaluated += 1
            if seconds < least:
                best, least = greedy.choices(), seconds
            budget.report(Progress(evaluated=evaluated, best=least))
        if best is None:  # packed by size alone, or refused with the reason
            return _result(problem, _cheapest(problem), SearchStatus.CONVERGED, 1)
        return _result(problem, greedy.plan(best), SearchStatus.CONVERGED, evaluated)


@dataclass(frozen=True, slots=True)
class TunedGreedy:
    """``cost_greedy``, its thresholds and costs tuned by evolution strategies (``tuning``).

    Never worse than the plans known before, or else ``cost_greedy``. Deterministic for a seed.
    """

    trials: int = TRIALS

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan after all trials, or within the budget."""
        most = budget.max_evaluations
        half = replace(budget, max_evaluations=None if most is None else max(1, most // 2))
        start = problem.best_known() or CostGreedy().shard(problem, half, rng)
        if budget.spent(start.evaluated):
            return replace(start, status=SearchStatus.LIMIT)
        engine = Engine(problem, every_option=True)
        left = budget.max_evaluations

        def report(progress: Progress) -> None:
            if progress.best < start.step_time:
                evaluated = start.evaluated + progress.evaluated
                budget.report(Progress(evaluated=evaluated, best=progress.best))

        rest = replace(
            budget,
            max_evaluations=None if left is None else left - start.evaluated,
            report=report,
        )
        tuning = Tuning(engine, rest, rng, self.trials)
        found, evaluated = tuning.run(), start.evaluated + tuning.evaluated
        status = SearchStatus.LIMIT if budget.spent(evaluated) else SearchStatus.CONVERGED
        best = replace(start, evaluated=evaluated, status=status)
        if not found or found[0][0] >= best.step_time:
            return best
        plan = engine.plan_of(found[0][1])
        return replace(best, plan=plan, step_time=problem.objective.step_time(plan))


def _result(
    problem: ShardingProblem, plan: ShardingPlan, status: SearchStatus, evaluated: int
) -> SearchResult:
    step_time = problem.objective.step_time(plan)
    return SearchResult(plan=plan, step_time=step_time, status=status, evaluated=evaluated)


def _cheapest(problem: ShardingProblem) -> ShardingPlan:
    """Return a plan of the cheapest options in all, or of others if these do not fit.

    Raises
    ------
    InfeasibleError
        A table fits nowhere.

    """
    costs = problem.groundwork.costs
    candidates = [
        sorted(costs.all_of(table), key=lambda cost: cost.total_load)
        for table in problem.workload.tables
    ]
    return place_by_load(problem, candidates)


def place_by_load(
    problem: ShardingProblem, candidates: Sequence[Sequence[OptionCost]]
) -> ShardingPlan:
    """Return a plan of tables placed by longest processing time, by the first option that fits.

    If that fails for lack of memory, tables are placed once more by decreasing size; and if that
    fails, packed by size alone (``packing``).

    Raises
    ------
    InfeasibleError
        A table fits nowhere, in either order, and no packing is found.

    """
    tables = problem.workload.tables
    order = sorted(range(len(tables)), key=lambda i: (-candidates[i][0].shard_load, i))

    def choices(index: int) -> Iterator[tuple[TableOption, Loads]]:
        for cost in candidates[index]:
            yield cost.option, _even(cost)

    try:
        return place(problem.groundwork, order, choices, least_loaded)
    except OutOfRoomError:
        by_size = sorted(range(len(tables)), key=lambda i: (-tables[i].weight_bytes, i))
        return place_or_pack(problem, by_size, choices, least_loaded)


def _even(cost: OptionCost) -> Loads:
    """Return a function: the same load of every shard of an option."""

    def loads(sharding: TableSharding) -> list[float]:
        return [cost.shard_load] * len(sharding.shards)

    return loads
