"""A burst of annealing: some thousands of moves a call, and the best plan among those they made."""

import math

import numpy as np

from sharders.engine.eject import Ejector
from sharders.engine.moves import MoveProposer, RandomNumbers
from sharders.engine.params import MoveParams
from sharders.engine.state import SearchState
from sharders.engine.tables import FITS, FULL, SLOW, UNKNOWN, Move
from sharders.problem.sharding_problem import IMPROVED


class Burst:
    """Where a burst stands: how many moves were drawn, and the best plan so far."""

    def __init__(self, search: SearchState, params: MoveParams) -> None:
        self.search, self.refresh_every = search, params.refresh_every
        self.rng = RandomNumbers()
        self.proposer = MoveProposer(search, params, self.rng)
        self.ejector = Ejector(self.proposer, params)
        self.move = Move(params.max_together, search.choices.ranks.shape[1])
        self.is_changed = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Whether a table's choice is not the best plan's."""
        self.changed = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Those for which it is, the first ``num_changed``."""
        self.num_changed = 0
        self.best = search.choices.copy()
        self.begin(math.inf)

    def begin(self, seconds: float) -> None:
        """Begin anew at the present plan, whose step time that is; loads are up to date."""
        self.moves = self.decided = self.timed = self.last_gain = 0
        """Drawn; timed, or known to be too slow without; timed; drawn when the best was found."""
        self.best_time, self.guide = seconds, self.search.guide_of(seconds)
        self.best_guide = self.guide
        self.best = self.search.choices.copy()
        for index in range(self.num_changed):
            self.is_changed[self.changed[index]] = 0
        self.num_changed = 0

    def anneal(
        self, count: int, hot: float, cold: float, length: float, placing: bool, seed: int
    ) -> int:
        """Draw that many moves, fewer if a program is missing; return how many were drawn.

        Parameters
        ----------
        count
            Moves to draw.
        hot, cold, length
            Temperatures at the begin and the end, as shares of the step time, and moves between.
        placing
            Whether options stay as they are.
        seed
            Of the random numbers.

        """
        search, move, again, before = self.search, self.move, False, self.moves
        self.rng.begin(seed)
        for number in range(count):
            if number % self.refresh_every == 0:
                search.find_cycle()
                self.proposer.refresh()
            self.moves += 1
            if not again:
                self.proposer.draw(move, placing)
                if move.length == 0:
                    continue
            progress = min(1.0, self.moves / length)
            temperature = hot * (cold / hot) ** progress * self.guide
            # Metropolis, for the guide
            limit = self.guide - temperature * math.log(self.rng.uniform())
            outcome = search.try_move(move, limit)
            self.decided += outcome == FITS or outcome == SLOW
            self.timed += outcome == FITS
            if outcome == FITS and search.guide <= limit:
                again = False
                self._take()
            else:
                if outcome == FULL:
                    self.ejector.find_fullest()
                lacks = outcome == FULL and self.ejector.lack > 0
                search.undo(move)
                again = lacks and not again and self.ejector.eject(move)
                if outcome == UNKNOWN:
                    break
        return self.moves - before

    def _take(self) -> None:
        """Make the move that was tried; note the plan if it is the best."""
        for index in range(self.move.length):
            table = self.move.table[index]
            if not self.is_changed[table]:
                self.is_changed[table] = 1
                self.changed[self.num_changed] = table
                self.num_changed += 1
        self.search.keep()
        self.guide = self.search.guide
        if self.search.seconds < self.best_time * (1 - IMPROVED):
            self.best_time, self.best_guide = self.search.seconds, self.guide
            self.last_gain = self.moves
            self._remember()

    def _remember(self) -> None:
        """Make the present plan the best one."""
        for index in range(self.num_changed):
            table = self.changed[index]
            self.is_changed[table] = 0
            self.best.option[table] = self.search.choices.option[table]
            self.search.choices.copy_row(table, self.best, table)
        self.num_changed = 0
