"""A plan under search: try a move, time the plan it makes, and keep or undo it."""

import math
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.engine.cycles import Cycle
from costmodel.engine.step import Step, StepClock
from sharders.engine.imbalance_penalty import BALANCE_ROOTS, BALANCE_WEIGHT
from sharders.engine.rank_loads import RankLoads
from sharders.engine.tables import FITS, FULL, SLOW, UNKNOWN, Choices, Move

MARGIN = 1e-9
"""Share of the penalised time by which sums along a cycle and along steps may differ by
rounding."""
NOT_MADE = -1
NO_EXCESS: float = 1e-9
"""Memory held beyond what there is that may be rounding, in ranks' memories."""
MOST_PAID = 0.05
"""Share of the penalised time that a move may pay for memory: hardly any gains as much."""


class SearchState:
    """Everything a search changes or reads.

    What it minimises is the *penalised time*: the step time, and a little of how unevenly ranks are
    loaded.
    Most moves away from the rank that the others wait for leave the step as it is, as another rank
    is as slow, and would look useless. So power means over the ranks are added: of their lookup
    times, launches included, and of the times that each rank's own bytes would take in every
    collective, as all ranks wait for the one that sends most.
    """

    def __init__(
        self,
        *,
        loads: RankLoads,
        choices: Choices,
        clock: StepClock,
        every: Step,
        step_of: NDArray[np.int64],
        max_cycles: int,
    ) -> None:
        """Begin with the step of plans that have all sharding groups.

        Parameters
        ----------
        loads, choices
            Of the present plan.
        clock
            Times steps of up to all operations.
        every
            The step of all groups.
        step_of
            By the bits of the groups that a plan has, its step, counted from 1; 0: not made yet.
        max_cycles
            Steps whose cycles are kept: the first ones made.

        """
        self.loads, self.plan, self.tables = loads, loads.plan, loads.tables
        self.choices, self.clock, self.every = choices, clock, every
        self.steps = [every]
        self.cycles = [Cycle(every.num_ops, loads.end_row)]
        self.max_cycles = max_cycles
        self.step_of = step_of
        self.bit_of = np.left_shift(1, np.arange(loads.num_groups, dtype=np.int64))
        """The bit of every sharding group; their numbers have 16 bits, too few to be shifted."""
        self.which = 0
        """Number of the present plan's step."""
        self.wanted = 0
        """Bits of the groups whose step was missing."""
        self.margin = MARGIN
        """Share of a penalised time to which a bound is trusted; 1: not at all."""
        self.outcome, self.which_moved = UNKNOWN, NOT_MADE
        """How the last move went, and of which step the plan then is."""
        self.seconds = self.penalised_time = inf
        """Its step time and penalised time, where it was timed."""
        self.balance_weight = BALANCE_WEIGHT
        """Weight of the power means over ranks."""
        self.price = inf
        """Seconds that a rank's memory held beyond what there is costs; infinite: none may be."""

    def add_step(self, groups: int, step: Step) -> None:
        """Add the step of plans that have groups with these bits."""
        self.steps.append(step)
        self.step_of[groups] = len(self.steps)
        if len(self.cycles) < self.max_cycles:
            self.cycles.append(Cycle(self.every.num_ops, self.loads.end_row))

    def present_time(self) -> float:
        """Return the step time of the present plan, in seconds."""
        return self.clock.step_time(self.steps[self.which])

    def rebuild(self, groups: int) -> bool:
        """Recompute all loads and durations from the choices; return whether there is a step.

        ``groups`` has the bits of groups whose durations are computed besides the plan's; moves
        need all.
        """
        self.loads.rebuild()
        bits = self.loads.present_groups()
        number = self.step_of[bits] - 1
        if number >= 0:
            self.which = number
            self.plan.refresh_all(self.every, groups | bits)
        else:
            self.wanted = bits
        self.plan.commit()
        self.plan.clear_changed()
        return number >= 0

    def step_times(
        self,
        options: NDArray[np.int64],
        ranks: NDArray[np.int32],
        times: NDArray[np.float64],
        first: int,
    ) -> int:
        """Time whole plans from one on; return how many were done before a step was missing.

        ``options`` has shape (plans, tables); ``ranks``: (plans, tables, most blocks); ``times``:
        seconds, (plans,), infinite where memory is short.
        """
        for number in range(first, times.shape[0]):
            for table in range(options.shape[1]):
                self.choices.option[table] = options[number, table]
                for block in range(ranks.shape[2]):
                    self.choices.ranks[table, block] = ranks[number, table, block]
            if not self.rebuild(0):
                return number
            times[number] = self.present_time() if self.loads.fits() else inf
        return times.shape[0]

    def penalised(self, seconds: float) -> float:
        """Return the penalised time of the present plan, given its step time."""
        spread = self.power_mean(self.loads.power_row)
        for feature in range(self.loads.exchange_rates.shape[0]):
            if self.loads.exchange_rates[feature] > 0:
                spread += self.power_mean(self.loads.exchanged_row + feature)
        paid = self.price * self.excess() if self.price < inf else 0.0
        return seconds + self.balance_weight * spread + paid

    def excess(self) -> float:
        """Return the memory that the plan holds beyond what there is, in ranks' memories."""
        return self.plan.numbers[self.loads.excess_row, 0]

    def power_mean(self, row: int) -> float:
        """Return the power mean over ranks of a row's sum of powers."""
        total = self.plan.numbers[row, 0]
        if total <= 0:
            return 0.0  # a group that the plan lacks, or rounding
        mean = total / self.plan.num_ranks
        for _ in range(BALANCE_ROOTS):
            mean = math.sqrt(mean)
        return mean

    def find_cycle(self) -> None:
        """Find a heaviest cycle of the present plan."""
        if self.which < len(self.cycles):
            step, cycle = self.steps[self.which], self.cycles[self.which]
            self.clock.step_time(step)
            cycle.trace(self.plan, step, self.clock)

    def try_move(self, move: Move, limit: float) -> int:
        """Make a move and time the plan; ``undo`` or ``keep`` it, whatever the outcome.

        Return the outcome. Afterwards the move holds the choices from before. If the penalised time
        is certain to exceed the limit, the plan is not timed.
        """
        self.seconds = self.penalised_time = inf
        self.which_moved = NOT_MADE
        before = self.excess()
        has_room = self.finds_room(move)
        if not has_room and self.price < inf:
            has_room = self.price * (self.excess() - before) <= MOST_PAID * limit
        self.outcome = self._timed(move, limit) if has_room else FULL
        return self.outcome

    def finds_room(self, move: Move) -> bool:
        """Exchange choices and memory by a move; return whether there is room for its tables.

        The move stays made either way.
        """
        self._swap(move)
        for index in range(move.length):
            table = move.table[index]
            self.loads.hold(move.option[index], move, index, -1.0)
            self.loads.hold(self.choices.option[table], self.choices, table, 1.0)
        for index in range(move.length):
            table = move.table[index]
            if not self.loads.has_room(self.choices.option[table], self.choices, table):
                return False
        return True

    def _timed(self, move: Move, limit: float) -> int:
        """Change loads and durations by a move, time the plan, and return the outcome."""
        sums, groups = self._change(move)
        bits = self.loads.present_groups()
        number = self.step_of[bits] - 1
        if number < 0:
            self.wanted = bits
            return UNKNOWN
        kept = number < len(self.cycles)
        cycle = self.cycles[number if kept else len(self.cycles) - 1]
        self.plan.refresh(self.every, groups, sums, cycle.is_on, 1)
        if kept and cycle.is_known():
            least = cycle.bound(self.plan)
            if self.penalised(least) * (1 - self.margin) > limit:
                return SLOW
        self.plan.refresh(self.every, groups, sums, cycle.is_on, 0)
        step = self.steps[number]
        self.seconds = self.clock.step_time(step)
        self.penalised_time, self.which_moved = self.penalised(self.seconds), number
        if self.penalised_time > limit and kept and number != self.which:
            cycle.trace(self.plan, step, self.clock)
        return FITS

    def _change(self, move: Move) -> tuple[bool, int]:
        """Change the loads by a move; return whether sums changed, and the bits of its groups."""
        groups, sums = 0, False
        for index in range(move.length):
            table = move.table[index]
            before, after = move.option[index], self.choices.option[table]
            self.loads.change(before, move, index, self.choices, table, -1.0)
            if before != after:
                self.loads.count(table, before, -1.0)
                self.loads.count(table, after, 1.0)
                sums = True
            self.loads.change(after, self.choices, table, move, index, 1.0)
            groups |= self.bit_of[self.tables.group[before]] | self.bit_of[self.tables.group[after]]
        self.loads.look_up()
        return sums, groups

    def _swap(self, move: Move) -> None:
        """Exchange the present choices of a move's tables with those in the move."""
        for index in range(move.length):
            table = move.table[index]
            option = self.choices.option[table]
            self.choices.option[table] = move.option[index]
            move.option[index] = option
            for block in range(self.choices.ranks.shape[1]):
                rank = self.choices.ranks[table, block]
                self.choices.ranks[table, block] = move.ranks[index, block]
                move.ranks[index, block] = rank

    def undo(self, move: Move) -> None:
        """Undo the move that was tried last."""
        self.plan.rollback()
        self._swap(move)
        self.plan.clear_changed()

    def keep(self) -> None:
        """Keep the move that was tried last."""
        self.plan.commit()
        self.which = self.which_moved
        self.plan.clear_changed()

    def block_at(self, table: int, place: int) -> int:
        """Return a table's column block at a place (``Choices``); -1: none."""
        for block in range(self.tables.blocks[self.choices.option[table]]):
            if self.choices.ranks[table, block] == place:
                return block
        return -1
