"""The greedy of ``cost_greedy``, its thresholds and costs tuned by a small evolution strategy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from costmodel.errors import InfeasibleError
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.units import Seconds
from costmodel.workload import EmbeddingTable
from sharders.cost_greedy import Rule, rule_plan
from sharders.option_costs import OptionCost, OptionCosts
from sharders.options import TableOption
from sharders.placement import option_bytes
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem
from sharders.starts import starting_plans

Parameters = Mapping[str, float]
RANGES: Mapping[str, tuple[float, float]] = {
    "split_above": (0.02, 4.0),
    "replicate_below": (0.0, 4.0),
    "memory": (0.0, 1.0),
    **{f"weight {kind.value}": (-1.5, 1.5) for kind in ShardingType},
}
"""Thresholds (``cost_greedy.Rule``), the weight of memory, and the logarithms of what the costs of
every sharding type are multiplied by."""
NEUTRAL: Parameters = {
    **dict.fromkeys(RANGES, 0.0),
    "split_above": 0.5,
    "replicate_below": 1.0,
}
PATIENCE = 100
"""Trials without a faster plan before giving up."""
SECONDS_PER_OPTION: Seconds = 7e-5
"""What a trial takes (x86 core, 2026: 0.8 s for 856 tables on 64 ranks, 12,393 options)."""
FIRST_STEP, LAST_STEP = 0.3, 0.02
"""Standard deviations of a change, as shares of a parameter's range."""
GROW = 1.5
"""Of the step after a success; after a failure it shrinks by the fourth root, so that it settles
where one trial in five succeeds (Rechenberg's rule)."""


@dataclass(frozen=True, slots=True)
class TunedGreedy:
    """Tunes ``cost_greedy`` by a (1+1) evolution strategy (Rechenberg, 1973).

    Every trial changes some of the parameters of ``RANGES`` by a normal step, makes a plan by
    ``rule_plan``, and is the next one's parent if its plan is at least as fast. Never
    worse than the plans known before, or else ``cost_greedy``. Deterministic for a seed.
    """

    patience: int = PATIENCE

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Run trials until ``patience`` ends, or the budget is spent."""
        most = budget.max_evaluations
        greedy = replace(budget, max_evaluations=None if most is None else max(1, most // 2))
        starts, evaluated = starting_plans(problem, greedy, rng)
        best = SearchResult(
            plan=starts[0][1], step_time=starts[0][0], status=SearchStatus.CONVERGED
        )
        costs, first = OptionCosts(problem), evaluated
        chain, quiet = Chain(NEUTRAL, float("inf")), 0
        if not any(len(options) > 1 for options in problem.options.values()):
            quiet = self.patience  # the weights would choose between equals
        while quiet < self.patience and not budget.spent(evaluated):
            child = NEUTRAL if evaluated == first else chain.child(rng)
            plan, step_time = _tried(problem, costs, child)
            evaluated += 1
            chain.tell(child, step_time)
            quiet += 1
            if plan is not None and step_time < best.step_time:
                best, quiet = replace(best, plan=plan, step_time=step_time), 0
                budget.report(Progress(evaluated=evaluated, best=step_time))
        limit = budget.spent(evaluated)
        status = SearchStatus.LIMIT if limit else SearchStatus.CONVERGED
        return replace(best, status=status, evaluated=evaluated)

    def needed_time(self, problem: ShardingProblem, *, compiled: bool) -> Seconds:
        """Return about how long the first trial takes."""
        del compiled
        return SECONDS_PER_OPTION * problem.num_options


@dataclass(slots=True)
class Chain:
    """An evolution strategy with one parent and one child."""

    parent: Parameters
    time: Seconds
    """Of the parent's plan."""
    step: float = FIRST_STEP

    def child(self, rng: Random, instead: Parameters | None = None) -> Parameters:
        """Return a change of the parent, or of other parameters instead."""
        return _changed(self.parent if instead is None else instead, self.step, rng)

    def tell(self, child: Parameters, step_time: Seconds) -> None:
        """Let a child be the next parent if its plan is at least as fast."""
        success = step_time <= self.time
        grown = self.step * (GROW if success else GROW**-0.25)
        self.step = max(LAST_STEP, min(FIRST_STEP, grown))
        if success:
            self.parent, self.time = child, step_time


def drawn(rng: Random) -> Parameters:
    """Draw parameters, each anywhere in its range."""
    return {
        name: exp(rng.uniform(log(low), log(high)))
        if name == "split_above"
        else rng.uniform(low, high)
        for name, (low, high) in RANGES.items()
    }


def _tried(
    problem: ShardingProblem, costs: OptionCosts, parameters: Parameters
) -> tuple[ShardingPlan | None, Seconds]:
    try:
        plan = tuned_plan(problem, costs, parameters)
    except InfeasibleError:
        return None, float("inf")
    return plan, problem.objective.step_time(plan)


def _changed(parent: Parameters, step: float, rng: Random) -> dict[str, float]:
    """Change each parameter with a probability of one half, within its range."""
    child = dict(parent)
    for name, (low, high) in RANGES.items():
        if rng.random() < 0.5:
            continue
        if name == "split_above":
            moved = log(parent[name]) + rng.gauss(0.0, step) * log(high / low)
            child[name] = min(high, max(low, exp(moved)))
        else:
            moved = parent[name] + rng.gauss(0.0, step) * (high - low)
            child[name] = min(high, max(low, moved))
    return child


def tuned_plan(
    problem: ShardingProblem, costs: OptionCosts, parameters: Parameters
) -> ShardingPlan:
    """Return the plan of ``rule_plan`` with its costs weighted.

    Raises
    ------
    InfeasibleError
        The greedy finds no room for some table.

    """
    rule = Rule(parameters["split_above"], parameters["replicate_below"])
    return rule_plan(problem, WeightedCosts(problem, costs, parameters), rule)


@dataclass(frozen=True)
class WeightedCosts:
    """Costs of options, scaled by sharding type, with a share of memory in them.

    A table's share of all memory counts as the same share of all load, times a weight.
    """

    problem: ShardingProblem
    costs: OptionCosts
    parameters: Parameters

    def cost(self, table: EmbeddingTable, option: TableOption) -> OptionCost:
        """Return the weighted cost of one option of one table."""
        cost = self.costs.cost(table, option)
        weight = exp(self.parameters[f"weight {option.sharding_type.value}"])
        sizes = option_bytes(self.problem, table, option)
        share = float(sizes[0].total) / self.problem.capacity  # no shard is larger than the first
        extra = self.parameters["memory"] * share * self.costs.balanced_load
        return OptionCost(
            option=option,
            shard_load=weight * cost.shard_load + extra,
            total_load=weight * cost.total_load + extra * len(sizes),
        )
