"""Linear programs of sets of sharding types, and plans of the options that they choose.

A program knows the lookups of the mean rank only (``sharders.lp.offered_program``): a shard that is
half the work of a group is to it as good as many small ones. So options with large shards are left
out, and several limits of their size are tried for every set of types.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingType
from costmodel.step.cuts import KINDS, TYPES
from sharders.engine.search_engine import Engine
from sharders.greedy.tuning import NEUTRAL, Found, Parameters, kernels_apart
from sharders.lp.offered_program import Levels, LpOptions, OfferedProgram, Relaxed, ranked_by_share

EVERY_TYPE = (1 << len(TYPES)) - 1
"""The bits of all sharding types."""
WHOLE = 1 << KINDS[ShardingType.TABLE_WISE]
"""Bit of whole tables, which the first set may have besides its own types."""
LARGEST = (inf, 2.0, 1.0, 0.5, 0.25, 0.125)
"""Limits of a shard's load that are tried, as a share of a balanced rank's."""
USUAL = LARGEST.index(0.5)
"""Place of the limit that is tried first."""
KEPT = 16
"""Number of programs kept, as sets that look best are solved again for other limits."""
UNEVEN, MOST = 0.1, 4.0
"""A step is expected to be longer than its program says, by ``UNEVEN`` at a limit of 1 and in
proportion up to a limit of ``MOST``."""
COARSE: Parameters = {**NEUTRAL, "split_above": 4.0, "replicate_below": 0.0}
"""The rule, with hardly any splits, for tables whose program options do not fit."""
APART = kernels_apart(COARSE)


class SolvedSet(NamedTuple):
    """The solution of a set's program."""

    expected: Seconds
    """Step that plans of its options may take: the program's value, and ``UNEVEN`` more."""
    options: NDArray[np.intp]
    """The option of every table with the largest share, by its place in the problem's arrays."""
    memory: float
    """Share of all memory that these options take."""
    prices: Array
    """Price of every option of the engine (``Relaxed.prices``)."""
    limit: int
    """Limit of shards' loads, by its place in ``LARGEST``."""


class _Set(NamedTuple):
    """The options of a set of sharding types."""

    type_bits: int
    """Bits of the types."""
    step: OfferedProgram
    """Its program: cycles found for one limit serve for others."""
    sizes: Array
    """Load of every option's largest shard, in the unit of ``LARGEST``; 0 for a table's smallest
    ones, which are always in the program; NaN: not of these types."""


