"""Plans whose tables of a kind all have one sharding type.

Tables that differ in data type, pooling or weights are of different *kinds*: they have sharding
groups or lookup kernels of their own, and each of these costs all ranks. Where batches are small
that decides: then all tables of a kind are best sharded by one type, often different kinds by
different types, and neither moves of a few tables nor sets of types get there. Such plans are few,
and one is made in some milliseconds.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from math import inf
from typing import TypeAlias

import numpy as np

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingType
from costmodel.step.cuts import KINDS, TYPES, natures
from sharders.annealing.programs import EVERY_TYPE, better_filled
from sharders.annealing.type_options import TypeOptions
from sharders.engine.search_engine import Engine
from sharders.greedy.tuning import Found

DESCENTS = 3
"""Number of plans of one or two types from which a descent starts, the best ones."""
USUAL = KINDS[ShardingType.COLUMN_WISE]
"""The type of kinds that cannot have the type of the others: unpooled tables can."""
KindChoice: TypeAlias = tuple[int, ...]
"""The sharding type of every kind, by its place in ``TYPES``."""


class KindTypes:
    """Chooses a sharding type for every kind of tables, of which there must be several."""

    def __init__(self, engine: Engine, options: TypeOptions) -> None:
        self.engine, self.options, self.evaluated = engine, options, 0
        self._kinds, examples = natures(engine.problem.workload.tables)
        self.is_one_kind = len(examples) == 1
        self._times: dict[KindChoice, Seconds] = {}

    @cached_property
    def _types(self) -> list[list[int]]:
        """The types that tables of each kind have options of."""
        has = self.options.numbers >= 0
        return [
            [t for t in range(len(TYPES)) if has[t, self._kinds == kind].any()]
            for kind in range(int(self._kinds.max()) + 1)
        ]

    @cached_property
    def _every_type(self) -> list[int]:
        """The types that any kind has."""
        return sorted({t for own in self._types for t in own})

    @cached_property
    def _together(self) -> list[list[int]]:
        """Sets of kinds that change their types together: each alone, and those sharing groups."""
        groups = np.asarray(self.engine.search.tables.group)
        sharing: dict[tuple[int, ...], list[int]] = {}
        for kind, own in enumerate(self._types):
            options = self.options.numbers[own][:, self._kinds == kind].max(axis=1)
            sharing.setdefault(tuple(groups[options].tolist()), []).append(kind)
        alone = [[kind] for kind in range(len(self._types))]
        return alone + [kinds for kinds in sharing.values() if len(kinds) > 1]

    def first(self) -> Found:
        """Return the best plan that has one type for all kinds that can have it."""
        return self._plan(min((self._paired(t, USUAL) for t in self._every_type), key=self._time))

    def descents(self) -> Iterator[Found | None]:
        """Yield the plan at the end of every descent, and None after each plan on the way.

        A descent goes to the best plan around as long as that is better. Descents start from the
        best plans that have two types, one for the kinds that cannot have the other.
        """
        begins = sorted({
            self._paired(t, other) for t, other in product(self._every_type, repeat=2)
        })
        yield from self._timed(begins)
        begins.sort(key=self._time)
        ends: set[KindChoice] = set()
        for choice in begins[:DESCENTS]:
            best, is_end = choice, False
            while not is_end:
                around = self._around(best)
                yield from self._timed(around)
                better = min([best, *around], key=self._time)
                best, is_end = better, better == best
            if best not in ends and self._time(best) < inf:
                ends.add(best)
                yield self._plan(best)

    def _paired(self, t: int, other: int) -> KindChoice:
        """Return the choice of one type for kinds that can have it, and of another for the rest."""
        return tuple(t if t in own else other if other in own else own[0] for own in self._types)

    def _around(self, choice: KindChoice) -> list[KindChoice]:
        """Return the choices that differ in the type of one kind, or of kinds that share groups."""
        around = []
        for kinds in self._together:
            for t in self._types[kinds[0]]:
                types = list(choice)
                for kind in kinds:
                    types[kind] = t if t in self._types[kind] else types[kind]
                around.append(tuple(types))
        return [other for other in dict.fromkeys(around) if other != choice]

    def _timed(self, choices: list[KindChoice]) -> Iterator[None]:
        """Time the plans of new choices, yielding after each."""
        for choice in choices:
            if choice not in self._times:
                self._time(choice)
                yield None

    def _time(self, choice: KindChoice) -> Seconds:
        """Return the step time of a choice's plan; infinite if no plan fits."""
        if choice not in self._times:
            self._times[choice], _ = self._plan(choice)
        return self._times[choice]

    def _plan(self, choice: KindChoice) -> Found:
        """Return the better one of two plans of a choice, with kernels apart and without."""
        self.engine.offer(EVERY_TYPE)
        options = self.options.numbers[np.array(choice)[self._kinds], np.arange(len(self._kinds))]
        self.evaluated += 2
        return better_filled(self.engine, options)
