"""Plans that shard all tables of one sharding type by another, or by the types used beside it.

Where batches are small, the step waits for the kernels and collectives that ranks launch: it is
shorter once the last table of a type is gone, and until then moves of few tables are in vain. So of
a plan that runs no longer shorten, all tables of a type change together: to another type, or each
to the cheapest of those left. These are some tens of plans of some milliseconds each, and a descent
goes on from the best of them. Tables of several kinds (data type, pooling, weights) have sharding
groups of their own, and also change kind by kind.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.step.cuts import TYPES, natures
from sharders.annealing.programs import better_filled
from sharders.annealing.type_options import TypeOptions
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.tuning import Found
from sharders.problem.sharding_problem import IMPROVED

Options = NDArray[np.int64]


class TypeChanges:
    """Descends over the sharding types of all tables of a type."""

    def __init__(self, engine: Engine, options: TypeOptions) -> None:
        self.engine, self.options, self.evaluated = engine, options, 0

    def descend(self, plan: Choices, is_over: Callable[[], bool]) -> list[Found]:
        """Return the plans that a descent looks at, best first.

        It goes to the best plan around, even if that is longer than the first one, which may be
        annealed as these are not; then on, as long as each is better than the one before.
        """
        looked_at: list[Found] = []
        best: Found = inf, plan
        while not is_over():
            around = sorted(self.around(best[1], is_over), key=lambda found: found[0])
            looked_at += around
            if not around or around[0][0] >= best[0] * (1 - IMPROVED):
                break
            best = around[0]
        return sorted(looked_at, key=lambda found: found[0])

    def around(self, plan: Choices, is_over: Callable[[], bool]) -> Iterator[Found]:
        """Yield the plans that differ in all tables of a type and fit in memory."""
        options, kind = np.array(plan.option), np.asarray(self.engine.search.tables.kind)
        seen = {options.tobytes()}
        for changed in self._changed(options, kind[options]):
            if is_over():
                return
            if changed.tobytes() in seen:
                continue
            seen.add(changed.tobytes())
            self.engine.offer(self.engine.types_of(Choices(changed, plan.ranks)))
            self.evaluated += 2
            found = better_filled(self.engine, changed)
            if found[0] < inf:
                yield found

    def _changed(self, options: Options, types: NDArray[np.int32]) -> Iterator[Options]:
        """Yield options with those of a type changed, of all tables or of one kind's."""
        is_left = np.isin(np.arange(len(TYPES)), types)
        for members in self._members:
            for own in np.unique(types[members]).tolist():
                some = np.flatnonzero(members & (types == own))
                for wanted in range(len(TYPES)):  # where that is their own: no type in particular
                    tier = np.where(is_left, 1, 2)
                    tier[wanted] = 0
                    changed = options.copy()
                    changed[some] = self._cheapest(some, tier, own, options[some])
                    yield changed

    def _cheapest(
        self, some: NDArray[np.intp], tier: NDArray[np.int64], left: int, otherwise: Options
    ) -> Options:
        """Return some tables' cheapest options of the first tier of types where they have any.

        Options of the type ``left`` do not count; tables without another one keep ``otherwise``.
        """
        prices = self.options.prices[:, some]
        prices = prices + tier[:, None] * prices[np.isfinite(prices)].max()
        prices[left] = inf
        cheapest = self.options.numbers[prices.argmin(axis=0), some]
        return np.where(np.isfinite(prices.min(axis=0)), cheapest, otherwise)

    @cached_property
    def _members(self) -> list[NDArray[np.bool_]]:
        """Sets of tables that may change together: all, and those of each of several kinds."""
        kinds, examples = natures(self.engine.problem.workload.tables)
        every = np.ones(len(kinds), dtype=bool)
        if len(examples) == 1:
            return [every]
        return [every, *(kinds == kind for kind in range(len(examples)))]
