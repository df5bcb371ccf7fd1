"""A run of annealing: some thousands of moves per call, and the best plan among those they made."""

import math
from math import inf

import numpy as np

from sharders.engine.eject import Ejector
from sharders.engine.moves import MoveProposer, RandomNumbers
from sharders.engine.params import MAX_TOGETHER, MoveParams
from sharders.engine.rank_blocks import RankBlocks
from sharders.engine.reassign import Reassigner
from sharders.engine.search_state import NO_EXCESS, SearchState
from sharders.engine.tables import FITS, SLOW, UNKNOWN, Move
from sharders.problem.sharding_problem import IMPROVED

REASSIGNED_SHARE: float = 0.05
"""Share of the moves that divide blocks of two ranks anew (``reassign``), which take three times as
long."""
REFRESH_EVERY: int = 64
"""Moves between two looks at what the step waits for."""
MAX_EJECTED: int = 2
"""Most blocks of other tables that leave their rank for one move."""
FIRST_PRICE: float = 1.0
"""First price of memory: holding a whole rank's memory beyond what there is costs this share of the
step. Passing through plans that do not fit finds room where memory is tight."""
PRICE_STEP: float = 1.2
"""Factor by which the price rises after ``REFRESH_EVERY`` moves that end with a plan that does not
fit, and falls after others."""
LEAST: float = 1e-3
MOST: float = 1e2
"""Largest price, and the inverse of the smallest, in steps of the run's first plan."""


class AnnealingRun:
    """The state of a run: number of moves drawn, and the best plan so far."""

    def __init__(self, search: SearchState, params: MoveParams) -> None:
        self.search, self.rng = search, RandomNumbers()
        self.proposer = MoveProposer(search, params, self.rng)
        self.blocks = RankBlocks(search.tables, search.choices, search.plan.num_ranks)
        self.ejector = Ejector(self.proposer, self.blocks)
        self.reassigner = Reassigner(self.proposer, self.blocks)
        self.move = Move(MAX_TOGETHER, search.choices.ranks.shape[1])
        self.is_changed = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Whether a table's choice differs from the best plan's."""
        self.changed = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Tables for which it does, the first ``num_changed`` entries."""
        self.num_changed = 0
        self.best = search.choices.copy()
        self.price = 0.0
        """Present price of memory (``SearchState.price``)."""
        self.first_time = inf
        """Step time at the beginning of the run."""
        self.begin(inf, 0)

    def begin(self, seconds: float, seed: int) -> None:
        """Begin a run at the present plan, whose step time is ``seconds``; loads are up to date.

        The plan need not fit in memory; then there is no best plan until one is found that does.

        The seed decides what is drawn until the next beginning: how many moves are drawn at a time
        changes nothing.
        """
        self.rng.begin(seed)
        self.blocks.rebuild()
        self.lacks_step = False
        """Whether the last move led to groups that have no step yet (``SearchState.wanted``)."""
        self.ejected = 0
        """Number of tables that left for the present move, which is then another try of the last
        one."""
        self.moves = self.decided = self.timed = self.last_gain = 0
        """Drawn; timed, or known to be too slow without; timed; drawn when the best was found."""
        self.first_time = seconds
        self.price = FIRST_PRICE * seconds
        self.penalised_time = self.search.penalised(seconds)
        if self.search.excess() > 0.0:
            self.penalised_time += self.price * self.search.excess()
        self.best_time = seconds if self.search.loads.fits() else inf
        self.best = self.search.choices.copy()
        for index in range(self.num_changed):
            self.is_changed[self.changed[index]] = 0
        self.num_changed = 0

    def anneal(self, count: int, hot: float, cold: float, length: float, placing: bool) -> int:
        """Draw ``count`` moves, fewer if a step is missing, and return how many were drawn.

        Parameters
        ----------
        count
            Moves to draw.
        hot, cold, length
            First and last temperature, as shares of the step time, and moves between.
        placing
            Whether options stay as they are.

        """
        search, move, before = self.search, self.move, self.moves
        self.lacks_step = False
        search.price = self.price
        for _ in range(count):
            if self.moves % REFRESH_EVERY == 0:
                self._change_price()
                search.find_cycle()
                self.proposer.refresh()
            self.moves += 1
            if self.ejected == 0:
                if self.rng.uniform() < REASSIGNED_SHARE:
                    self.reassigner.draw(move)
                else:
                    self.proposer.draw(move, placing)
                if move.length == 0:
                    continue
            progress = min(1.0, self.moves / length)
            excess = search.excess()
            temperature = hot * (cold / hot) ** progress * self.penalised_time
            # Metropolis, for the penalised time
            limit = self.penalised_time - temperature * math.log(self.rng.uniform())
            outcome = search.try_move(move, limit)
            self.decided += outcome == FITS or outcome == SLOW
            self.timed += outcome == FITS
            if outcome == FITS and search.penalised_time <= limit:
                self.ejected = 0
                self._take()
            else:
                lacks = outcome != UNKNOWN and self.ejected < MAX_EJECTED
                lacks = lacks and search.excess() > excess + NO_EXCESS
                if lacks:
                    self.ejector.find_fullest()
                    lacks = self.ejector.lack > 0
                search.undo(move)
                self.ejected = self.ejected + 1 if lacks and self.ejector.eject(move) else 0
                if outcome == UNKNOWN:
                    self.lacks_step = True
                    break
        search.price = inf
        return self.moves - before

    def _change_price(self) -> None:
        """Raise the price of memory if the plan does not fit, else lower it."""
        before, excess = self.price, self.search.excess()
        if excess > NO_EXCESS:
            self.price = min(self.price * PRICE_STEP, MOST * self.first_time)
        else:
            self.price = max(self.price / PRICE_STEP, LEAST * self.first_time)
        self.search.price = self.price
        self.penalised_time += (self.price - before) * excess

    def _take(self) -> None:
        """Make the move that was tried, and keep the plan if it is the best."""
        for index in range(self.move.length):
            table = self.move.table[index]
            if not self.is_changed[table]:
                self.is_changed[table] = 1
                self.changed[self.num_changed] = table
                self.num_changed += 1
            self.blocks.change(table, self.move, index)
        self.search.keep()
        self.penalised_time = self.search.penalised_time
        is_better = self.search.seconds < self.best_time * (1 - IMPROVED)
        if is_better and self.search.excess() <= NO_EXCESS and self.search.loads.fits():
            self.best_time = self.search.seconds
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
