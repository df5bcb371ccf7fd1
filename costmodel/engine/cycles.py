"""A heaviest cycle of a step, which is a lower bound for other plans of the same operations.

The operation that ends a step waited for another one, that for another, and so on: a path. From
where it passes a collective of all ranks in one step to where it did in the step before it is a
*cycle* (or from any operation, if it passes no such collective: a host that is too slow for its
GPU), and step after step takes at least the cycle's durations and lags. That holds for every plan
of the same operations, with that plan's durations, and whatever rank the path keeps to between two
collectives of all ranks. So one cycle of each ``Step`` rejects most moves that overload a rank, or
that bring a collective in for one table, before they are timed.
"""

import numpy as np

from costmodel.engine.codes import CONSTANT, CROSS_NODE, INTRA_NODE, ISSUE, WORLD
from costmodel.engine.state import PlanState
from costmodel.engine.step import Step, StepClock
from costmodel.step.synthesis import NUM_STEPS

COMPARED: int = 64
"""Number of ranks besides its own that a cycle is summed on: those changed by the last move, ranks
where it puts something first. A move of one table mostly changes two; timing one that changes more
takes longer than summing on them all."""
JOINED, EQUAL, ANY = range(3)
"""Operations before which all ranks wait for each other; others that take as long on all ranks; and
those that depend on the rank."""
ROUNDING: float = 1e-12
"""Share by which sums along a path and along steps may differ by rounding."""


