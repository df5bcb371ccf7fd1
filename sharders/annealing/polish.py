"""Descents to plans that no change of one or two tables improves, for small problems."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, product

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor, with_ranks
from sharders.problem.options import places
from sharders.problem.sharding_problem import Budget, ShardingProblem

TOGETHER = 64
"""Number of moves timed together; the best of them is made if it improves the plan."""
MOST_PLACES = 40
"""Number of places (sets of ranks) tried for one option of one table, lightly loaded ranks
first."""
MOST_PAIRS = 20_000
"""Largest number of pairs of changes of which all are tried; of more, only swaps of ranks."""
IMPROVED = 1e-9
LAST_DESCENTS = 4
"""Number of plans from which changes of two tables are tried: the best after changes of one."""


class Polisher:
    """Descents under the exact objective; one that reaches the end of an earlier one stops."""

    def __init__(self, problem: ShardingProblem, budget: Budget, evaluated: int) -> None:
        self.problem, self.budget, self.evaluated = problem, budget, evaluated
        self.state = PlanEditor(problem)
        self.step_time = float("inf")
        self._ends: set[tuple[PlacedOption, ...]] = set()

    def descend(self, plan: ShardingPlan, *, pairs: bool = True) -> tuple[ShardingPlan, Seconds]:
        """Return the plan at the end of a descent, and its step by the problem's objective."""
        self.step_time = self.state.start(plan)
        self.evaluated += 1
        while self._make_improving(self._singles()) or (pairs and self._again()):
            pass
        if pairs:
            self._ends.add(tuple(self.state.choices))
        end = self.state.plan()
        return end, self.problem.objective.step_time(end)

    def descend_from(self, plans: Iterable[ShardingPlan]) -> Iterator[tuple[ShardingPlan, Seconds]]:
        """Yield the ends of descents from some plans by single changes, then from the best ends."""
        ends = []
        for plan in plans:
            if self.budget.spent(self.evaluated):
                return
            ends.append(self.descend(plan, pairs=False))
            yield ends[-1]
        for plan, _ in sorted(ends, key=lambda end: end[1])[:LAST_DESCENTS]:
            if self.budget.spent(self.evaluated):
                return
            yield self.descend(plan)

    def _again(self) -> bool:
        """Return whether changes of two tables improve a plan that they were not tried on."""
        new = tuple(self.state.choices) not in self._ends
        return new and self._make_improving(self._pairs())

    def _make_improving(self, moves: Iterator[Move]) -> bool:
        """Make the moves that improve the plan, and return whether there were any."""
        improved = False
        while not self.budget.spent(self.evaluated):
            drawn = list(islice(moves, self.budget.left(self.evaluated, TOGETHER)))
            if not drawn:
                break
            fitting = [move for move in drawn if self._changes(move) and self.state.fits(move)]
            improved |= bool(fitting) and self._make_best(fitting)
        return improved

    def _make_best(self, moves: Sequence[Move]) -> bool:
        """Time some moves, make the best if it improves the plan, and return whether it does."""
        times, _ = self.state.times(moves)
        self.evaluated += len(moves)
        best = int(times.argmin())
        if times[best] >= self.step_time * (1 - IMPROVED):
            return False
        self.state.apply(moves[best])
        self.step_time = float(times[best])
        return True

    def _changes(self, move: Move) -> bool:
        return all(choice != self.state.choices[index] for index, choice in move.items())

    def _singles(self) -> Iterator[Move]:
        """Yield all changes of one table."""
        for index in range(len(self.state.tables)):
            for choice in self._choices(index):
                yield {index: choice}

    def _pairs(self) -> Iterator[Move]:
        """Yield all changes of two tables, or only swaps if there are too many."""
        tables = range(len(self.state.tables))
        choices = [list(self._choices(index)) for index in tables]
        total = sum(map(len, choices))
        if total * total > 2 * MOST_PAIRS:
            yield from self._swaps()
            return
        for first, second in combinations(tables, 2):
            for one, other in product(choices[first], choices[second]):
                yield {first: one, second: other}

    def _swaps(self) -> Iterator[Move]:
        """Yield swaps of two tables' ranks."""
        for first, second in combinations(range(len(self.state.tables)), 2):
            one, other = self.state.choices[first], self.state.choices[second]
            alike = one.option.sharding_type is other.option.sharding_type
            if alike and one.ranks != other.ranks and len(one.ranks) == len(other.ranks):
                yield {first: with_ranks(one, other.ranks), second: with_ranks(other, one.ranks)}

    def _choices(self, index: int) -> Iterator[PlacedOption]:
        """Yield a table's options on ranks, those with the least load first."""
        topology, load = self.state.problem.topology, self.state.rank_times()
        order = sorted(range(topology.world_size), key=lambda rank: (float(load[rank]), rank))
        for option in self.state.problem.options[self.state.tables[index].name]:
            for ranks in islice(places(topology, option, order), MOST_PLACES):
                yield PlacedOption(option, ranks)
