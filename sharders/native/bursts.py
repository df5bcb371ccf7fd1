"""Bursts of compiled annealing from several plans: the field is halved, the rest cool longer."""

from collections.abc import Sequence
from random import Random

from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from sharders.native.engine import Engine
from sharders.native.tables import offered
from sharders.problem import Budget, Progress, SearchResult, SearchStatus, ShardingProblem
from sharders.search_state import IMPROVED

FIRST_BURST = 100
"""Moves of the first bursts, for each table; the ones after them are longer by ``GROWTH``."""
GROWTH = 3.0
HOT, COLD = 2e-3, 1e-5
"""Temperatures at the begin and end of a burst, as shares of the step time. Hotter ones split
tables that are better left whole, and do not find back."""
AT_ONCE = 4000
"""Moves between two looks at the budget; some tenths of a second where they take longest."""
CONVERGED_AFTER = 2
"""Bursts in a row, each longer than the last, that gain less than ``GAIN``."""
GAIN = 1e-3
"""Share of the step time: less than the model can tell apart is not worth seconds of search."""


def anneal_from(
    starts: Sequence[ShardingPlan],
    problem: ShardingProblem,
    budget: Budget,
    rng: Random,
    known: tuple[tuple[Seconds, ShardingPlan], int],
) -> SearchResult | None:
    """Anneal from some plans, given the best one known and how many were timed for it.

    None: all plans use options that are not on offer, such as caches of another size.
    """
    usable = offered(problem, starts)
    if not usable:
        return None
    return Bursts(problem, budget, rng, known, usable).run()


class Bursts:
    """Anneals from one plan after another, and keeps the best plan of all."""

    def __init__(
        self,
        problem: ShardingProblem,
        budget: Budget,
        rng: Random,
        known: tuple[tuple[Seconds, ShardingPlan], int],
        starts: Sequence[ShardingPlan],
    ) -> None:
        self.problem, self.budget, self.rng = problem, budget, rng
        self.best, self.evaluated = known
        self.starts = starts
        self.engine = Engine(problem, starts)

    def run(self) -> SearchResult:
        """Anneal from all plans, then from the better half, and so on, and then from the best."""
        length = FIRST_BURST * len(self.problem.workload.tables)
        field = list(self.starts)
        quiet = 0
        while quiet < CONVERGED_AFTER and not self.spent():
            before = self.best[0]
            found = [self._burst(plan, length) for plan in field if not self.spent()]
            found.sort(key=lambda pair: pair[0])
            field = [plan for _, plan in found[: max(1, len(found) // 2)]]
            quiet = 0 if self.best[0] < before * (1 - GAIN) else quiet + 1
            quiet = quiet if len(found) == 1 else 0
            length = int(length * GROWTH)
        status = SearchStatus.LIMIT if self.spent() else SearchStatus.CONVERGED
        return SearchResult(
            plan=self.best[1],
            step_time=self.problem.objective.step_time(self.best[1]),
            status=status,
            evaluated=self.evaluated,
        )

    def spent(self) -> bool:
        """Return whether the budget is."""
        return self.budget.spent(self.evaluated)

    def _burst(self, plan: ShardingPlan, length: int) -> tuple[Seconds, ShardingPlan]:
        """Return the best plan of one burst, and its step time."""
        engine, drawn, timed = self.engine, 0, 0
        best = engine.start(plan)
        self._note(best)
        while drawn < length and not self.spent():
            count = self.budget.left(self.evaluated, min(AT_ONCE, length - drawn))
            standing = engine.anneal(count, (HOT, COLD, float(length)), self.rng)
            self.evaluated += standing.timed - timed
            drawn, timed, best = standing.moves, standing.timed, standing.best
            self._note(best)
        return best, engine.best_plan()

    def _note(self, step_time: Seconds) -> None:
        if step_time < self.best[0] * (1 - IMPROVED):
            self.best = (step_time, self.engine.best_plan())
            self.budget.report(Progress(evaluated=self.evaluated, best=step_time))
