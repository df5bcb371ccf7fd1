"""Cold annealing over all decisions at once, under the objective itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, log
from random import Random

from costmodel.objective import Objective
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.units import Seconds
from sharders.few_types import is_small, plans_of_few_types
from sharders.moves import Proposer
from sharders.option_costs import OptionCosts
from sharders.polish import Polisher
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem
from sharders.search_state import IMPROVED, Move, SearchState
from sharders.starts import starting_plans

CANDIDATES = 48
"""Moves timed together; more would not fit in the cache at 64 ranks."""
PATIENCE = 60
"""Rounds without a better plan after which a burst ends: `PATIENCE` times the candidates is some
3,000 plans."""
TOGETHER = 8
"""Moves tried together in a round."""
BEST_STARTS = 3
"""Plans to start from. Which sharding types are in use changes slowly, so no two of them have the
same."""
HOT, COLD = 3e-3, 1e-5
"""Temperatures at the first and the last rounds, as shares of the step time. Hotter ones split
tables that are better left whole, and do not find back."""
COOLING_ROUNDS = 150
LOADING_TIME: Seconds = 0.1
SECONDS_PER_OPTION: Seconds = 4e-5
"""What it takes to load compiled code, and to write a problem for it (x86 core, 2026: 0.4 s for 788
tables on 128 ranks, 11,990 options)."""


@dataclass(frozen=True, slots=True)
class Annealing:
    """Local search from the best greedy plans, a little downhill, all moves timed exactly.

    Every round draws moves (a column block to another rank, two tables swapped, another sharding
    type, split or kernel), times the plan after each of them, and makes the best of them that
    together still improve; where none improves, the least bad one is made with the probability
    exp(-loss / temperature). Bursts start from the best greedy plans that differ in their sharding
    types, and last from the best of all. Small problems are descended in at the end (``polish``),
    from these plans and from those of few sharding types and kernels. No guarantee, but never
    worse than the plans it starts from. Where the budget allows compiled code, ``sharders.native``
    does the same one move at a time, some ten times as fast.
    """

    candidates: int = CANDIDATES
    patience: int = PATIENCE

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Anneal until nothing better is found for a while, or the budget is spent."""
        needed = self.needed_time(problem, compiled=True)
        if budget.time_left() >= needed and budget.compiled():
            from sharders.native.bursts import anneal

            annealed, different = anneal(problem, budget, rng)
        else:
            starts, evaluated = starting_plans(problem, budget, rng)
            chosen = _different(starts)[:BEST_STARTS]
            annealed = self._annealed(chosen, problem, budget, rng, (starts[0], evaluated))
            different = iter(chosen)
        if not is_small(problem):
            return annealed
        found = dict.fromkeys([annealed.plan, *different, *problem.known])  # each of them once
        plans = chain(found, plans_of_few_types(problem))
        return _polished(plans, annealed, problem, budget)

    def needed_time(self, problem: ShardingProblem, *, compiled: bool) -> Seconds:
        """Return about how long it takes until the first plan is annealed."""
        loading = LOADING_TIME if compiled else 0.0
        return loading + SECONDS_PER_OPTION * problem.num_options

    def _annealed(
        self,
        starts: Sequence[ShardingPlan],
        problem: ShardingProblem,
        budget: Budget,
        rng: Random,
        known: tuple[tuple[Seconds, ShardingPlan], int],
    ) -> SearchResult:
        """Anneal from some plans, given the best one known and how many were timed for it."""
        search = _Search(self, problem, budget, rng, *known)
        for number, plan in enumerate(starts):
            search.burst(plan, share=1 / (len(starts) + 1 - number))
        search.burst(search.best[1], share=1.0)
        status = SearchStatus.LIMIT if search.spent() else SearchStatus.CONVERGED
        return SearchResult(
            plan=search.best[1],
            step_time=problem.objective.step_time(search.best[1]),
            status=status,
            evaluated=search.evaluated,
        )


def _polished(
    plans: Iterable[ShardingPlan], best: SearchResult, problem: ShardingProblem, budget: Budget
) -> SearchResult:
    """Descend from some plans by changes of one table and of two, while the budget lasts."""
    polisher = Polisher(problem, budget, best.evaluated)
    for end, step_time in polisher.descend_from(plans):
        if step_time < best.step_time:
            best = replace(best, plan=end, step_time=step_time)
            budget.report(Progress(evaluated=polisher.evaluated, best=step_time))
    spent = budget.spent(polisher.evaluated)
    status = SearchStatus.LIMIT if spent else best.status
    return replace(best, evaluated=polisher.evaluated, status=status)


