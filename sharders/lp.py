"""Options by the linear program behind the bound, ranks by longest processing time."""

from collections.abc import Iterator, Sequence
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
    frozenset(ShardingType),
)
"""Sets of types: with fewer of them, fewer collectives have to be balanced over the ranks."""
WIDTHS = (16, 8, 1 << 30, 32, 64)
"""Widest shards of tables split by columns: a rank's columns can be balanced the better, the
narrower they are. The first two are best at 856 tables on 64 and 788 on 128 GPUs, any at 400 on 16
(``bench.plan_quality``'s instances)."""
SECONDS_PER_OPTION: Seconds = 1e-4
"""Until there is a plan (x86 core, 2026: 1.2 s for 788 tables on 128 ranks, 11,990 options). With
less time left, nothing is begun."""
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
        if budget.spent(best.evaluated) or budget.time_left() < _needed(problem):
            return replace(best, status=SearchStatus.LIMIT)
        choices, costs = Choices.of(problem), OptionCosts(problem)
        seen: set[ShardingPlan] = set()
        for shares in _solutions(choices):
            if budget.spent(best.evaluated):
                return replace(best, status=SearchStatus.LIMIT)
            plan = None if shares is None else _placed(choices, costs, shares)
            if plan is None or plan in seen:
                continue
            seen.add(plan)
            step_time = problem.objective.step_time(plan)
            best = _better(best, plan, step_time)
            budget.report(Progress(evaluated=best.evaluated, best=best.step_time))
        return best


def _needed(problem: ShardingProblem) -> Seconds:
    """Return about how long the first plan takes."""
    return SECONDS_PER_OPTION * sum(map(len, problem.options.values()))


def _start(problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
    known = problem.known_times()
    if not known:
        return CostGreedy().shard(problem, replace(budget, max_evaluations=1), rng)
    step_time, plan = min(known, key=lambda pair: pair[0])
    return SearchResult(
        plan=plan, step_time=step_time, status=SearchStatus.CONVERGED, evaluated=len(known)
    )


def _better(best: SearchResult, plan: ShardingPlan, step_time: Seconds) -> SearchResult:
    best = replace(best, evaluated=best.evaluated + 1, status=SearchStatus.CONVERGED)
    return replace(best, plan=plan, step_time=step_time) if step_time < best.step_time else best


def _solutions(choices: Choices) -> Iterator[Array | None]:
    """Yield shares of options for every set of types and width; None where nothing fits."""
    types = np.array([option.sharding_type for option in choices.options])
    for some in TYPES:
        offered = choices.some(np.isin(types, list(some)))
        program = RelaxedStep(choices, offered)
        for width in WIDTHS:
            yield program.shares(_narrow(choices, types, width))


def _narrow(
    choices: Choices, types: "np.ndarray[tuple[int], np.dtype[np.str_]]", most: int
) -> Mask:
    splits = np.isin(types, [kind for kind in ShardingType if kind.splits_columns])
    narrow: Mask = ~splits | (choices.width <= most)
    return narrow


def _placed(choices: Choices, costs: OptionCosts, shares: Array) -> ShardingPlan | None:
    problem = choices.problem
    ways = []
    for table, ranked in zip(problem.workload.tables, by_share(choices, shares), strict=True):
        chosen = [choices.options[number] for number in ranked]
        small = sorted(problem.options[table.name], key=lambda o: -o.num_shards(problem.topology))
        ways.append([costs.cost(table, option) for option in (*chosen, *small[:SPARE])])
    return _place(problem, ways)


def _place(problem: ShardingProblem, ways: Sequence[Sequence[OptionCost]]) -> ShardingPlan | None:
    try:
        return place_by_load(problem, ways)
    except InfeasibleError:
        return None
