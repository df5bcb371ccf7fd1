"""Plans of a set of sharding types, by how many columns the fullest ranks send.

A group's collectives wait for the rank that sends most columns: the group's *level*. Ranks send
whole shards, so that a plan is good if all ranks are filled to the levels: where all tables have 32
columns, each with one shard of 16 columns of one type and three of another, say. From these levels
to others all ranks have to change at once, which no moves of few tables do.

So levels are chosen before, those whose plans have the shortest steps as they are filled in. A
program solved for other levels goes on from its last solution: each takes 5 ms at 320 tables on 128
GPUs, plan included, and there the best of 40 such plans takes 23.99 ms (the program's own 25.8,
which a minute of annealing brought to 24.05).

In the mean of 33 problems one, two, three and four CPU seconds end 0.21, 0.24, 0.32 and 0.23% lower
(64 runs, standard errors 0.20, 0.15, 0.13 and 0.09%): after four 0.9 and 2.1% off at the 90th
percentile and at worst, not 1.2 and 4.4. Tried of the best plans' sets alone, levels came too late:
0.1% after four. Tried without gain: plans of the three best levels; that of the program's own, too;
the program's prices for the best levels; more levels, beside those of plans that runs no longer
shorten.
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
"""Levels that are tried of a set."""
BEHIND = 1.01
"""Times the shortest step of any set's plans by levels, up to which levels beside a plan's are
tried. While it was 1.03 times the shortest one of the same set, searches tried 8% fewer plans in
four CPU seconds, and ended as low.
"""
ROUNDED = 1e-3
"""Share of a unit that levels leave out."""


class LevelSearch:
    """Tries levels of a set of sharding types, those beside the best ones next."""

    def __init__(
        self, programs: Programs, types: int, solved: SolvedSet, is_over: Callable[[], bool]
    ) -> None:
        """Try none yet; ``is_over`` is asked before each, whether the budget is spent."""
        self._programs, self._types, self._solved = programs, types, solved
        self._is_over = is_over
        self._times: dict[tuple[float, ...], Seconds] = {}
        """Step time of every level's plan that was tried, infinite where there is no room."""
        self._best: Found | None = None
        self._rules: Sequence[Parameters] = (COARSE, APART)
        """Plans are filled in by these, the first ones by both,"""
        self._best_rules: Sequence[Parameters] = self._rules
        """and those beside by what the best one was filled in by."""

    def run(self, others: Seconds) -> Found | None:
        """Return the best plan; None: there is none.

        ``others``: the shortest step of other sets' plans by levels.
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
    """Yield what mean ranks send, rounded up to ever larger units; and these, (groups,)."""
    unit, widest = levels.blocks.min(initial=inf), levels.widest.max(initial=0.0)
    while unit <= widest:
        units = np.maximum(unit, levels.blocks)
        yield np.ceil(levels.means / units - ROUNDED) * units, units
        unit *= 2


def _moves(units: Level) -> Iterator[Level]:
    """Yield how levels differ that are beside one another: one unit more, less, or instead."""
    of_groups = np.diag(units)
    for one in of_groups:
        yield -one
        yield one
    for one in range(len(units)):
        for other in range(len(units)):
            if one != other:
                yield of_groups[one] - of_groups[other]
