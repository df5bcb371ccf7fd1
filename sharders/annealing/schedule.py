"""Bursts of annealing from several plans: the field is halved, the rest cool longer.

First every plan is balanced: its options stay, and only places change. Programs and greedies that
choose options for all tables at once balance ranks by one number each, and lose 3 to 15% of the
step by that (856 tables on 64 GPUs, 788 on 128), which says nothing of their options.
"""

from collections.abc import Iterator, Sequence
from math import inf, sqrt
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from sharders.annealing.starts import starting_plans
from sharders.engine.arrays import offered
from sharders.engine.params import AnnealingParams
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices, Tables
from sharders.greedy.tuning import Tuning
from sharders.problem.sharding_problem import (
    IMPROVED,
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

MOVES_PER_PLAN = 1.25
"""Moves drawn for every plan looked at, about: some lead nowhere, or find no room."""
FIRST_MOVES = 200
"""Moves after which the time of one is known."""

Found = tuple[Seconds, Choices]


def anneal(
    problem: ShardingProblem, budget: Budget, rng: Random, params: AnnealingParams
) -> tuple[SearchResult, Iterator[ShardingPlan]]:
    """Anneal from the best of the plans known and those of the tuned greedy; return these, too.

    Raises
    ------
    InfeasibleError
        No greedy finds a plan.

    """
    known = problem.known_times()
    engine = Engine(problem, offered(problem, problem.known), params.moves)
    tuning = Tuning(engine, budget, rng, [time for time, _ in known], params.tuning)
    tuned, evaluated = tuning.run(), tuning.evaluated
    if not known and not tuned:
        known, evaluated = starting_plans(problem, budget, rng)
        engine = Engine(problem, [plan for _, plan in known], params.moves)
    usable = set(map(id, offered(problem, [plan for _, plan in known])))
    starts = [(time, engine.choices_of(plan)) for time, plan in known if id(plan) in usable]
    starts = sorted([*starts, *tuned], key=_time)
    bursts = Bursts(engine, budget, rng, evaluated, params)
    balanced = bursts.balanced([
        each for time, each in starts if time <= params.max_behind * starts[0][0]
    ])
    different = _different(engine.search.tables, balanced, params)
    bursts.run(different)
    ours = [(bursts.best[0], engine.plan_of(bursts.best[1]))] if starts else []
    best = min([*known, *ours], key=_time)
    result = SearchResult(
        plan=best[1],
        step_time=problem.objective.step_time(best[1]),
        status=SearchStatus.LIMIT if bursts.spent() else SearchStatus.CONVERGED,
        evaluated=bursts.evaluated,
    )
    return result, map(engine.plan_of, different)


def _time(found: tuple[Seconds, object]) -> Seconds:
    return found[0]


class Bursts:
    """Anneals from one plan after another, and keeps the best plan of all."""

    def __init__(
        self,
        engine: Engine,
        budget: Budget,
        rng: Random,
        evaluated: int,
        params: AnnealingParams,
    ) -> None:
        self.params = params
        self.engine, self.problem, self.budget, self.rng = engine, engine.problem, budget, rng
        self.evaluated = evaluated
        self.best: Found = inf, engine.present()
        self.seconds_per_move = 0.0

    def balanced(self, plans: Sequence[Choices]) -> list[Choices]:
        """Return what other places make of some plans, best first; those there is time for."""
        length = self.params.balancing_moves * len(self.problem.workload.tables)
        found = [
            self._burst(plan, length, placing=True)
            for number, plan in enumerate(plans)
            if number == 0 or not self.spent()
        ]
        return [plan for _, plan in sorted(found, key=_time)]

    def run(self, starts: Sequence[Choices]) -> None:
        """Anneal from some plans, and once more and longer, until that gains nothing.

        Runs of one setting end some tenths of a percent apart, in one of many like valleys.
        """
        length, quiet = self.params.first_burst * len(self.problem.workload.tables), 0
        while starts and not self.spent() and quiet < self.params.max_quiet_rounds:
            before = self.best[0]
            self._halve(starts, length)
            gains = self.best[0] < before * (1 - self.params.min_gain)
            quiet = 0 if gains else quiet + 1
            length = int(length * self.params.growth) if gains else length

    def _halve(self, starts: Sequence[Choices], length: int) -> None:
        """Anneal from all plans, then from the better half, and so on, and then from the best."""
        field, gains, several = list(starts), True, True
        while field and (gains or several) and not self.spent():
            before, left = self.best[0], self._affordable()
            if gains and left < self.params.growth * length:
                field, length = field[:1], max(1, int(left))
            found = self._bursts(field, length)
            several = len(found) > 1
            field = [plan for _, plan in found[: max(1, len(found) // 2)]]
            gains = self.best[0] < before * (1 - self.params.min_gain)
            length = int(length * self.params.growth)

    def spent(self) -> bool:
        """Return whether the budget is."""
        return self.budget.spent(self.evaluated)

    def _bursts(self, field: Sequence[Choices], length: int) -> list[Found]:
        """Return the best plan of a burst from each plan there is time for, best first."""
        found: list[Found] = []
        for plan in field:
            done = len(found) * length
            fair = self.params.field_share * (done + self._affordable())
            if not self.spent() and (not found or done + length <= fair):
                found.append(self._burst(plan, length))
        return sorted(found, key=_time)

    def _affordable(self) -> float:
        """Return how many moves there are plans and time for."""
        most = inf
        if self.budget.max_evaluations is not None:
            plans = self.budget.left(self.evaluated, self.budget.max_evaluations)
            most = max(1.0, MOVES_PER_PLAN * plans)
        left = self.budget.time_left()
        return min(most, left / self.seconds_per_move if self.seconds_per_move > 0 else inf)

    def _burst(self, plan: Choices, length: int, *, placing: bool = False) -> Found:
        """Return the best plan of one burst, and its step time; it cools in the time there is."""
        engine, drawn, decided = self.engine, 0, 0
        heat = 0.0 if placing else self._heat(min(length, self._affordable()))
        hot = max(self.params.cold, heat)
        best = engine.start(plan)
        while drawn < length and not self.spent():
            count = self.budget.left(self.evaluated, min(self._at_once(), length - drawn))
            schedule = hot, self.params.cold, float(max(1, min(length, drawn + self._affordable())))
            begin = self.budget.time_left()
            standing = engine.anneal(count, schedule, self.rng, placing=placing)
            if begin < inf:
                self.seconds_per_move = (begin - self.budget.time_left()) / count
            self.evaluated += standing.decided - decided
            drawn, decided = standing.moves, standing.decided
            if standing.best_time < min(best, self.best[0]) * (1 - IMPROVED):
                self.budget.report(Progress(evaluated=self.evaluated, best=standing.best_time))
            best = standing.best_time
        found = best, engine.best_since()
        if best < self.best[0] * (1 - IMPROVED):
            self.best = found
        return found

    def _at_once(self) -> int:
        """Return how many moves to draw before the next look at the budget."""
        if self.budget.time_left() == inf:
            return self.params.moves_at_once
        if self.seconds_per_move == 0:
            return FIRST_MOVES
        soon = int(self.params.look_every / self.seconds_per_move)
        return max(1, min(self.params.moves_at_once, soon))

    def _heat(self, moves: float) -> float:
        """Return the temperature at which a burst begins, as a share of the step time."""
        num_tables = len(self.problem.workload.tables)
        return (
            self.params.hottest / num_tables * min(1.0, sqrt(moves / num_tables / self.params.warm))
        )


def _different(tables: Tables, plans: Sequence[Choices], params: AnnealingParams) -> list[Choices]:
    """Return plans that differ, in the order given, and then some of few types."""
    chosen: list[Choices] = []
    shardings: list[NDArray[np.int32]] = []
    few: dict[frozenset[int], Choices] = {}
    num_shards, kind = np.diff(tables.first), np.asarray(tables.kind)
    for plan in plans:
        kinds = kind[plan.option]
        own = np.stack([kinds, num_shards[plan.option]])
        different = not any(_share_alike(own, other) > params.alike for other in shardings)
        if len(chosen) < params.max_starts and different:
            chosen.append(plan)
            shardings.append(own)
        types = frozenset(kinds.tolist())
        if len(types) <= params.few_types:
            few.setdefault(types, plan)
    others = [plan for plan in few.values() if all(plan is not each for each in chosen)]
    return [*chosen, *others[: params.max_of_few_types]]


def _share_alike(first: NDArray[np.int32], second: NDArray[np.int32]) -> float:
    """Return the share of the tables that two plans shard alike."""
    return float((first == second).all(axis=0).mean())
