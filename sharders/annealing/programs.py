"""Linear programs of sets of sharding types, and plans of the options that they choose.

A program knows the lookups of the mean rank only (``sharders.lp.offered_program``): a shard that is
half the work of a group is to it as good as many small ones. So options with large shards are left
out, and how large they may be is tried for every set of types.
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
"""The bit of whole tables, which the first set may have beside its own types."""
LARGEST = (inf, 2.0, 1.0, 0.5, 0.25, 0.125)
"""Load that a shard may have at most, as a share of a balanced rank's. With the best of these, six
CPU seconds end 20% lower at 57 tables on 128 GPUs, 2 to 6% at 53, 125 and 158, and 1.5% in the mean
of 20 problems; where tables are many, hardly any shards are as large."""
USUAL = LARGEST.index(0.5)
"""Tried first."""
KEPT = 16
"""Programs that are kept, as those of sets that look best are solved again for other limits."""
UNEVEN, MOST = 0.1, 4.0
"""Share by which a step is expected to be longer than its program says, for a limit of 1, and of
which limits on it is no longer: so one is chosen from whose plan runs end lowest, or nearly so, on
12 of 14 problems."""
COARSE: Parameters = {**NEUTRAL, "split_above": 4.0, "replicate_below": 0.0}
"""Hardly any splits: the rule for tables that find no room as the program has them."""
APART = kernels_apart(COARSE)


class SolvedSet(NamedTuple):
    """What a program says."""

    expected: Seconds
    """Step that plans of its options may take: what none is faster than, and ``UNEVEN`` more."""
    options: NDArray[np.intp]
    """The option of every table with the largest share, by its place in the problem's arrays."""
    memory: float
    """Share of all memory that these take."""
    prices: Array
    """What makes every option that the engine has dear (``Relaxed.prices``)."""
    limit: int
    """How large shards may be, by its place in ``LARGEST``."""


class _Set(NamedTuple):
    """The options of a set of types."""

    types: int
    """Their bits."""
    step: OfferedProgram
    """Its program: cycles found for one size of shards serve for others."""
    sizes: Array
    """Load of every option's largest shard, as ``LARGEST`` has it; 0 of those that are a table's
    smallest, which are always in the program; not a number: not of these types."""


