"""The annealing sharder: cold annealing over all decisions at once, under the step objective."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from math import inf
from random import Random

from costmodel.domain.plan import ShardingPlan
from sharders.annealing.polish import Polisher
from sharders.annealing.schedule import MIN_GAIN, AnnealingSearch
from sharders.engine.problem_arrays import offered
from sharders.engine.search_engine import Engine
from sharders.greedy.few_types import is_small, plans_of_few_types
from sharders.greedy.one_pass import SizeGreedy
from sharders.problem.packing import packed
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

MAX_DIFFERENT = 6
"""Number of best plans of sets of types from which small problems are descended."""
MAX_FRUITLESS = 3
"""Number of fruitless searches in a row, each begun anew, after which all ends."""


@dataclass(frozen=True, slots=True)
class Annealing:
    """Local search from the best greedy plans, a little downhill, all moves timed exactly.

    Moves are a column block to another rank, two tables swapped, another sharding type, split or
    kernel; each is timed and made if it improves the plan, or else with the probability exp(-loss /
    temperature) (Metropolis). Runs start from plans known before and from those of linear programs
    and greedy rules, and stay within a set of sharding types each (``type_sets``); the better
    a set's plans, the longer its runs (``schedule``). Small problems are descended in at the end
    (``polish``), from these plans and from those of few sharding types and kernels. No guarantee,
    but never worse than the plans it starts from, nor than itself with the same seed and less time.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan when nothing better is found for a while, or the budget is spent."""
        annealed, different = anneal(problem, budget, rng)
        if not is_small(problem):
            in_time = takewhile(lambda _: budget.time_left() > 0, different)
            return _with_others(annealed, in_time)
        others = tuple(different)
        found = dict.fromkeys([annealed.plan, *others, *problem.known])  # each of them once
        plans = chain(found, plans_of_few_types(problem))
        return _with_others(_polished(plans, annealed, problem, budget), others)


def anneal(
    problem: ShardingProblem, budget: Budget, rng: Random
) -> tuple[SearchResult, Iterator[ShardingPlan]]:
    """Return the best plan found from known and greedy ones, and plans of other sets.

    Where the first rules find no room and no plan is known, tables are packed first.

    Raises
    ------
    InfeasibleError
        None of all these finds a plan.

    """
    known = problem.known_times()
    engine = Engine(problem, offered(problem, problem.known))
    search = AnnealingSearch(engine, budget, rng)
    if not known and not search.sets.rules_fit() and (plan := packed(problem.groundwork)):
        if not engine.arrays.has(plan):
            engine = Engine(problem, [plan])
            search = AnnealingSearch(engine, budget, rng)
        step_time = engine.start(engine.choices_of(plan))
        known = [(step_time, plan)]
        budget.report(Progress(evaluated=1, best=step_time))
    if not known or not search.spent():
        search.run(known)
    if search.best[0] == inf and not known:
        placed = SizeGreedy().shard(problem, Budget(), rng)
        known = [(placed.step_time, placed.plan)]
    search, last = _searched_again(search)
    ours = [(search.best[0], engine.plan_of(search.best[1]))] if search.best[0] < inf else []
    best = min([*known, *ours], key=lambda found: found[0])
    result = SearchResult(
        plan=best[1],
        step_time=problem.objective.step_time(best[1]),
        status=SearchStatus.LIMIT if last.spent() else SearchStatus.CONVERGED,
        evaluated=last.evaluated,
    )
    fit = [each for each in search.contenders if each.fits]
    different = [each.choices for each in fit[:MAX_DIFFERENT]]
    return result, map(engine.plan_of, different)


def _searched_again(first: AnnealingSearch) -> tuple[AnnealingSearch, AnnealingSearch]:
    """Search from the beginning until several searches gain nothing.

    Return the search that found the best plan, and the last one. The first plans of a search often
    decide in which structure it ends, and no run leaves that.
    """
    best = last = first
    fruitless = 0
    while best.contenders and fruitless < MAX_FRUITLESS and not last.spent():
        last = AnnealingSearch(first.engine, first.budget, first.rng, last.evaluated)
        last.run(())
        has_gained = last.best[0] < best.best[0] * (1 - MIN_GAIN)
        fruitless = 0 if has_gained else fruitless + 1
        best = min(best, last, key=lambda search: search.best[0])
    return best, last


def _with_others(best: SearchResult, plans: Iterable[ShardingPlan]) -> SearchResult:
    """Return a result with the best plans of other sets of sharding types as its others."""
    return replace(best, others=tuple(plan for plan in plans if plan != best.plan))


def _polished(
    plans: Iterable[ShardingPlan], best: SearchResult, problem: ShardingProblem, budget: Budget
) -> SearchResult:
    """Return the best result of descents from some plans, by changes of one and two tables."""
    polisher = Polisher(problem, budget, best.evaluated)
    for end, step_time in polisher.descend_from(plans):
        if step_time < best.step_time:
            best = replace(best, plan=end, step_time=step_time)
            budget.report(Progress(evaluated=polisher.evaluated, best=step_time))
    spent = budget.spent(polisher.evaluated)
    status = SearchStatus.LIMIT if spent else best.status
    return replace(best, evaluated=polisher.evaluated, status=status)
