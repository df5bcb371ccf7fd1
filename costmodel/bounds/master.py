"""The master problem of a bound: weights of cycles against choices of options, a zero-sum game."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import Vector
from costmodel.bounds.paths import WeightedCycle


class Prices(NamedTuple):
    """What weights of cycles make options cost."""

    features: Vector
    """In seconds, of each of a plan's features."""
    memory: Seconds
    """What all memory costs."""
    shards: Vector
    """What a second costs that a table's largest shard takes alone, by table."""


@dataclass(frozen=True, slots=True, eq=False)
class TableChoice:
    """One option for every table: a vertex of the relaxed problem."""

    prices: Prices
    """What it is the cheapest choice for."""
    z: Vector
    memory: float
    """Bytes beyond what all ranks have, in units of that; below 0 if it fits."""
    shards: Vector
    """What the largest shards of the tables with a cycle of their own take alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """What was found of a part of the plans, to begin with in parts of it."""

    bound: Seconds = 0.0
    mixture: Vector | None = None
    """Features of the mixture of options that attains it."""
    own: WeightedCycle | None = None
    """A cycle with all lookups, for the ranks that hold the largest shards."""
    cycles: tuple[WeightedCycle, ...] = ()
    """Those with a weight."""
    prices: tuple[Prices, ...] = ()
    """Those of the choices that are mixed."""


class Game:
    """A linear program in the weights y (of memory, large shards, cycles) and the value v.

    Maximise v with v <= what every choice so far is worth under y. Its dual solution is a mixture
    of choices.
    """

    def __init__(
        self, tables: tuple[int, NDArray[np.intp]], own: WeightedCycle, unit: Seconds
    ) -> None:
        import highspy

        self._num_tables, self._large = tables
        self._own, self._unit = own, unit
        self._choices: list[TableChoice] = []
        self._cycles: list[WeightedCycle] = []
        self._num_shards = len(self._large)
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.setOptionValue("output_flag", False)  # noqa: FBT003 -- highspy's signature
        self._infinity = highspy.kHighsInf
        self._solver.addVar(-self._infinity, self._infinity)
        self._solver.addVar(0.0, 1e4)
        for _ in range(self._num_shards):
            self._solver.addVar(0.0, 1.0)
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        self._solver.changeColCost(0, 1.0)
        shards = np.arange(2, 2 + self._num_shards, dtype=np.int32)
        self._solver.addRow(1.0, 1.0, len(shards), shards, np.ones(len(shards)))
        self._y: Vector = np.zeros(0)
        self._shares: Vector = np.zeros(0)

    def add_cycle(self, cycle: WeightedCycle) -> None:
        """Let a cycle have weight."""
        worth = [cycle.weight(choice.z) for choice in self._choices]
        rows = np.arange(len(worth) + 1, dtype=np.int32)
        column = np.append(1.0, np.array(worth) / self._unit)
        self._solver.addCol(0.0, 0.0, 1.0, len(rows), rows, column)
        self._cycles.append(cycle)

    def add_choice(self, choice: TableChoice) -> None:
        """Let a choice of options have weight."""
        row = np.append(-1.0, self._payoffs(choice))
        columns = np.arange(len(row), dtype=np.int32)
        self._solver.addRow(0.0, self._infinity, len(row), columns, row)
        self._choices.append(choice)

    def solve(self) -> tuple[Seconds, Prices, Vector] | None:
        """Return the value, the prices that the weights make, and the mixture's features.

        None where the solver gives up.
        """
        import highspy

        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        self._y = np.maximum(np.array(solution.col_value)[1:], 0.0)
        shards, cycles = self._weights
        self._y[1:] /= shards.sum() + cycles.sum()
        shards, cycles = self._weights
        features = cycles @ np.array([cycle.weights for cycle in self._cycles])
        features += shards.sum() * self._own.common
        of_tables = np.zeros(self._num_tables)
        of_tables[self._large] = shards
        self._shares = np.abs(np.array(solution.row_dual)[1:])
        mixture = self._shares @ np.array([choice.z for choice in self._choices])
        mixture /= self._shares.sum()
        value = float(solution.col_value[0]) * self._unit
        return value, Prices(features, float(self._y[0]) * self._unit, of_tables), mixture

    def worth(self, choice: TableChoice) -> Seconds:
        """Return what a choice is worth under the weights found last."""
        return float(self._payoffs(choice) @ self._y) * self._unit

    def solved(self, bound: Seconds, mixture: Vector) -> Solved:
        """Return a bound with what has weight in the solution found last."""
        count = len(self._weights[1])
        cycles = zip(self._cycles[:count], self._weights[1], strict=True)
        choices = zip(self._choices[: len(self._shares)], self._shares, strict=True)
        return Solved(
            bound=bound,
            mixture=mixture,
            own=self._own,
            cycles=tuple(cycle for cycle, weight in cycles if weight > 0),
            prices=tuple(choice.prices for choice, share in choices if share > 0),
        )

    @property
    def _weights(self) -> tuple[Vector, Vector]:
        return self._y[1 : 1 + self._num_shards], self._y[1 + self._num_shards :]

    def _payoffs(self, choice: TableChoice) -> Vector:
        """Return what a choice is worth per weight: memory, large shards, cycles; in units."""
        shared = self._own.floor + float(self._own.common @ choice.z)
        worth = [cycle.weight(choice.z) for cycle in self._cycles]
        memory = choice.memory * self._unit
        return np.concatenate(([memory], shared + choice.shards, worth)) / self._unit