class Programs:
    """The linear programs of sets of sharding types, over the options of an engine."""

    def __init__(self, engine: Engine) -> None:
        """Describe no options yet."""
        self.engine, self.evaluated = engine, 0
        self._described = 0
        """Bits of the types whose options are described."""
        self._sets: dict[int, _Set] = {}
        """Those solved last, by their types; at most ``KEPT``."""
        self._usual = USUAL
        """The limit that was best for the set before, by its place in ``LARGEST``."""

    def estimate(self, types: int) -> SolvedSet | None:
        """Return what the program of some types says for one limit; None: there is no room.

        That is the limit that was best for the set before, or none if that leaves no room.
        """
        self._describe(types)
        for limit in (self._usual, 0):
            relaxed = self._limited(types, LARGEST[limit])
            if relaxed is not None:
                return self._read(relaxed, relaxed.of_blocks * _unevenly(limit), limit)
        return None

    def solve(self, types: int) -> SolvedSet | None:
        """Return what the program of some types says, for the best limit; None: there is no room.

        Limits are tried from the one before's on, first coarser and then finer ones.
        """
        self._describe(types)
        solved: dict[int, Relaxed | None] = {}
        expected: dict[int, Seconds] = {}
        for step in (-1, 1):
            at = self._usual
            while 0 <= at < len(LARGEST):
                if at not in solved:
                    solved[at] = relaxed = self._beside(types, at, at - step, solved)
                    expected[at] = inf if relaxed is None else relaxed.of_blocks * _unevenly(at)
                if expected[at] > min(expected.values()):
                    break
                at += step
            if min(expected.values()) == inf:
                return None
        best = min(expected, key=expected.__getitem__)
        self._usual, found = best, solved[best]
        return None if found is None else self._read(found, expected[best], best)

    def plan(self, types: int, solved: SolvedSet, *, may_overfill: bool = False) -> Found:
        """Return a plan of a program's options, others of these types where they have no room.

        Where those have none, either, its time is infinite. It may then take more memory than there
        is: annealing may get it to fit. At 49 tables on 32 GPUs where that is full it does, and ten
        CPU seconds end 7% lower, in the mean of 20 such problems 0.5%.
        """
        engine = self._offered(types)
        numbers = engine.arrays.number_of[solved.options]
        return better_filled(engine, numbers, may_overfill=may_overfill)

    def levels(self, types: int, solved: SolvedSet) -> Levels | None:
        """Return the program of some types by levels, for the best limit; None: no room."""
        some = self._options(types)
        return some.step.levels(some.sizes <= LARGEST[solved.limit])

    def plans_of(self, types: int, relaxed: Relaxed, rules: Sequence[Parameters]) -> list[Found]:
        """Return plans of the options of some types that have the largest shares, by some rules.

        Their times are infinite where there is no room.
        """
        engine, options = self._offered(types), self.choices.numbers[self._first(relaxed)]
        numbers = engine.arrays.number_of[options]
        return [(engine.fill(rule, numbers), engine.present()) for rule in rules]

    def _offered(self, types: int) -> Engine:
        """Return the engine, which is to make a plan of some types."""
        self.engine.offer(types)
        self.evaluated += 1
        return self.engine

    def _describe(self, types: int) -> None:
        """Describe the options of all types, but for the first set only those it has, or may have.

        Describing all takes longer than all else before the first plans: 0.3 of 1.2 CPU seconds at
        978 tables on 128 GPUs. The first set may have whole tables (``TypeSets``): to describe
        them later, and all else with them, puts off the first plan by 0.1 CPU seconds at 950 tables
        that may be in host memory, too.
        """
        if not types & ~self._described:
            return
        types, problem = EVERY_TYPE if self._described else types, self.engine.problem
        self._described = types | WHOLE
        self.choices, self._sets = LpOptions.of(problem, _kinds(types), _kinds(WHOLE)), {}
        self._number = self.engine.arrays.number_of[self.choices.numbers]
        """The engine's number of every option; -1: it has none."""
        self._kind = 1 << self.choices.kind
        arrays = problem.groundwork.arrays
        balanced = max(arrays.balanced_load, float(np.finfo(float).tiny))
        self._load = arrays.shard_load[self.choices.numbers] / balanced
        """Load of every option's largest shard, as ``LARGEST`` has it."""

    def _limited(self, types: int, largest: float) -> Relaxed | None:
        """Solve the program of some types, without options whose shards are larger."""
        some = self._options(types)
        return some.step.solve(some.sizes <= largest)

    def _beside(
        self, types: int, limit: int, other: int, solved: Mapping[int, Relaxed | None]
    ) -> Relaxed | None:
        """Solve for one limit, unless what was solved for another one is solved for this, too."""
        if other in solved:
            sizes = self._options(types).sizes
            wanted, had = (sizes <= LARGEST[at] for at in (limit, other))
            before, is_part = solved[other], not (wanted & ~had).any()
            if is_part and (before is None or not before.shares[~wanted].any()):
                return before
        return self._limited(types, LARGEST[limit])

    def _options(self, types: int) -> "_Set":
        """Return the options of some types that the engine has; all of a table without these."""
        if types not in self._sets:
            if len(self._sets) == KEPT:
                del self._sets[next(iter(self._sets))]
            offered = self.choices.some((self._kind & types) > 0) & (self._number >= 0)
            table, loads = self.choices.table, np.where(offered, self._load, np.nan)
            least = np.full(len(self.engine.problem.workload.tables), inf)
            np.minimum.at(least, table[offered], loads[offered])
            sizes = np.where(loads <= least[table], 0.0, loads)
            self._sets[types] = _Set(types, OfferedProgram(self.choices, offered), sizes)
        return self._sets[types]

    def _read(self, relaxed: Relaxed, expected: Seconds, limit: int) -> SolvedSet:
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
    """Return the better one of two plans of some options, with lookup kernels apart and without.

    As ``Engine.fill`` has them; where neither has room, what is returned may overfill memory.
    """
    apart = engine.fill(APART, options), engine.present()
    usual = engine.fill(COARSE, options, may_overfill=may_overfill), engine.present()
    return min(usual, apart, key=lambda each: each[0])


def _kinds(types: int) -> set[ShardingType]:
    """Return the sharding types with some bits."""
    return {kind for number, kind in enumerate(TYPES) if types >> number & 1}


def _unevenly(limit: int) -> float:
    """Return how many times a program's value its plans are expected to take, for a limit."""
    return 1 + UNEVEN * min(LARGEST[limit], MOST)
