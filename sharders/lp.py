"""Options by the linear program behind the bound, ranks by longest processing time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from random import Random

import numpy as np

from costmodel.errors import InfeasibleError
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.units import Seconds
from sharders.cost_greedy import CostGreedy, place_by_load
from sharders.option_costs import OptionCost, OptionCosts
from sharders.options import TableOption
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem
from sharders.relaxed_step import Array, Choices, Mask, RelaxedStep, by_share

_ALWAYS = frozenset({ShardingType.DATA_PARALLEL, ShardingType.COLUMN_WISE})
TYPES = (
    _ALWAYS | {ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD},
    _ALWAYS | {ShardingType.ROW_WISE},
    _ALWAYS | {ShardingType.TABLE_ROW_WISE},
    _ALWAYS
    | {
        ShardingType.TABLE_ROW_WISE,
        ShardingType.GRID_SHARD,
        ShardingType.TABLE_COLUMN_WISE,
    },
)
"""Sets of types: with fewer of them, fewer collectives have to be balanced over the ranks. All at
once were best on none of ``bench.plan_quality``'s instances, and took five times as long."""
FINENESS = ((16.0, inf), (inf, 0.02), (inf, inf))
"""Most columns of a shard, and most of the mean rank's load in one of column-wise sharding: ranks
are balanced the better, the finer shards are, and the coarser, the less they cost in all. 16
columns are best at once at 856 tables on 64 and 788 on 128 GPUs, 2% of the load at 400 on 16, and
whole tables at 50 on 4 and 100 on 8; annealing may end lower from any of them."""
MANY_NODES = 2
"""From which on fine shards are tried first."""
WORSE = 1.015
"""A set of types whose plan takes so many times as long as another's as fine is tried no further:
without grids 1.9% are lost so at 856 tables on 64 GPUs and 4.8% at 788 on 128, and no plan that
ends first."""
NEAR = 1.1
"""Plans that take at most so many times as long as the best one are worth annealing: at 856 tables
on 64 GPUs one 8% behind the best ended 0.6% before it."""
SECONDS_PER_OPTION: Seconds = 4.5e-5
"""Until there is a plan (x86 core, 2026: 0.55 s for 788 tables on 128 ranks, 11,990 options)."""
SPARE = 3
"""Options with the smallest shards, for want of room for those that the program chose."""


@dataclass(frozen=True, slots=True)
class Lp:
    """The program's options for all tables at once, placed within memory, timed exactly.

    The program (``relaxed_step``) knows the whole step, but takes every rank for the mean one. It
    is solved for several sets of sharding types, and for shards that are fine or need not be, as
    what balances well is another matter. Never worse than the plans known before, or else the first
    of ``cost_greedy``. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Solve and place until all sets are tried, or the budget is spent."""
        tried = _Tried(problem, budget, _start(problem, budget, rng))
        if tried.spent() or budget.time_left() < self.needed_time(problem, compiled=False):
            return tried.first
        choices, costs = Choices.of(problem, frozenset().union(*TYPES)), OptionCosts(problem)
        best, took = dict.fromkeys(_finenesses(problem), inf), 0.0
        fine, spare = cache(partial(_fine, choices, costs)), _spare(problem)
        for program in _programs(choices):
            for fineness in best:
                left = budget.time_left()
                if tried.spent() or left < took:
                    return tried.result(SearchStatus.LIMIT)
                plan = _placed(choices, costs, program.shares(fine(*fineness)), spare)
                time = tried.time_of(plan)
                took = left - budget.time_left()
                best[fineness] = min(best[fineness], time)
                if WORSE * best[fineness] < time < inf:
                    break
        return tried.result(SearchStatus.CONVERGED)

    def needed_time(self, problem: ShardingProblem, *, compiled: bool) -> Seconds:
        """Return about how long the first plan takes."""
        del compiled
        return SECONDS_PER_OPTION * problem.num_options


def _start(problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
    first = replace(budget, max_evaluations=1)
    return problem.best_known() or CostGreedy().shard(problem, first, rng)


@dataclass(frozen=True, slots=True)
class _Tried:
    """The plans of a search and their step times, and the result it began with."""

    problem: ShardingProblem
    budget: Budget
    first: SearchResult
    found: list[tuple[Seconds, ShardingPlan]] = field(default_factory=list)

    def spent(self) -> bool:
        return self.budget.spent(self._evaluated())

    def time_of(self, plan: ShardingPlan | None) -> Seconds:
        """Return a plan's step time, and keep both; infinite if there is none."""
        if plan is None:
            return inf
        time = self.problem.objective.step_time(plan)
        if not any(time == other and plan == each for other, each in self.found):
            self.found.append((time, plan))
            self.budget.report(Progress(evaluated=self._evaluated(), best=self._best()[0]))
        return time

    def result(self, status: SearchStatus) -> SearchResult:
        """Return the best plan, and others that are not much worse."""
        step_time, best = self._best()
        near = [plan for time, plan in self.found if time <= NEAR * step_time]
        return SearchResult(
            plan=best,
            step_time=step_time,
            status=status,
            evaluated=self._evaluated(),
            others=tuple(plan for plan in near if plan is not best),
        )

    def _best(self) -> tuple[Seconds, ShardingPlan]:
        first = self.first.step_time, self.first.plan
        return min([first, *self.found], key=lambda pair: pair[0])

    def _evaluated(self) -> int:
        return self.first.evaluated + len(self.found)


def _programs(choices: Choices) -> list[RelaxedStep]:
    """Return a program for every set of types."""
    return [RelaxedStep(choices, choices.some(np.isin(choices.types, list(t)))) for t in TYPES]


def _finenesses(problem: ShardingProblem) -> Sequence[tuple[float, float]]:
    """Return what is to be tried, the most promising first."""
    return FINENESS if problem.topology.num_nodes > MANY_NODES else FINENESS[::-1]


def _fine(choices: Choices, costs: OptionCosts, columns: float, load: float) -> Mask:
    """Return the options whose shards are no wider, and no more of the mean rank's load."""
    splits = np.isin(choices.types, [kind for kind in ShardingType if kind.splits_columns])
    fine: Mask = ~splits | (choices.width <= columns)
    if load < inf:
        tables, most = choices.problem.workload.tables, load * costs.balanced_load
        for number in np.flatnonzero(fine & (choices.types == ShardingType.COLUMN_WISE)):
            cost = costs.cost(tables[choices.table[number]], choices.options[number])
            fine[number] = cost.shard_load <= most
    return fine


def _spare(problem: ShardingProblem) -> list[list[TableOption]]:
    """Return of every table the options with the smallest shards."""

    def size(option: TableOption) -> float:
        return 1 / option.num_shards(problem.topology)

    return [sorted(options, key=size)[:SPARE] for options in problem.options.values()]


def _placed(
    choices: Choices,
    costs: OptionCosts,
    shares: Array | None,
    spare: Sequence[Sequence[TableOption]],
) -> ShardingPlan | None:
    """Place every table by the options that have shares of it, or by those to spare."""
    if shares is None:
        return None
    tables, ways = choices.problem.workload.tables, []
    for table, ranked, small in zip(tables, by_share(choices, shares), spare, strict=True):
        chosen = [choices.options[number] for number in ranked]
        ways.append(costs.some(table, (*chosen, *small)))
    return _place(choices.problem, ways)


def _place(problem: ShardingProblem, ways: Sequence[Sequence[OptionCost]]) -> ShardingPlan | None:
    try:
        return place_by_load(problem, ways)
    except InfeasibleError:
        return None
