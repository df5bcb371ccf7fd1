"""Bursts of compiled annealing from several plans: the field is halved, the rest cool longer.

First every plan is balanced: its options stay, and only places change. Programs and greedies that
choose options for all tables at once balance ranks by one number each, and lose 3 to 15% of the
step by that (856 tables on 64 GPUs, 788 on 128), which says nothing of their options.
"""

from collections.abc import Iterator, Sequence
from math import inf, sqrt
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from sharders.native.engine import Engine
from sharders.native.state import Choices
from sharders.native.tables import Tables, offered
from sharders.native.tuning import Tuning
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem
from sharders.search_state import IMPROVED
from sharders.starts import starting_plans

DIFFERENT = 6
"""Plans to start from, best first, no two of them alike: annealing moves few tables at a time."""
ALIKE = 0.9
"""Share of the tables that alike plans shard by the same type over as many ranks."""
FAR = 1.2
"""Times the best plan: slower ones are not annealed, as in all runs looked at they ended behind."""
BALANCING = 10
"""Moves for each table that balance a plan: at 856 tables on 64 GPUs five gain 2 to 7% of the step,
and 140 another 0.5%, as annealing does."""
FEW_TYPES, OF_FEW_TYPES = 2, 5
"""And so many plans of so few sharding types: annealing finds where another type helps, but not
that a type which many tables have is not worth its collectives."""
FIRST_BURST = 50
"""Moves of the first bursts, for each table; the ones after them are longer by ``GROWTH``."""
GROWTH = 8.0
"""One burst of all the time there is ends lower than several that take it together (with 2,000
moves a table, 0.7% at 856 tables on 64 GPUs), so the last one takes it."""
FIELD_SHARE = 0.25
"""Of the time left, what the first bursts may take: where they would take longer, there are
fewer of them."""
HOTTEST = 0.1
"""Temperature at the begin of a burst, as a share of the mean table's part of the step. A third of
it loses 1% at 100 tables on 8 GPUs, twice as much 0.3 to 0.5% at 400 on 16 and 788 on 128 (10 CPU
seconds, two to four seeds; plans of one setting differ by 0.3%)."""
WARM = 600
"""Moves for each table below which bursts begin cooler, by the square root: in less time than it
takes to find back, heat only undoes what was balanced before."""
COLD = 1e-5
"""Temperature at the end, as a share of the step time."""
AT_ONCE = 4000
"""Moves between two looks at the budget; some tenths of a second where they take longest."""
GAIN = 1e-3
"""Share of the step time that a burst must gain if a longer one is to follow: less than the model
can tell apart is not worth seconds of search."""

Found = tuple[Seconds, Choices]


