"""The problem that a bound solves: options of all tables, and the cycles they weigh on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes
from costmodel.bounds.feature_index import FeatureIndex, Vector, largest_features
from costmodel.bounds.master import Game, Prices, Solved, TableChoice
from costmodel.bounds.option_features import BoundOptions
from costmodel.bounds.paths import StepGraph, StreamOps, WeightedCycle
from costmodel.bounds.program_cycles import ProgramCycles
from costmodel.memory.rank_memory import rank_rooms
from costmodel.step.groups import GroupKey
from costmodel.step.synthesis import Templates
from costmodel.step.template import Template

MOST_SHARDS = 24
"""Tables whose largest shard gets a cycle of its own: those that take longest."""
MOST_ROUNDS = 150
TOLERANCE = 2e-4
"""Where to stop: what is left to gain, relatively."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Relaxation:
    """The plans that have some groups, and lack others."""

    templates: Templates
    options: BoundOptions
    """What tables can choose from in these plans."""
    index: FeatureIndex
    """Where features of any plan are."""
    room: Bytes
    """What all ranks have for tables."""
    present: frozenset[GroupKey] = frozenset()
    """Groups that all of these plans have."""

    @classmethod
    def of(cls, templates: Templates, options: BoundOptions) -> "Relaxation | None":
        """Return the problem of all plans; None where a table has no shard that fits on a rank."""
        rooms = rank_rooms(templates.workload, templates.topology)
        some = options.some(options.largest <= max(rooms) * (1.0 + _ROUNDING))
        if some is None:
            return None
        return cls(templates, some, FeatureIndex(some.signature()), max(1.0, sum(rooms)))

    def restricted(
        self, present: frozenset[GroupKey], absent: frozenset[GroupKey]
    ) -> "Relaxation | None":
        """Return the problem of the plans with some groups, without others; None: there are none.

        Not that any table has to be in the groups that are there: only what they cost counts.
        """
        lacking = np.array([group in absent for group, _ in self.options.kernels])
        some = self.options.some(~lacking[self.options.kernel])
        return None if some is None else replace(self, options=some, present=present)

    @property
    def has_room(self) -> bool:
        """Whether all tables fit into all memory together, each in its smallest option."""
        return float(np.minimum.reduceat(self._memory, self._starts).sum()) <= 1.0 + _ROUNDING

    def maximum(self, parent: Solved, should_stop: Callable[[], bool]) -> Solved:
        """Return the largest bound that weights of cycles give, and the mixture that attains it.

        ``parent``: what was found of plans that these are some of.
        """
        prices = parent.prices or (self._no_prices,)
        choices = [self._cheapest(each) for each in prices]
        z = choices[0].z
        cycles = [*parent.cycles, *self._program.heaviest(z), self._graph.host()]
        if not parent.cycles:
            cycles += [self._graph.direct(z), self._graph.heaviest(z)]
        owns = [each for each in (parent.own, *cycles) if each is not None and each.lookups]
        own = max(owns, key=lambda cycle: cycle.floor + float(cycle.common @ z))
        tables = len(self._starts), self._large
        game = Game(tables, own, max(cycle.weight(z) for cycle in cycles))
        for cycle in cycles:
            game.add_cycle(cycle)
        for choice in choices:
            game.add_choice(choice)
        return self._played(game, should_stop)

    def _played(self, game: Game, should_stop: Callable[[], bool]) -> Solved:
        """Return what a game comes to, with the cycles and choices that it needs."""
        best, mixture = 0.0, self._cheapest(self._no_prices).z
        for _ in range(MOST_ROUNDS):
            solution = game.solve()
            if solution is None:
                break
            value, prices, mixture = solution
            choice = self._cheapest(prices)
            best = max(best, game.worth(choice))
            heavier = self._heavier(mixture, value * (1 + TOLERANCE))
            if (value <= best * (1 + TOLERANCE) and not heavier) or should_stop():
                break
            game.add_choice(choice)
            for cycle in heavier:
                game.add_cycle(cycle)
        return game.solved(best, mixture)

    def _heavier(self, z: Vector, than: float) -> list[WeightedCycle]:
        """Return cycles that are heavier than something for given features.

        Where no group is decided yet, those of streams alone come first, as host threads have
        little to say there; parts of the plans begin with those that had weight.
        """
        found: list[WeightedCycle] = []
        if not self.present:
            found = [each for each in (self._graph.heaviest(z),) if each.weight(z) > than]
        if not found:
            found = [e for e in self._program.heaviest(z, than) if e.weight(z) > than]
        return found

    def _cheapest(self, prices: Prices) -> TableChoice:
        """Return the cheapest option of every table."""
        options = self.options
        cost = (options.values * prices.features[self._places]).sum(axis=1)
        cost += prices.memory * self._memory + prices.shards[options.table] * options.alone
        least = np.minimum.reduceat(cost, self._starts)
        hits = np.flatnonzero(cost <= least[options.table])
        chosen = hits[np.flatnonzero(np.diff(options.table[hits], prepend=-1))]
        values, size = options.values[chosen].ravel(), self.index.size
        return TableChoice(
            prices=prices,
            z=np.bincount(self._places[chosen].ravel(), values, size).astype(np.float64),
            memory=float(self._memory[chosen].sum()) - 1.0 - _ROUNDING,
            shards=options.alone[chosen[self._large]],
        )

    @cached_property
    def _no_prices(self) -> Prices:
        """All features cost the same."""
        return Prices(np.ones(self.index.size), 0.0, np.zeros(len(self._starts)))

    @cached_property
    def _starts(self) -> NDArray[np.intp]:
        """First option of every table."""
        return np.flatnonzero(np.diff(self.options.table, prepend=-1))

    @cached_property
    def _memory(self) -> Vector:
        """Bytes of every option, as a share of the room."""
        return self.options.memory / self.room

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """Where every option's values are in z."""
        return self.index.places(self.options.kernels)[self.options.kernel]

    @cached_property
    def _large(self) -> NDArray[np.intp]:
        """Tables with a cycle of their own."""
        shortest = np.minimum.reduceat(self.options.alone, self._starts)
        return np.argsort(shortest)[::-1][:MOST_SHARDS]

    @cached_property
    def _template(self) -> Template:
        return self.templates.of(self.options.signature())

    @cached_property
    def _largest(self) -> Vector:
        options = self.options
        return largest_features(options.table, self._places, options.values, self.index.size)

    @cached_property
    def _graph(self) -> StepGraph:
        streams = StreamOps(self._template)
        return StepGraph(streams, self.index, self._largest, self.present)

    @cached_property
    def _program(self) -> ProgramCycles:
        busy = self.options.busy_shares(self.present)
        return ProgramCycles(self._template, self.index, self._largest, self.present, busy)
