"""Plans of a set of sharding types, by how many columns the fullest ranks send.

A group's collectives wait for the rank that sends most columns: the group's *level*. Ranks send
whole shards, so that a plan is good if all ranks are filled to the levels: where all tables have 32
columns, each with one shard of 16 columns of one type and three of another, say. From these levels
to others all ranks have to change at once, which no moves of few tables do.

So levels are chosen before, those whose plans have the shortest steps once tables are placed. A
program solved for other levels goes on from its last solution: each takes 5 ms at 320 tables on 128
GPUs, plan included.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from sharders.annealing.programs import APART, COARSE, Programs, SolvedSet
from sharders.greedy.tuning import Found, Parameters
from sharders.lp.offered_program import Levels

Level: TypeAlias = NDArray[np.float64]
"""Columns that the fullest rank of every group sends, (groups,)."""
MOST = 40
"""Largest number of levels that are tried of a set."""
BEHIND = 1.01
"""Levels beside a plan's are tried if its step is at most this multiple of the shortest one of any
set's plans by levels."""
ROUNDED = 1e-3
"""Share of a unit by which levels are reduced, against rounding."""


class LevelSearch:
    """Tries levels of a set of sharding types; those beside the best ones come next."""

    def __init__(
        self, programs: Programs, type_bits: int, solved: SolvedSet, is_over: Callable[[], bool]
    ) -> None:
        """Try none yet; ``is_over`` is called before each try: whether the budget is spent."""
        self._programs, self._types, self._solved = programs, type_bits, solved
        self._is_over = is_over
        self._times: dict[tuple[float, ...], Seconds] = {}
        """Step time of the plan of every level tried, infinite if none fits."""
        self._best: Found | None = None
        self._rules: Sequence[Parameters] = (COARSE, APART)
        """Rules that place the first plans."""
        self._best_rules: Sequence[Parameters] = self._rules
        """Rules that place the plans beside them: the rule of the best plan so far."""

    def run(self, others: Seconds) -> Found | None:
        """Return the best plan; None: there is none.

        ``others`` is the shortest step of other sets' plans by levels.
        """
        levels = self._programs.levels(self._types, self._solved)
        begins = [] if levels is None else list(_begins(levels))
        if levels is None or not begins:
            return None
        _, units = min(begins, key=lambda begin: self._time(levels, begin[0]))
        self._rules = self._best_rules
        moves, beside = list(_moves(units)), set()
        while self._best is not None and len(self._times) < MOST and not self._is_over():
            left = [level for level in self._times if level not in beside]
            level = min(left, key=self._times.__getitem__, default=None)
            if level is None or self._times[level] > BEHIND * min(others, self._best[0]):
                break
            beside.add(level)
            for move in moves:
                self._time(levels, np.array(level) + move)
        return self._best

    def _time(self, levels: Levels, level: Level) -> Seconds:
        """Return the step time of the plan for some levels; infinite if there is none."""
        key = tuple(level.tolist())
        if key not in self._times:
            if min(key) < 0 or len(self._times) == MOST or self._is_over():
                return inf
            relaxed, self._times[key] = levels.at(level), inf
            if relaxed is not None:
                plans = self._programs.plans_of(self._types, relaxed, self._rules)
                found, rule = min(zip(plans, self._rules, strict=True), key=lambda each: each[0][0])
                self._times[key] = found[0]
                if found[0] < (self._best[0] if self._best else inf):
                    self._best, self._best_rules = found, [rule]
        return self._times[key]


def _begins(levels: Levels) -> Iterator[tuple[Level, Level]]:
    """Yield the columns of mean ranks rounded up to ever larger units, and the units, (groups,)."""
    unit, widest = levels.blocks.min(initial=inf), levels.widest.max(initial=0.0)
    while unit <= widest:
        units = np.maximum(unit, levels.blocks)
        yield np.ceil(levels.means / units - ROUNDED) * units, units
        unit *= 2


def _moves(units: Level) -> Iterator[Level]:
    """Yield differences of neighbouring levels: one unit more, less, or in another group."""
    of_groups = np.diag(units)
    for one in of_groups:
        yield -one
        yield one
    for one in range(len(units)):
        for other in range(len(units)):
            if one != other:
                yield of_groups[one] - of_groups[other]
