"""The linear program behind the bound as a sharder: it chooses options; a greedy places them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from costmodel.base.arrays import Array, Mask
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType
from sharders.greedy.cost_greedy import CostGreedy, place_by_load
from sharders.lp.offered_program import LpOptions, OfferedProgram, by_share
from sharders.problem.first_fit import OutOfRoomError
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

_ALWAYS = frozenset({ShardingType.DATA_PARALLEL, ShardingType.COLUMN_WISE})
_ON_NODES = frozenset(kind for kind in ShardingType if kind.within_node)
TYPES = (
    _ALWAYS | _ON_NODES,
    _ALWAYS | _ON_NODES | {ShardingType.TABLE_COLUMN_WISE},
    _ALWAYS | {ShardingType.ROW_WISE},
    _ALWAYS | {ShardingType.TABLE_ROW_WISE},
)
"""Sets of sharding types that are tried: with fewer types, fewer collectives have to be
balanced."""
FINENESS = ((inf, 0.02), (inf, 0.05), (16.0, inf), (inf, inf))
"""Limits that are tried: most columns of a shard, and most of the mean rank's load in one of
column-wise sharding. Finer shards balance ranks better, coarser ones cost less in all."""
WORSE = 1.025
"""A set of types whose value is above another's by this factor is tried no further."""
MANY_NODES = 2
"""Number of nodes up to which whole tables are tried first."""
NEAR = 1.1
"""Plans that take at most this multiple of the best one are worth annealing."""
SPARE = 3
"""Number of options with the smallest shards that replace the program's if there is no room."""


@dataclass(frozen=True, slots=True)
class Lp:
    """The program's options for all tables at once, placed within memory, timed exactly.

    The program (``offered_program``) knows the whole step, but lookups of the mean rank only. It is
    solved for several sets of sharding types, and for shards that are fine or need not be, as
    what balances well is another matter; but no more for a set that has far worse values than
    another. Never worse than the plans known before, or else the first of ``cost_greedy``. Ignores
    the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan of all sets, or of those within the budget."""
        tried = _Tried(problem, budget, _start(problem, budget, rng))
        if tried.spent():
            return tried.first
        choices = LpOptions.of(problem, frozenset().union(*TYPES))
        programs, spare, took, begun = _programs(choices), _spare(problem), 0.0, False
        for fineness in _finenesses(problem):
            fine, best = _fine(choices, *fineness), inf
            for program in tuple(programs):
                left, spent = budget.time_left(), tried.spent()
                if begun and (spent or left < took):
                    return tried.result(SearchStatus.LIMIT)
                begun = True  # what has been written so far would be lost
                solved = program.solve(fine)
                if solved is None:
                    continue
                best = min(best, solved.value)
                if solved.value > WORSE * best:
                    programs.remove(program)
                    continue
                tried.add(placed(choices, solved.shares, spare))
                took = left - budget.time_left()
        return tried.result(SearchStatus.CONVERGED)


def _start(problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
    """Return the best known plan as a result, or else that of a greedy."""
    first = replace(budget, max_evaluations=1)
    return problem.best_known() or CostGreedy().shard(problem, first, rng)


@dataclass(frozen=True, slots=True)
class _Tried:
    """Plans of a search with their step times, and the result it began with."""

    problem: ShardingProblem
    budget: Budget
    first: SearchResult
    found: list[tuple[Seconds, ShardingPlan]] = field(default_factory=list)

    def spent(self) -> bool:
        return self.budget.spent(self._evaluated())

    def add(self, plan: ShardingPlan | None) -> None:
        """Time a plan, if there is one, and keep it."""
        if plan is None:
            return
        time = self.problem.objective.step_time(plan)
        if not any(time == other and plan == each for other, each in self.found):
            self.found.append((time, plan))
            self.budget.report(Progress(evaluated=self._evaluated(), best=self.best[0]))

    def result(self, status: SearchStatus) -> SearchResult:
        """Return the best plan, and others that are not much worse."""
        step_time, best = self.best
        near = [plan for time, plan in self.found if time <= NEAR * step_time]
        return SearchResult(
            plan=best,
            step_time=step_time,
            status=status,
            evaluated=self._evaluated(),
            others=tuple(plan for plan in near if plan is not best),
        )

    @property
    def best(self) -> tuple[Seconds, ShardingPlan]:
        """The best plan, after its step time."""
        first = self.first.step_time, self.first.plan
        return min([first, *self.found], key=lambda pair: pair[0])

    def _evaluated(self) -> int:
        return self.first.evaluated + len(self.found)


def _programs(choices: LpOptions) -> list[OfferedProgram]:
    """Return a program for every set of types."""
    return [OfferedProgram(choices, choices.some(choices.of_types(t))) for t in TYPES]


def _finenesses(problem: ShardingProblem) -> Sequence[tuple[float, float]]:
    """Return the limits to try, the most promising first."""
    if problem.topology.num_nodes > MANY_NODES:
        return FINENESS
    return *FINENESS[-1:], *FINENESS[:-1]


def _fine(choices: LpOptions, columns: float, load: float) -> Mask:
    """Return the options whose shards have at most so many columns and so much load."""
    splits = choices.of_types([kind for kind in ShardingType if kind.splits_columns])
    fine: Mask = ~splits | (choices.width <= columns)
    if load < inf:
        arrays = choices.problem.groundwork.arrays
        light = arrays.shard_load[choices.numbers] <= load * arrays.balanced_load
        fine &= light | ~choices.of_types([ShardingType.COLUMN_WISE])
    return fine


def _spare(problem: ShardingProblem) -> list[list[TableOption]]:
    return [_smallest(problem, options) for options in problem.options.values()]


def _smallest(problem: ShardingProblem, options: Sequence[TableOption]) -> list[TableOption]:
    """Return the few of a table's options with the smallest shards."""

    def size(option: TableOption) -> float:
        return 1 / option.num_shards(problem.topology)

    return sorted(options, key=size)[:SPARE]


def placed(
    choices: LpOptions, shares: Array, spare: Sequence[Sequence[TableOption]]
) -> ShardingPlan | None:
    """Return a plan of options that have shares, or of spare ones; None: there is no room."""
    tables, candidates = choices.problem.workload.tables, []
    for table, ranked, small in zip(tables, by_share(choices, shares), spare, strict=True):
        chosen = [choices.options[number] for number in ranked]
        candidates.append(choices.problem.groundwork.costs.some(table, (*chosen, *small)))
    try:
        return place_by_load(choices.problem, candidates)
    except (InfeasibleError, OutOfRoomError):
        return None
