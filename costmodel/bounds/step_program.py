"""Linear programs over options of all tables, whose value is a lower bound of a step.

    minimise  M
    for every table:  sum over options of x = 1,  x >= 0
    for every cycle:  constant + sum over tables and options of weight x + sum of weight F <= M
    over all tables:  sum of bytes x <= what all ranks have

F is what the fullest rank of every group sends (``fullest_ranks``). Cycles join that are heavier
than M at a solution, and options that pay (``option_program``). Few tables get more than one
option: as many as there are rows that bind. The search (``sharders.lp``) and the bound
(``relaxation``) solve such programs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from costmodel.base.arrays import Mask, Places
from costmodel.base.ranges import first_least
from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector, largest_features
from costmodel.bounds.fullest_ranks import FullestRanks
from costmodel.bounds.option_features import BoundOptions, is_first
from costmodel.bounds.option_program import (
    DUAL,
    EVERY,
    PRIMAL,
    BestShares,
    OptionProgram,
    OptionRow,
    ProgramBasis,
)
from costmodel.bounds.paths import StepGraph, StreamOps, WeightedCycle
from costmodel.step.groups import GroupKey
from costmodel.step.template import Template

CYCLE_TOLERANCE = 5e-3
"""Share of M by which a cycle may be heavier than M."""
OPTION_TOLERANCE = 1e-3
"""Share of M that the options left out may gain."""
MOST_ROUNDS = 150


def unlimited() -> Seconds:
    """Return an infinite time left."""
    return inf


@dataclass(frozen=True, slots=True, eq=False)
class OptionCycle:
    """A cycle's weight, with seconds of some options that their features do not give."""

    cycle: WeightedCycle
    options: Places = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """Numbers of these options in the whole problem, in order."""
    seconds: Vector = field(default_factory=lambda: np.zeros(0))
    """Seconds that each of them adds."""


@dataclass(eq=False)
class RelaxedStep:
    """The step of a plan whose tables may be divided over several options."""

    template: Template
    """Operations of all the plans."""
    options: BoundOptions
    """Options that tables can choose from."""
    index: FeatureIndex
    """Places of features of a plan."""
    memory: Vector
    """Bytes of every option, as a share of all ranks' memory."""
    present: frozenset[GroupKey] = frozenset()
    """Groups that all the plans have: their fixed costs count in full."""

    def features(self, shares: Vector) -> Vector:
        """Return a plan's features at some shares of options."""
        used = np.flatnonzero(shares)
        values = (self.options.values[used] * shares[used, None]).ravel()
        z = np.bincount(self._places[used].ravel(), values, self.index.size).astype(np.float64)
        z[self.index.fullest] = self.fullest.sent(shares)
        return z

    def weights(self, cycle: OptionCycle) -> Vector:
        """Return the seconds that every option adds to a cycle, without those of fullest ranks."""
        added = self._own_seconds(cycle)
        for rows, values, places in self._of_kernels:
            added[rows] += values @ cycle.cycle.weights[places]
        return added

    def even_weights(self, cycle: OptionCycle) -> Vector:
        """Return the seconds that every option adds to a cycle if all ranks send as much."""
        return self.weights(cycle) + self.fullest.evenly(cycle.cycle.weights)

    def weight(self, cycle: OptionCycle, z: Vector, shares: Vector) -> Seconds:
        """Return a cycle's weight at some shares of options, with their features."""
        return cycle.cycle.weight(z) + float(self._own_seconds(cycle) @ shares)

    def lightest(self, weights: Vector, free: Mask | None = None) -> Places:
        """Return the option of every table that weighs least, among those free (default: all)."""
        if free is not None:
            weights = np.where(free, weights, np.inf)
        return first_least(weights, self._starts)

    def play(
        self, total: Vector, most: int, free: Mask | None = None
    ) -> Iterator[tuple[Places, OptionCycle]]:
        """Yield cycles that are likely to bind, by fictitious play with tables (Brown, 1951).

        Every table takes its best option for all cycles played so far, and the heaviest cycle for
        all options taken so far comes next.

        Parameters
        ----------
        total
            Seconds that every option adds to the first cycle (``even_weights``).
        most
            How many cycles to yield.
        free
            Options that tables may take; by default all.

        Yields
        ------
            The options that tables take, and the cycle that comes next.

        """
        taken = np.zeros(len(total))
        for number in range(1, most + 1):
            lightest = self.lightest(total, free)
            taken[lightest] += 1.0
            cycle = OptionCycle(self.graph.heaviest(self.features(taken / number)))
            yield lightest, cycle
            total = total + self.even_weights(cycle)

    @cached_property
    def _starts(self) -> Places:
        """Number of the first option of every table."""
        return np.flatnonzero(is_first(self.options.table))

    @cached_property
    def fullest(self) -> FullestRanks:
        """Amounts that fullest ranks send."""
        return FullestRanks(self.index, self.options)

    @cached_property
    def largest(self) -> Vector:
        """Upper bounds of features over all plans."""
        largest = largest_features(self.options, self.index)
        largest[self.index.fullest] = self.fullest.most
        return largest

    @cached_property
    def graph(self) -> StepGraph:
        """Cycles of the device's streams."""
        streams = StreamOps(self.template, self.present)
        return StepGraph(streams, self.index, self.largest)

    @cached_property
    def _of_kernels(self) -> list[tuple[Places, Vector, Places]]:
        """Options of every kernel: their numbers, values, and the values' places in features."""
        return [
            (rows, self.options.values[rows], np.array(self.index.of_kernel(kernel)))
            for kernel, rows in self.options.of_kernels
        ]

    @cached_property
    def _places(self) -> Places:
        """Places of every option's values in features."""
        return self.index.places(self.options.kernels)[self.options.kernel]

    def _own_seconds(self, cycle: OptionCycle) -> Vector:
        """Return the seconds that every option adds to a cycle besides its features."""
        own, number = np.zeros(len(self.options.number)), self.options.number
        place = np.searchsorted(number, cycle.options)
        is_there = number[np.minimum(place, len(number) - 1)] == cycle.options
        own[place[is_there]] = cycle.seconds[is_there]
        return own


