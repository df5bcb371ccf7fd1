"""Large neighbourhood search: re-optimise a few tables at a time by an integer program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from random import Random

from costmodel.base.units import Seconds
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.annealing.polish import Polisher
from sharders.baselines.neighbourhood import Neighbourhoods
from sharders.baselines.solvers import Limits, check_pulp
from sharders.baselines.starts import starting_plans
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

FREE_TABLES = 10
FREE_RANKS = 4
"""Number of free tables in a program, and of ranks they can go to: solved in some 0.05 s each."""
MOST_PLACES = 8
"""Number of sets of ranks offered for one option of one table."""
PATIENCE = 80
"""Programs without a better plan before the search ends."""
GAP = 1e-2
MAX_NODES = 20
"""Most nodes of the solver's tree, where the budget has no clock."""
SPREAD = 0.3
"""Standard deviation of the change of the logarithm of a sharding type's scale."""
TIME_LIMIT: Seconds = 0.1
"""Seconds for one program; all but a few end long before."""


@dataclass(frozen=True, slots=True)
class LargeNeighbourhood:
    """Frees a few tables of the best plan, places them anew by a program, keeps what is faster.

    Free are tables from the slowest rank, from some light ones and from anywhere (Shaw, 1998);
    their options and ranks minimise the makespan of separable costs within memory
    (``neighbourhood``). What separable costs leave out differs by sharding type, so every program
    scales them a little differently, starting from what succeeded last. The exact objective
    decides whether the outcome is kept. At the end comes a descent (``polish``). Never worse than
    the plans it starts from. Deterministic for a seed without a time limit.
    """

    patience: int = PATIENCE

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan when programs find nothing for a while, or the budget is spent."""
        check_pulp("lns")
        starts, evaluated = starting_plans(problem, budget, rng)
        search = _NeighbourhoodSearch(problem, budget, rng, evaluated)
        search.state.start(starts[0][1])
        quiet = 0
        while quiet < self.patience and not budget.spent(search.evaluated):
            quiet = 0 if search.improved() else quiet + 1
        found = search.state.plan()
        best = SearchResult(
            plan=found,
            step_time=problem.objective.step_time(found),
            status=SearchStatus.LIMIT if quiet < self.patience else SearchStatus.CONVERGED,
            evaluated=search.evaluated,
        )
        if best.status is SearchStatus.CONVERGED:
            best = _polished(problem, best, budget)
        if starts[0][0] < best.step_time:
            best = replace(best, plan=starts[0][1], step_time=starts[0][0])
        return best


class _NeighbourhoodSearch:
    """The current plan, and the programs around it."""

    def __init__(
        self, problem: ShardingProblem, budget: Budget, rng: Random, evaluated: int
    ) -> None:
        self.problem, self.budget, self.rng, self.evaluated = problem, budget, rng, evaluated
        self.state = PlanEditor(problem)
        self.near = Neighbourhoods(self.state)

    def improved(self) -> bool:
        """Solve one program, make its move if the plan is better, and return whether it is."""
        before = self.near.scales
        self.near.scales = {
            kind: scale * exp(self.rng.gauss(0.0, SPREAD)) for kind, scale in before.items()
        }
        if self._tried():
            return True
        self.near.scales = before
        return False

    def _tried(self) -> bool:
        """Solve one program, and return whether its move is kept."""
        load = self.near.loads() if self.rng.random() < 0.5 else self.state.rank_times()
        order = sorted(range(len(load)), key=lambda rank: (-float(load[rank]), rank))
        ranks = self._ranks(order)
        tables = self._tables(ranks)
        self.evaluated += 1
        free = {index: self.near.choices(index, ranks[::-1], MOST_PLACES) for index in tables}
        move = self.near.best(free, self._limits())
        if move is None or not self.state.fits(move):
            return False
        return self._kept(move)

    def _kept(self, move: Move) -> bool:
        """Make a move if the plan is better for it, and return whether it is."""
        times, penalised_times = self.state.times([{}, move])
        if penalised_times[1] >= penalised_times[0] * (1 - 1e-6):
            return False
        self.state.apply(move)
        best = min(float(times[0]), float(times[1]))
        self.budget.report(Progress(evaluated=self.evaluated, best=best))
        return True

    def _ranks(self, order: Sequence[int]) -> list[int]:
        """Return the slowest rank, some light ones, and some others, the slowest first."""
        first = order[0] if self.rng.random() < 0.7 else self.rng.choice(order)
        light = [order[-1 - int(len(order) * self.rng.random() ** 2)] for _ in range(FREE_RANKS)]
        return list(dict.fromkeys([first, *light]))[:FREE_RANKS]

    def _tables(self, ranks: Sequence[int]) -> list[int]:
        """Return the tables to place anew: of those on the ranks, and some that are on all."""
        choices = self.state.choices
        there = [i for i, choice in enumerate(choices) if self._is_on(choice, ranks)]
        split = [i for i, choice in enumerate(choices) if not choice.ranks]
        self.rng.shuffle(there)
        self.rng.shuffle(split)
        some = split[: self.rng.randint(0, FREE_TABLES // 3)]
        return list(dict.fromkeys([*some, *there]))[:FREE_TABLES]

    def _is_on(self, choice: PlacedOption, ranks: Sequence[int]) -> bool:
        """Return whether a choice puts a shard on any of the ranks, or on a node of theirs."""
        local = self.problem.topology.local_world_size
        if choice.option.sharding_type.within_node:
            return any(rank // local == other // local for rank in ranks for other in choice.ranks)
        return any(rank in choice.ranks for rank in ranks)

    def _limits(self) -> Limits:
        """Return the limits of the next program: time, or nodes if plans are counted."""
        left = self.budget.time_left()
        if left == float("inf"):
            return Limits(gap=GAP, max_nodes=MAX_NODES)
        return Limits(gap=GAP, time=max(0.05, min(TIME_LIMIT, left)))


def _polished(problem: ShardingProblem, best: SearchResult, budget: Budget) -> SearchResult:
    """Return the result of a descent from the best plan, or the best plan if it is no better."""
    polisher = Polisher(problem, budget, best.evaluated)
    plan, step_time = polisher.descend(best.plan)
    if step_time < best.step_time:
        best = replace(best, plan=plan, step_time=step_time)
    return replace(best, evaluated=polisher.evaluated)
