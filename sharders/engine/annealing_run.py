"""A run of annealing: some thousands of moves a call, and the best plan among those they made."""

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
"""Share of the moves that divide blocks of two ranks anew (``reassign``), each of which takes
as long as three. Without them, 16 problems of full memory end 0.5, 0.8 and 0.6% higher after 1,
2 and 3 CPU seconds (32 runs, standard errors 0.2, 0.5 and 0.3%; 16 higher after three, 3
lower), 41 others as low. With 0.1 they end 0.5, 0.3 and 0.4% lower than without, with 0.4 no
lower after two."""
REFRESH_EVERY: int = 64
"""Moves between two looks at what the step waits for."""
MAX_EJECTED: int = 2
"""Blocks of other tables that leave one after the other for one move."""
FIRST_PRICE: float = 1.0
"""Share of the step that holding a rank's memory beyond what there is costs at first. While no
plan might, 93 to 99.6% of the moves found no room where memory is tight; passing through such
plans, ten CPU seconds end 2.7 to 3.6% lower in the mean of five such problems on 64 and 128
GPUs (two seeds twice; 16% at 88 tables on 64 GPUs). At 10 they gain half as much."""
PRICE_STEP: float = 1.2
"""Times it costs more after ``REFRESH_EVERY`` moves that end with a plan that does not fit, and
less after those that end with one that does. With 1.05 they end 0.9% higher."""
LEAST: float = 1e-3
MOST: float = 1e2
"""What holding a rank's memory beyond what there is costs at least and at most, in steps as the
run's first plan has them."""


class AnnealingRun:
    """Where a run stands: how many moves were drawn, and the best plan so far."""

    def __init__(self, search: SearchState, params: MoveParams) -> None:
        self.search, self.rng = search, RandomNumbers()
        self.proposer = MoveProposer(search, params, self.rng)
        self.blocks = RankBlocks(search.tables, search.choices, search.plan.num_ranks)
        self.ejector = Ejector(self.proposer, self.blocks)
        self.reassigner = Reassigner(self.proposer, self.blocks)
        self.move = Move(MAX_TOGETHER, search.choices.ranks.shape[1])
        self.is_changed = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Whether a table's choice is not the best plan's."""
        self.changed = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Those for which it is, the first ``num_changed``."""
        self.num_changed = 0
        self.best = search.choices.copy()
        self.price = 0.0
        """What holding more than there is costs now (``SearchState.price``)."""
        self.first_time = inf
        """The step time when a run begins."""
        self.begin(inf, 0)

    def begin(self, seconds: float, seed: int) -> None:
        """Begin anew at the present plan, whose step time that is; loads are up to date.

        It need not fit in memory; then there is no best plan until one is found that does.

        The seed decides what is drawn until the next beginning: how many moves are drawn at a time
        changes nothing.
        """
        self.rng.begin(seed)
        self.blocks.rebuild()
        self.lacks_program = False
        """Whether the last move led to groups that have no program yet (``SearchState.wanted``)."""
        self.ejected = 0
        """Tables out of the way of the move at hand, which is then one more try of the last one."""
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
        """Draw that many moves, fewer if a program is missing; return how many were drawn.

        Parameters
        ----------
        count
            Moves to draw.
        hot, cold, length
            Temperatures at the begin and the end, as shares of the step time, and moves between.
        placing
            Whether options stay as they are.

        """
        search, move, before = self.search, self.move, self.moves
        self.lacks_program = False
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
                    self.lacks_program = True
                    break
        search.price = inf
        return self.moves - before

    def _change_price(self) -> None:
        """Let memory that is not there cost more if the plan needs some, and else less."""
        before, excess = self.price, self.search.excess()
        if excess > NO_EXCESS:
            self.price = min(self.price * PRICE_STEP, MOST * self.first_time)
        else:
            self.price = max(self.price / PRICE_STEP, LEAST * self.first_time)
        self.search.price = self.price
        self.penalised_time += (self.price - before) * excess

    def _take(self) -> None:
        """Make the move that was tried; note the plan if it is the best."""
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