class StepProgram:
    """A linear program of the options and cycles that have joined so far."""

    def __init__(
        self,
        step: RelaxedStep,
        cycles: Iterable[OptionCycle],
        likely: Mask,
        *,
        unit: Seconds,
        most_memory: float,
        free: Mask | None = None,
        basis: ProgramBasis | None = None,
    ) -> None:
        """Begin with the options that are likely and free.

        And, without a basis, with the solution that there is if only the first cycle binds, and no
        memory.

        Parameters
        ----------
        step
            The step, and all options.
        cycles
            At least one.
        likely
            Options that have paid, or may be expected to.
        unit
            What 1 in the program stands for.
        most_memory
            What shares of options may use in all, as a share of what all ranks have.
        free
            Options that tables may choose from; by default all.
        basis
            That of a program of more options, or fewer.

        """
        self._step, free = step, np.ones(len(likely), dtype=bool) if free is None else free
        table, fullest = step.options.table, step.fullest
        self.unit = unit
        """Seconds that 1 in the program stands for."""
        self.cycles: list[OptionCycle] = []
        """Cycles that have joined."""
        self.options = OptionProgram(table, step.memory, most_memory, fullest.count)
        """The linear program over options."""
        self.options.allow(free, most_memory)
        fullest.begin(self.options)
        self._add(cycles)
        first = step.lightest(step.even_weights(self.cycles[0]), free)
        self.options.join(np.union1d(first, np.flatnonzero(likely & free)))
        if basis is None:
            means, tables = fullest.num_rows
            tight = [True] + [False] * (len(self.cycles) - 1)
            self.options.begin_with(first, [False] + [True] * means + [False] * tables + tight)
        else:
            self.options.begin_from(basis, step.options.number)

    def allow(self, free: Mask, most_memory: float, needed: Places) -> None:
        """Set the options and memory that tables may use; limits of fullest ranks are removed.

        Solutions begin from the last one's basis: the search's programs for another size of shards
        take half the time, and for the same ones hardly any.

        Parameters
        ----------
        free
            Options that tables may choose from.
        most_memory
            Share of all ranks' memory that shares of options may use.
        needed
            Options that have to have joined for a solution.

        """
        self._step.fullest.unlimit(self.options)
        self.options.allow(free, most_memory)
        self.options.join(needed)

    def solutions(
        self,
        heavier: Callable[[Vector, Seconds], Sequence[OptionCycle]],
        time_left: Callable[[], Seconds] = unlimited,
    ) -> Iterator[BestShares]:
        """Yield solutions, after each of which options, cycles or tables' rows join.

        The last is final.

        Parameters
        ----------
        heavier
            Returns cycles that are heavier than something at some shares of options.
        time_left
            Asked before every solution, which takes no longer than that.

        """
        strategy = DUAL
        for _ in range(MOST_ROUNDS):
            found = self.options.run(strategy, time_left())
            if found is None:
                return
            yield found
            paying = self.options.paying(found, OPTION_TOLERANCE)
            if len(paying):
                self.options.join(paying)
                strategy = PRIMAL
                continue
            cycles = heavier(found.shares, found.value * self.unit * (1 + CYCLE_TOLERANCE))
            if not cycles:
                return
            self._step.fullest.extend(self.options, found)
            self._add(cycles)
            strategy = DUAL

    def bound(self) -> Seconds:
        """Return a lower bound over all shares by the last solution (``OptionProgram.bound``)."""
        return self.unit * self.options.bound()

    def _add(self, cycles: Iterable[OptionCycle]) -> None:
        """Add the rows of cycles."""
        self.cycles += (new := list(cycles))
        self.options.add_rows(list(map(self._row, new)))

    def _row(self, cycle: OptionCycle) -> OptionRow:
        """Return a cycle as a row of the program: options' weights, and what fullest ranks send."""
        sent = self._step.fullest.coefficients(cycle.cycle.weights)
        weights, others = self._step.weights(cycle), np.concatenate(([1.0], -sent / self.unit))
        constant = cycle.cycle.constant / self.unit
        columns = np.arange(len(others))
        return OptionRow(constant, EVERY, -weights / self.unit, columns, others, cycle)
