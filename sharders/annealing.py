"""Cold annealing over all decisions at once, under the objective itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random

from costmodel.errors import InfeasibleError
from costmodel.objective import Objective
from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from sharders.cost_greedy import CostGreedy
from sharders.moves import Proposer
from sharders.option_costs import OptionCosts
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, Sharder, ShardingProblem
from sharders.search_state import Move, SearchState
from sharders.table_iii import LookupGreedy, NormLookupGreedy, SizeGreedy

CANDIDATES = 48
"""Moves timed together; more would not fit in the cache at 64 ranks."""
PATIENCE = 60
"""Rounds without a better plan after which a burst ends: `PATIENCE` times the candidates is some
3,000 plans."""
TOGETHER = 8
"""Moves tried together in a round."""
STARTS = (CostGreedy, NormLookupGreedy, LookupGreedy, SizeGreedy)
BEST_STARTS = 2
HOT, COLD = 3e-3, 1e-5
"""Temperatures at the first and the last rounds, as shares of the step time. Hotter ones split
tables that are better left whole, and do not find back."""
COOLING_ROUNDS = 150


@dataclass(frozen=True, slots=True)
class Annealing:
    """Local search from the best greedy plans, a little downhill, all moves timed exactly.

    Every round draws moves (a column block to another rank, two tables swapped, another sharding
    type, split or kernel), times the plan after each of them, and makes the best of them that
    together still improve; where none improves, the least bad one is made with the probability
    exp(-loss / temperature). Bursts start from the two best greedy plans; the second half of the
    time belongs to the better one. No guarantee, but never worse than the greedies it starts from.
    """

    candidates: int = CANDIDATES
    patience: int = PATIENCE

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Anneal until nothing better is found for a while, or the budget is spent."""
        starts, evaluated = _starts(problem, budget, rng)
        search = _Search(self, problem, budget, rng, starts[0], evaluated)
        for _, plan in starts[:BEST_STARTS]:
            search.burst(plan)
        search.burst(search.best[1])
        status = SearchStatus.LIMIT if search.spent() else SearchStatus.CONVERGED
        return SearchResult(
            plan=search.best[1],
            step_time=problem.objective.step_time(search.best[1]),
            status=status,
            evaluated=search.evaluated,
        )


def _starts(
    problem: ShardingProblem, budget: Budget, rng: Random
) -> tuple[list[tuple[Seconds, ShardingPlan]], int]:
    """Return the plans known already, or else greedy ones, best first; and how many were timed.

    Raises
    ------
    InfeasibleError
        No greedy finds a plan.

    """
    found = [(problem.objective.step_time(plan), plan) for plan in problem.known]
    evaluated = len(found)
    refusals: list[InfeasibleError] = []
    for greedy in STARTS if not found else ():
        sharder: Sharder = greedy()
        if found and budget.spent(evaluated):
            break
        try:
            result = sharder.shard(problem, _rest(budget, evaluated), rng)
        except InfeasibleError as refusal:
            refusals.append(refusal)
        else:
            found.append((result.step_time, result.plan))
            evaluated += result.evaluated
    if not found:
        raise refusals[0]
    return sorted(found, key=lambda pair: pair[0]), evaluated


def _rest(budget: Budget, evaluated: int) -> Budget:
    """Return what is left of a budget, for a sharder that runs silently inside another."""
    most = budget.max_evaluations
    left = None if most is None else most - evaluated
    return Budget(max_evaluations=left, should_stop=budget.should_stop)


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

    def burst(self, plan: ShardingPlan) -> None:
        """Anneal from a plan until patience ends."""
        self.state.start(plan)
        guide = self._time_now()
        quiet = 0
        rounds = 0
        while quiet < self.settings.patience and not self.spent():
            temperature = guide * _temperature(rounds)
            better, guide = self._round(guide, temperature)
            quiet = 0 if better else quiet + 1
            rounds += 1

    def _time_now(self) -> Seconds:
        times, guides = self.state.times([{}])
        self._note(float(times[0]))
        return float(guides[0])

    def _round(self, guide: Seconds, temperature: Seconds) -> tuple[bool, Seconds]:
        """Time some moves and make some; return whether a new best plan came of it."""
        most = self.budget.left(self.evaluated, self.settings.candidates)
        moves = self.proposer.draw(most)
        if not moves:
            return False, guide
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
            return self._note(self._step_time()), guide + loss
        return False, guide

    def _make_best(self, moves: Sequence[Move]) -> tuple[bool, Seconds]:
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
        return self._note(float(times[fitting])), float(guides[fitting])

    def _step_time(self) -> Seconds:
        times, _ = self.state.times([{}])
        return float(times[0])

    def _note(self, step_time: Seconds) -> bool:
        """Keep the current plan if it is the best so far."""
        if step_time >= self.best[0] * (1 - 1e-9):
            return False
        self.best = (step_time, self.state.plan())
        self.budget.report(Progress(evaluated=self.evaluated, best=step_time))
        return True


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
