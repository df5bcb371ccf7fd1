"""The current plan of a local search, changed by moves of few tables and timed by the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from sharders.engine.problem_arrays import offered
from sharders.engine.search_engine import Engine
from sharders.engine.tables import FULL
from sharders.engine.tables import Move as EngineMove
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import ShardingProblem


@dataclass(frozen=True, slots=True)
class PlacedOption:
    """How one table is sharded: an option, and the ranks of its column blocks."""

    option: TableOption
    ranks: tuple[int, ...]


Move = Mapping[int, PlacedOption]
"""New choices, by the table's index in the workload."""


class PlanEditor:
    """The current plan of a search, and the plans that moves make of it."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.problem, self.tables = problem, problem.workload.tables
        self._use(Engine(problem, every_option=True))

    def _use(self, engine: Engine) -> None:
        """Set the engine, and look up the numbers of its options."""
        self._engine, arrays = engine, engine.arrays
        begins = np.asarray(arrays.tables.options).tolist()
        self._numbers = [
            {option: first + number for number, option in enumerate(arrays.options[first:last])}
            for first, last in pairwise(begins)
        ]

    def start(self, plan: ShardingPlan) -> Seconds:
        """Make a plan the current one, and return its step time."""
        if not offered(self.problem, [plan]):  # its caches have other sizes
            self._use(Engine(self.problem, [plan], every_option=True))
        arrays, present = self._engine.arrays, self._engine.choices_of(plan)
        self.choices = [
            PlacedOption(option, tuple(ranks[: option.num_ranks]))
            for option, ranks in zip(
                (arrays.options[number] for number in np.asarray(present.option)),
                np.asarray(present.ranks).tolist(),
                strict=True,
            )
        ]
        return self._engine.start(present)

    def plan(self) -> ShardingPlan:
        """Return the current plan."""
        return self._engine.plan_of(self._engine.present())

    def annealed(self, num_moves: int, hot: float, cold: float) -> ShardingPlan:
        """Return the best plan of a run of annealing from the current one, which stays current.

        Tables keep within the plan's sharding types. ``hot`` and ``cold`` are the first and last
        temperature, as shares of the step time.
        """
        engine, present = self._engine, self._engine.present()
        engine.offer(engine.types_of(present))
        engine.start(present)
        engine.anneal(num_moves, (hot, cold, float(num_moves)))
        found = engine.plan_of(engine.best_since())
        engine.start(present)
        return found

    def free(self) -> Array:
        """Return the bytes of HBM left on every rank."""
        return self._row(self._engine.search.loads.free_row)

    def host_free(self) -> Array:
        """Return the bytes of host memory left on every node."""
        row = self._row(self._engine.search.loads.host_row)
        return row[: self.problem.topology.num_nodes]

    def rank_times(self) -> Array:
        """Return the seconds of lookups, forward and backward, of every rank."""
        return self._row(self._engine.search.loads.load_row)

    def _row(self, row: int) -> Array:
        """Return a row of the engine's numbers, by rank."""
        numbers: Array = np.asarray(self._engine.search.plan.numbers)[row].copy()
        return numbers

    def knows(self, move: Move) -> bool:
        """Return whether the editor has a move's options; at other batches, caches differ."""
        return all(choice.option in self._numbers[index] for index, choice in move.items())

    def fits(self, move: Move) -> bool:
        """Return whether the plan still fits in memory after a move."""
        made, search = self._engine_move(move), self._engine.search
        fits = search.finds_room(made)
        search.undo(made)
        return bool(fits)

    def times(self, moves: Sequence[Move]) -> tuple[Array, Array]:
        """Return step time and penalised time after each of some moves from the current plan.

        They are infinite where the plan then does not fit in memory.
        """
        seconds, penalised_times = np.zeros(len(moves)), np.zeros(len(moves))
        for number, move in enumerate(moves):
            made, search = self._engine_move(move), self._engine.search
            self._engine.try_move(made)
            seconds[number], penalised_times[number] = search.seconds, search.penalised_time
            search.undo(made)
        return seconds, penalised_times

    def outcomes(self, moves: Sequence[Move]) -> tuple[Array, Array, Array]:
        """Return the step time, lookups and free memory after each of some moves.

        Step times are infinite where a plan does not fit in memory, shape (moves,); seconds of
        lookups and bytes of HBM left have shape (moves, ranks).
        """
        search, world_size = self._engine.search, self.problem.topology.world_size
        numbers, loads = np.asarray(search.plan.numbers), search.loads
        seconds = np.full(len(moves), np.inf)
        lookups, free = np.zeros((2, len(moves), world_size))
        for number, move in enumerate(moves):
            made = self._engine_move(move)
            if self._engine.try_move(made) != FULL:
                seconds[number] = search.seconds
                lookups[number], free[number] = numbers[loads.load_row], numbers[loads.free_row]
            search.undo(made)
        return seconds, lookups, free

    def apply(self, move: Move) -> bool:
        """Make a move in the current plan if it fits in memory, and return whether it does."""
        made, search = self._engine_move(move), self._engine.search
        if self._engine.try_move(made) == FULL:
            search.undo(made)
            return False
        search.keep()
        for index, choice in move.items():
            self.choices[index] = choice
        return True

    def _engine_move(self, move: Move) -> EngineMove:
        """Return a move as the engine has it."""
        widest = self._engine.arrays.widest
        made = EngineMove(max(1, len(move)), widest)
        tables, options = np.asarray(made.table), np.asarray(made.option)
        ranks = np.asarray(made.ranks)
        for row, (index, choice) in enumerate(move.items()):
            tables[row], options[row] = index, self._numbers[index][choice.option]
            ranks[row, : len(choice.ranks)] = choice.ranks
        made.length = len(move)
        return made


def with_ranks(choice: PlacedOption, ranks: Sequence[int]) -> PlacedOption:
    """Return the same option on other ranks."""
    return replace(choice, ranks=tuple(ranks))
