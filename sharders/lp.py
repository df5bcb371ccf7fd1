"""Options by the linear program behind the bound, ranks by longest processing time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from costmodel.errors import InfeasibleError
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.units import Seconds
from sharders.cost_greedy import CostGreedy, place_by_load
from sharders.option_costs import OptionCost, OptionCosts
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem
from sharders.relaxed_step import Array, Choices, Mask, RelaxedStep, by_share

TYPES = (
    frozenset({
        ShardingType.DATA_PARALLEL,
        ShardingType.COLUMN_WISE,
        ShardingType.TABLE_ROW_WISE,
    }),
    frozenset({ShardingType.DATA_PARALLEL, ShardingType.COLUMN_WISE, ShardingType.ROW_WISE}),
)
"""Sets of types: with fewer of them, fewer collectives have to be balanced over the ranks. All at
once were best on none of ``bench.plan_quality``'s instances, and took five times as long."""
WIDTHS = (16, 1 << 30, 8, 32, 64)
"""Widest shards of tables split by columns: a rank's columns can be balanced the better, the
narrower they are. 8 and 16 are best at 856 tables on 64 and 788 on 128 GPUs, whole tables at 50 on
4, 100 on 8 and 400 on 16."""
WORSE = 1.05
"""A set of types whose plan takes so many times as long as another's of the same width is left out
for the others: at 856 tables on 64 and 788 on 128 GPUs one of the two is 8% and 6% behind."""
SECONDS_PER_OPTION: Seconds = 4.5e-5
"""Until there is a plan (x86 core, 2026: 0.55 s for 788 tables on 128 ranks, 11,990 options)."""
SPARE = 3
"""Options with the smallest shards, for want of room for those that the program chose."""


@dataclass(frozen=True, slots=True)
class Lp:
    """The program's options for all tables at once, placed within memory, timed exactly.

    The program (``relaxed_step``) knows the whole step, but takes every rank for the mean one. It
    is solved for several sets of sharding types and widths of column shards, as what balances well
    is another matter. Never worse than the plans known before, or else the first of
    ``cost_greedy``. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Solve and place until all sets are tried, or the budget is spent."""
        best = _start(problem, budget, rng)
        needed = self.needed_time(problem, compiled=False)
        if budget.spent(best.evaluated) or budget.time_left() < needed:
            return best
        choices, costs = Choices.of(problem, frozenset().union(*TYPES)), OptionCosts(problem)
        seen: set[ShardingPlan] = set()
        programs, took = _programs(choices), 0.0
        for width in WIDTHS:
            times = []
            for program in programs:
                left = budget.time_left()
                if budget.spent(best.evaluated) or left < took:
                    return replace(best, status=SearchStatus.LIMIT)
                plan = _placed(choices, costs, program.shares(_narrow(choices, width)))
                times.append(float("inf") if plan is None else problem.objective.step_time(plan))
                if plan is not None and plan not in seen:
                    seen.add(plan)
                    best = _better(best, plan, times[-1])
                    budget.report(Progress(evaluated=best.evaluated, best=best.step_time))
                took = left - budget.time_left()
            kept = zip(programs, times, strict=True)
            programs = [program for program, time in kept if time <= WORSE * min(times)]
        return replace(best, status=SearchStatus.CONVERGED)

    def needed_time(self, problem: ShardingProblem, *, compiled: bool) -> Seconds:
        """Return about how long the first plan takes."""
        del compiled
        return SECONDS_PER_OPTION * problem.num_options


def _start(problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
    first = replace(budget, max_evaluations=1)
    return problem.best_known() or CostGreedy().shard(problem, first, rng)


def _better(best: SearchResult, plan: ShardingPlan, step_time: Seconds) -> SearchResult:
    best = replace(best, evaluated=best.evaluated + 1)
    return replace(best, plan=plan, step_time=step_time) if step_time < best.step_time else best


def _programs(choices: Choices) -> list[RelaxedStep]:
    """Return a program for every set of types."""
    return [RelaxedStep(choices, choices.some(np.isin(choices.types, list(t)))) for t in TYPES]


def _narrow(choices: Choices, most: int) -> Mask:
    splits = np.isin(choices.types, [kind for kind in ShardingType if kind.splits_columns])
    narrow: Mask = ~splits | (choices.width <= most)
    return narrow


def _placed(choices: Choices, costs: OptionCosts, shares: Array | None) -> ShardingPlan | None:
    if shares is None:
        return None
    problem = choices.problem
    ways = []
    for table, ranked in zip(problem.workload.tables, by_share(choices, shares), strict=True):
        chosen = [choices.options[number] for number in ranked]
        small = sorted(problem.options[table.name], key=lambda o: -o.num_shards(problem.topology))
        ways.append(costs.some(table, (*chosen, *small[:SPARE])))
    return _place(problem, ways)


def _place(problem: ShardingProblem, ways: Sequence[Sequence[OptionCost]]) -> ShardingPlan | None:
    try:
        return place_by_load(problem, ways)
    except InfeasibleError:
        return None