class Cycle:
    """The last operations of a path that ends a step, latest first; at first none is known."""

    def __init__(self, num_ops: int, num_rows: int) -> None:
        path = 2 * num_ops
        self.begin = self.end = 0
        """Index on the path at which the cycle begins, and the path's length; 0: no cycle is
        known."""
        self.rows = np.zeros(path, dtype=np.int64)
        """Rows of the durations of the path's operations; -1: among the lags."""
        self.ranks = np.zeros(path, dtype=np.int64)
        self.kinds = np.zeros(path, dtype=np.int64)
        self.lags = np.zeros(path)
        """Seconds between an operation and the one it waited for, with constant durations."""
        self.constant = 0.0
        """The sum of the cycle's lags."""
        self.seen = np.zeros(num_ops, dtype=np.int64)
        """Index on the path of each operation of the last step; -1: it is not there."""
        self.is_on = np.zeros(num_rows, dtype=np.int64)
        """Whether each row of numbers is a duration on the cycle."""
        self.sums = np.zeros(1 + COMPARED)
        """Sums of durations on the cycle's own ranks, and on ``COMPARED`` others."""
        self.found_op = self.found_rank = 0
        self.found_lag = 0.0
        """Lag after the operation that an operation waited for last."""

    def is_known(self) -> bool:
        """Return whether there is a cycle."""
        return self.end > 0

    def bound(self, state: PlanState) -> float:
        """Return a lower bound of the step: the cycle's seconds on its own or on changed ranks."""
        total, count = self.constant, min(state.num_changed, COMPARED)
        last = state.num_changed - 1
        for other in range(count + 1):
            self.sums[other] = 0.0
        for index in range(self.begin, self.end):
            row, kind = self.rows[index], self.kinds[index]
            if kind == ANY:
                self.sums[0] += state.numbers[row, self.ranks[index]]
                for other in range(count):
                    self.sums[other + 1] += state.numbers[row, state.changed[last - other]]
                continue
            if kind == JOINED:
                total += self._largest_sum(count)
            if row >= 0:
                total += state.numbers[row, 0]
        return total + self._largest_sum(count)

    def _largest_sum(self, count: int) -> float:
        """Return the largest sum, and set all to 0."""
        longest = 0.0
        for other in range(count + 1):
            longest = max(longest, self.sums[other])
            self.sums[other] = 0.0
        return longest

    def trace(self, state: PlanState, step: Step, clock: StepClock) -> None:
        """Find a cycle of the plan that was timed last, if there is a simple one."""
        self.begin = self.end = 0
        for row in range(self.is_on.shape[0]):
            self.is_on[row] = 0
        for op in range(self.seen.shape[0]):
            self.seen[op] = -1
        count, number = 0, NUM_STEPS - 1
        self._find_last(step, clock)
        while number >= NUM_STEPS - 2:
            op, rank = self.found_op, self.found_rank
            if number == NUM_STEPS - 1:
                self.seen[op] = count
            elif self.seen[op] >= 0 and self._is_closed(self.seen[op], count, rank):
                self.begin, self.end = self.seen[op], count
                self._close(step)
                return
            if not self._find_waited_for(state, step, clock, op, rank, number):
                return
            self._add(step, count, op, rank)
            count += 1
            if self.found_op < 0:
                number -= 1
                self.found_op = -1 - self.found_op

    def _is_closed(self, first: int, last: int, rank: int) -> bool:
        """Return whether a path is a cycle on any rank: through all ranks, or on one."""
        if self.kinds[first] == JOINED:
            return True
        for index in range(first, last):
            if self.kinds[index] == JOINED:
                return False
        return self.ranks[first] == rank

    def _find_last(self, step: Step, clock: StepClock) -> None:
        """Find the operation, and its rank, that ended the last step."""
        now, latest = (NUM_STEPS - 1) % 2 * step.num_ops, -1.0
        self.found_op = self.found_rank = 0
        for index in range(step.finals.shape[0]):
            op = step.finals[index]
            for rank in range(1 if clock.together[now + op] else clock.num_ranks):
                if clock.ends[now + op, rank] > latest:
                    latest = clock.ends[now + op, rank]
                    self.found_op, self.found_rank = op, rank

    def _find_waited_for(
        self, state: PlanState, step: Step, clock: StepClock, op: int, rank: int, number: int
    ) -> bool:
        """Find the operation that an operation waited for last, the lag, and its rank.

        Return whether that is known: the step before the last but one is forgotten.
        """
        now, before = number % 2 * step.num_ops, (1 - number % 2) * step.num_ops
        latest, group = -1.0, step.group[op]
        for entry in range(step.starts[op], step.starts[op + 1]):
            source, lag = step.sources[entry], step.lags[entry]
            if source < 0 and number < NUM_STEPS - 1:
                continue
            end = now + source if source >= 0 else before - 1 - source
            first, last, stride = rank, rank + 1, 1
            if clock.together[end]:
                first, last = 0, 1
            elif group == WORLD:
                first, last = 0, clock.num_ranks
            elif group == INTRA_NODE:
                first = rank // clock.local_ranks * clock.local_ranks
                last = first + clock.local_ranks
            elif group == CROSS_NODE:
                first, last, stride = rank % clock.local_ranks, clock.num_ranks, clock.local_ranks
            member = first
            while member < last:
                if clock.ends[end, member] + lag > latest:
                    latest = clock.ends[end, member] + lag
                    self.found_op, self.found_lag = source, lag
                    # ranks that are even now need not be with another plan: keep to this one
                    self.found_rank = rank if clock.together[end] else member
                member += stride
        if latest < 0:
            return False
        together = clock.together[now + op] or group == WORLD
        start = clock.ends[now + op, 0 if clock.together[now + op] else rank]
        if step.kind[op] == CONSTANT:
            start -= step.seconds[op]
        else:
            start -= state.numbers[step.rows[op], 0 if together or step.same[op] else rank]
        return latest >= start * (1 - ROUNDING)

    def _add(self, step: Step, index: int, op: int, rank: int) -> None:
        """Put an operation on the path, and the lag before it."""
        is_constant = step.kind[op] == CONSTANT
        self.rows[index] = -1 if is_constant else step.rows[op]
        self.ranks[index] = rank
        self.lags[index] = self.found_lag + (step.seconds[op] if is_constant else 0.0)
        if step.group[op] == WORLD:
            self.kinds[index] = JOINED
        else:
            self.kinds[index] = EQUAL if is_constant or step.same[op] else ANY

    def _close(self, step: Step) -> None:
        """Sum up the lags, and note which durations the cycle has."""
        self.constant = 0.0
        for index in range(self.begin, self.end):
            self.constant += self.lags[index]
            if self.rows[index] >= 0:
                self.is_on[self.rows[index]] = 1
        for op in range(step.num_ops):  # an issue lasts if what it launches does
            if step.kind[op] == ISSUE and self.is_on[step.rows[op]]:
                self.is_on[step.rows[step.launched[op]]] = 1