def _different(starts: Sequence[tuple[Seconds, ShardingPlan]]) -> list[ShardingPlan]:
    """Return the best plan of every set of sharding types, best first."""
    best: dict[frozenset[ShardingType], ShardingPlan] = {}
    for _, plan in starts:
        best.setdefault(frozenset(table.sharding_type for table in plan.tables), plan)
    return list(best.values())


class _Search:
    """The bursts of one search, and the best plan of all of them."""

    def __init__(
        self,
        settings: Annealing,
        problem: ShardingProblem,
        budget: Budget,
        rng: Random,
        best: tuple[Seconds, ShardingPlan],
        evaluated: int,
    ) -> None:
        self.settings, self.budget, self.rng, self.best = settings, budget, rng, best
        objective = problem.objective
        if not isinstance(objective, Objective):
            objective = Objective(problem.workload, problem.topology)
        self.state = SearchState(problem, objective)
        self.proposer = Proposer(self.state, OptionCosts(problem), rng)
        self.evaluated = evaluated

    def spent(self) -> bool:
        return self.budget.spent(self.evaluated)

    def burst(self, plan: ShardingPlan, share: float) -> None:
        """Anneal from a plan until patience, or a share of the time left, ends."""
        left = self.budget.time_left()
        reserve = (1 - share) * left if left < float("inf") else 0.0
        self.state.start(plan)
        best, guide = self._time_now()
        quiet = rounds = 0
        while quiet < self.settings.patience and not self._over(reserve):
            now, guide = self._round(guide, guide * _temperature(rounds))
            better = now < best * (1 - IMPROVED)
            best, quiet = (now, 0) if better else (best, quiet + 1)
            rounds += 1

    def _over(self, reserve: Seconds) -> bool:
        return self.spent() or self.budget.time_left() < reserve

    def _time_now(self) -> tuple[Seconds, Seconds]:
        """Return step time and guide of the current plan."""
        times, guides = self.state.times([{}])
        return self._noted(float(times[0])), float(guides[0])

    def _round(self, guide: Seconds, temperature: Seconds) -> tuple[Seconds, Seconds]:
        """Time some moves and make some; return step time, if they were made, and guide."""
        most = self.budget.left(self.evaluated, self.settings.candidates)
        moves = self.proposer.draw(most)
        if not moves:
            return float("inf"), guide
        _, guides = self.state.times(moves)
        self.evaluated += len(moves)
        order = sorted(range(len(moves)), key=lambda i: (float(guides[i]), i))
        improving = [moves[i] for i in order if guides[i] < guide]
        if improving:
            together = max(1, self.budget.left(self.evaluated, TOGETHER))
            return self._make_best(_disjoint(improving, together))
        loss = float(guides[order[0]]) - guide
        if temperature > 0 and self.rng.random() < exp(-loss / temperature):
            self.state.apply([moves[order[0]]])
            return self._time_now()
        return float("inf"), guide

    def _make_best(self, moves: Sequence[Move]) -> tuple[Seconds, Seconds]:
        """Make the first so many of some moves that together improve most."""
        times, guides = self.state.prefix_times(moves)
        self.evaluated += len(moves) - 1  # the first one has been timed alone
        fitting = 0
        for number in range(len(moves)):
            merged = {
                index: choice for move in moves[: number + 1] for index, choice in move.items()
            }
            if guides[number] < guides[fitting] and self.state.fits(merged):
                fitting = number
        self.state.apply(moves[: fitting + 1])
        return self._noted(float(times[fitting])), float(guides[fitting])

    def _noted(self, step_time: Seconds) -> Seconds:
        """Return the current plan's step time, and keep the plan if it is the best so far."""
        if step_time < self.best[0] * (1 - IMPROVED):
            self.best = (step_time, self.state.plan())
            self.budget.report(Progress(evaluated=self.evaluated, best=step_time))
        return step_time


def _temperature(rounds: int) -> float:
    """Return the temperature of a round: geometric from hot to cold, then zero."""
    if rounds >= COOLING_ROUNDS:
        return 0.0
    return exp(log(HOT) + (log(COLD) - log(HOT)) * rounds / COOLING_ROUNDS)


def _disjoint(moves: Sequence[Move], most: int) -> list[Move]:
    """Return the first moves that change different tables."""
    taken: set[int] = set()
    chosen: list[Move] = []
    for move in moves:
        if taken.isdisjoint(move) and len(chosen) < most:
            taken.update(move)
            chosen.append(move)
    return chosen