class Programs:
    """The linear programs of sets of sharding types, over the options of an engine."""

    def __init__(self, engine: Engine) -> None:
        """Describe no options yet."""
        self.engine, self.evaluated = engine, 0
        self._described = 0
        """Bits of the types whose options are described."""
        self._sets: dict[int, _Set] = {}
        """Sets solved last, by types; at most ``KEPT``."""
        self._usual = USUAL
        """Place of the limit that was best for the last set."""

    def estimate(self, type_bits: int) -> SolvedSet | None:
        """Return the solution of a set's program for one limit; None: there is no room.

        It is the limit that was best for the last set, or no limit if that leaves no room.
        """
        self._describe(type_bits)
        for limit in (self._usual, 0):
            relaxed = self._limited(type_bits, LARGEST[limit])
            if relaxed is not None:
                return self._read(relaxed, relaxed.of_blocks * _unevenness(limit), limit)
        return None

    def solve(self, type_bits: int) -> SolvedSet | None:
        """Return the solution of a set's program for the best limit; None: there is no room.

        Limits are tried from the last set's on, first larger and then smaller ones.
        """
        self._describe(type_bits)
        solved: dict[int, Relaxed | None] = {}
        expected: dict[int, Seconds] = {}
        for step in (-1, 1):
            at = self._usual
            while 0 <= at < len(LARGEST):
                if at not in solved:
                    solved[at] = relaxed = self._beside(type_bits, at, at - step, solved)
                    expected[at] = inf if relaxed is None else relaxed.of_blocks * _unevenness(at)
                if expected[at] > min(expected.values()):
                    break
                at += step
            if min(expected.values()) == inf:
                return None
        best = min(expected, key=expected.__getitem__)
        self._usual, found = best, solved[best]
        return None if found is None else self._read(found, expected[best], best)

    def plan(self, type_bits: int, solved: SolvedSet, *, may_overfill: bool = False) -> Found:
        """Return a plan of a program's options, or of others of these types where they do not fit.

        Its time is infinite if no plan fits. With ``may_overfill`` it then takes more memory than
        there is: annealing may make it fit.
        """
        engine = self._offered(type_bits)
        numbers = engine.arrays.number_of[solved.options]
        return better_filled(engine, numbers, may_overfill=may_overfill)

    def levels(self, type_bits: int, solved: SolvedSet) -> Levels | None:
        """Return a set's program by levels, for the best limit; None: no room."""
        some = self._options(type_bits)
        return some.step.levels(some.sizes <= LARGEST[solved.limit])

    def plans_of(
        self, type_bits: int, relaxed: Relaxed, rules: Sequence[Parameters]
    ) -> list[Found]:
        """Return plans of the options with the largest shares, placed by some rules.

        Their times are infinite where there is no room.
        """
        engine, options = self._offered(type_bits), self.choices.numbers[self._first(relaxed)]
        numbers = engine.arrays.number_of[options]
        return [(engine.fill(rule, numbers), engine.present()) for rule in rules]

    def _offered(self, type_bits: int) -> Engine:
        """Return the engine, set to make plans of some types."""
        self.engine.offer(type_bits)
        self.evaluated += 1
        return self.engine

    def _describe(self, type_bits: int) -> None:
        """Describe the options of all types, unless those of ``type_bits`` are described already.

        For the first set, only those of its types and ``WHOLE``: describing all takes longer than
        all else before the first plans, 0.3 of 1.2 CPU seconds at 978 tables on 128 GPUs.
        """
        if not type_bits & ~self._described:
            return
        type_bits, problem = EVERY_TYPE if self._described else type_bits, self.engine.problem
        self._described = type_bits | WHOLE
        self.choices, self._sets = (
            LpOptions.of(problem, _types_of_bits(type_bits), _types_of_bits(WHOLE)),
            {},
        )
        self._number = self.engine.arrays.number_of[self.choices.numbers]
        """The engine's number of every option; -1: it has none."""
        self._kind = 1 << self.choices.kind
        arrays = problem.groundwork.arrays
        balanced = max(arrays.balanced_load, float(np.finfo(float).tiny))
        self._load = arrays.shard_load[self.choices.numbers] / balanced
        """Load of every option's largest shard, in the unit of ``LARGEST``."""

    def _limited(self, type_bits: int, largest: float) -> Relaxed | None:
        """Return the solution for some types, without options of larger shards."""
        some = self._options(type_bits)
        return some.step.solve(some.sizes <= largest)

    def _beside(
        self, type_bits: int, limit: int, other: int, solved: Mapping[int, Relaxed | None]
    ) -> Relaxed | None:
        """Return the solution for a limit, that of another limit if it is the same."""
        if other in solved:
            sizes = self._options(type_bits).sizes
            wanted, had = (sizes <= LARGEST[at] for at in (limit, other))
            before, is_part = solved[other], not (wanted & ~had).any()
            if is_part and (before is None or not before.shares[~wanted].any()):
                return before
        return self._limited(type_bits, LARGEST[limit])

    def _options(self, type_bits: int) -> "_Set":
        """Return the engine's options of some types; all of a table that has none of these."""
        if type_bits not in self._sets:
            if len(self._sets) == KEPT:
                del self._sets[next(iter(self._sets))]
            offered = self.choices.some((self._kind & type_bits) > 0) & (self._number >= 0)
            table, loads = self.choices.table, np.where(offered, self._load, np.nan)
            least = np.full(len(self.engine.problem.workload.tables), inf)
            np.minimum.at(least, table[offered], loads[offered])
            sizes = np.where(loads <= least[table], 0.0, loads)
            self._sets[type_bits] = _Set(type_bits, OfferedProgram(self.choices, offered), sizes)
        return self._sets[type_bits]

    def _read(self, relaxed: Relaxed, expected: Seconds, limit: int) -> SolvedSet:
        """Return a program's solution as a ``SolvedSet``."""
        first = self._first(relaxed)
        memory = float(self.choices.memory[first].sum())
        prices = np.full(len(self.engine.arrays.tables.cost), inf)
        known = self._number >= 0
        prices[self._number[known]] = relaxed.prices[known]
        return SolvedSet(expected, self.choices.numbers[first], memory, prices, limit)

    def _first(self, relaxed: Relaxed) -> NDArray[np.intp]:
        """Return the option of every table with the largest share, by its place in choices."""
        ranked, begins = ranked_by_share(self.choices, relaxed.shares)
        return ranked[begins]


def better_filled(
    engine: Engine, options: NDArray[np.int64], *, may_overfill: bool = False
) -> Found:
    """Return the better of two plans of some options, with lookup kernels apart and without.

    ``Engine.fill`` places them; with ``may_overfill`` the plan may overfill memory if neither fits.
    """
    apart = engine.fill(APART, options), engine.present()
    usual = engine.fill(COARSE, options, may_overfill=may_overfill), engine.present()
    return min(usual, apart, key=lambda each: each[0])


def _types_of_bits(type_bits: int) -> set[ShardingType]:
    """Return the sharding types of some bits."""
    return {kind for number, kind in enumerate(TYPES) if type_bits >> number & 1}


def _unevenness(limit: int) -> float:
    """Return the factor of plans' expected times over a program's value, at a limit."""
    return 1 + UNEVEN * min(LARGEST[limit], MOST)