def anneal(
    problem: ShardingProblem, budget: Budget, rng: Random
) -> tuple[SearchResult, Iterator[ShardingPlan]]:
    """Anneal from the best of the plans known and those of the tuned greedy; return these, too.

    Raises
    ------
    InfeasibleError
        No greedy finds a plan.

    """
    known = problem.known_times()
    engine = Engine(problem, offered(problem, problem.known))
    tuning = Tuning(engine, budget, rng, [time for time, _ in known])
    tuned, evaluated = tuning.run(), tuning.evaluated
    if not known and not tuned:
        known, evaluated = starting_plans(problem, budget, rng)
        engine = Engine(problem, [plan for _, plan in known])
    usable = set(map(id, offered(problem, [plan for _, plan in known])))
    starts = [(time, engine.choices_of(plan)) for time, plan in known if id(plan) in usable]
    starts = sorted([*starts, *tuned], key=_time)
    bursts = Bursts(engine, budget, rng, evaluated)
    balanced = bursts.balanced([each for time, each in starts if time <= FAR * starts[0][0]])
    different = _different(engine.search.tables, balanced)
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

    def __init__(self, engine: Engine, budget: Budget, rng: Random, evaluated: int) -> None:
        self.engine, self.problem, self.budget, self.rng = engine, engine.problem, budget, rng
        self.evaluated = evaluated
        self.best: Found = inf, engine.present()
        self.seconds_per_move = 0.0

    def balanced(self, plans: Sequence[Choices]) -> list[Choices]:
        """Return what other places make of some plans, best first; those there is time for."""
        length = BALANCING * len(self.problem.workload.tables)
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
        length, before = FIRST_BURST * len(self.problem.workload.tables), inf
        while starts and not self.spent() and self.best[0] < before * (1 - GAIN):
            before = self.best[0]
            self._halve(starts, length)
            length = int(length * GROWTH)

    def _halve(self, starts: Sequence[Choices], length: int) -> None:
        """Anneal from all plans, then from the better half, and so on, and then from the best."""
        field, gains, several = list(starts), True, True
        while field and (gains or several) and not self.spent():
            before, left = self.best[0], self._affordable()
            if gains and left < GROWTH * length:
                field, length = field[:1], max(1, int(left))
            found = self._bursts(field, length)
            several = len(found) > 1
            field = [plan for _, plan in found[: max(1, len(found) // 2)]]
            gains = self.best[0] < before * (1 - GAIN)
            length = int(length * GROWTH)

    def spent(self) -> bool:
        """Return whether the budget is."""
        return self.budget.spent(self.evaluated)

    def _bursts(self, field: Sequence[Choices], length: int) -> list[Found]:
        """Return the best plan of a burst from each plan there is time for, best first."""
        found: list[Found] = []
        for plan in field:
            done = len(found) * length
            fair = FIELD_SHARE * (done + self._affordable())
            if not self.spent() and (not found or done + length <= fair):
                found.append(self._burst(plan, length))
        return sorted(found, key=_time)

    def _affordable(self) -> float:
        """Return how many moves there is time for."""
        left = self.budget.time_left()
        return left / self.seconds_per_move if self.seconds_per_move > 0 else inf

    def _burst(self, plan: Choices, length: int, *, placing: bool = False) -> Found:
        """Return the best plan of one burst, and its step time; it cools in the time there is."""
        engine, drawn, decided = self.engine, 0, 0
        heat = 0.0 if placing else self._heat(min(length, self._affordable()))
        hot = max(COLD, heat)
        best = engine.start(plan)
        while drawn < length and not self.spent():
            count = self.budget.left(self.evaluated, min(AT_ONCE, length - drawn))
            schedule = hot, COLD, float(max(1, min(length, drawn + self._affordable())))
            begin = self.budget.time_left()
            standing = engine.anneal(count, schedule, self.rng, placing=placing)
            if begin < inf:
                self.seconds_per_move = (begin - self.budget.time_left()) / count
            self.evaluated += standing.decided - decided
            drawn, decided = standing.moves, standing.decided
            if standing.best < min(best, self.best[0]) * (1 - IMPROVED):
                self.budget.report(Progress(evaluated=self.evaluated, best=standing.best))
            best = standing.best
        found = best, engine.best_since()
        if best < self.best[0] * (1 - IMPROVED):
            self.best = found
        return found

    def _heat(self, moves: float) -> float:
        """Return the temperature at which a burst begins, as a share of the step time."""
        num_tables = len(self.problem.workload.tables)
        return HOTTEST / num_tables * min(1.0, sqrt(moves / num_tables / WARM))


def _different(tables: Tables, plans: Sequence[Choices]) -> list[Choices]:
    """Return plans that differ, in the order given, and then some of few types."""
    chosen: list[Choices] = []
    ways: list[NDArray[np.int32]] = []
    few: dict[frozenset[int], Choices] = {}
    num_shards = np.diff(tables.first)
    for plan in plans:
        kinds = tables.kind[plan.option]
        own = np.stack([kinds, num_shards[plan.option]])
        if len(chosen) < DIFFERENT and not any(_alike(own, other) for other in ways):
            chosen.append(plan)
            ways.append(own)
        types = frozenset(kinds.tolist())
        if len(types) <= FEW_TYPES:
            few.setdefault(types, plan)
    others = [plan for plan in few.values() if all(plan is not each for each in chosen)]
    return [*chosen, *others[:OF_FEW_TYPES]]


def _alike(first: NDArray[np.int32], second: NDArray[np.int32]) -> bool:
    return bool((first == second).all(axis=0).mean() > ALIKE)
