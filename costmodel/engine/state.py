"""The state of one plan's step: loads of every rank, and the durations that follow from them.

Lookups and amounts sent are the *loads*, rank by rank, as shards change the loads of one rank. All
else is rows of one array with a column for every rank, the *numbers*, as steps are timed for all
ranks at once; ``Rows`` has the rows. Durations are kept, so that a move which changes two ranks
recomputes those of two ranks. Numbers are changed by ``put``, loads after ``save``; both note the
old value in a journal: undoing a move costs no more than what it changed. Steps of other
sharding groups have the same durations for the operations they share, so all steps share these.
"""

from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array, Ints
from costmodel.engine.codes import (
    BACKWARD,
    CONSTANT,
    EXCHANGE,
    FORWARD,
    GIVEN,
    INTRA_NODE,
    ISSUE,
    LINEAR,
    NO_GROUP,
    NONE,
    ONLY,
    WEIGHT_GRADIENT,
)
from costmodel.engine.step import Step
from costmodel.kernels.times import LookupRates, LookupTimes, StreamTimes
from costmodel.kernels.traffic import NUM_TRAFFIC, Traffic

LOOKUPS = int(Traffic.LOOKUPS)


class Rows(NamedTuple):
    """First row of each kind of number."""

    whole: int
    """Plan features of every group, then of every kernel, in the first column."""
    forward: int
    """Seconds of every lookup kernel."""
    backward: int
    steps: int
    """Durations of all other operations of any step; then, of exchanges, bytes, and of issues,
    the number of ranks on which they take time; then the largest of these bytes. Numbers that are
    the same on all ranks are in the first column."""
    num_durations: int
    end: int
    """First row that belongs to others."""


class Machine(NamedTuple):
    """Numbers of the hardware that durations depend on."""

    num_ranks: int
    local_ranks: int
    streams: StreamTimes
    rates: LookupRates


class Journal:
    """Old values of changed numbers, in the order of the changes."""

    def __init__(self, num_entries: int, width: int = 1) -> None:
        self.cells = np.zeros(num_entries, dtype=np.int64)
        self.values = np.zeros(num_entries * width)
        self.length = 0


class PlanState:
    """Loads and durations of a search's present plan; moves change them and are undone."""

    def __init__(
        self,
        *,
        machine: Machine,
        rows: Rows,
        numbers: Array,
        loads: Array,
        num_rank_features: int,
        touched: tuple[Ints, Ints],
        journal: Journal,
        saved: Journal,
    ) -> None:
        """Keep the arrays, and find what is looked up often.

        Parameters
        ----------
        machine, rows
            The hardware, and where numbers are.
        numbers
            (rows, ranks).
        loads
            (ranks, features and traffic): rank features of every sharding group, then what every
            lookup kernel moves, ``NUM_TRAFFIC`` numbers each.
        num_rank_features
            Columns of the former.
        touched
            Where the operations of each sharding group begin, and the operations whose durations
            it decides, what an issue launches before the issue.
        journal, saved
            Of numbers, and of loads: ``NUM_TRAFFIC`` for each cell, which is the first of them.

        """
        self.num_ranks, self.local_ranks = machine.num_ranks, machine.local_ranks
        self.streams, self.lookups = machine.streams, LookupTimes(loads, machine.rates)
        self.whole, self.forward, self.backward = rows.whole, rows.forward, rows.backward
        self.steps, self.num_durations = rows.steps, rows.num_durations
        self.num_rank_features = num_rank_features
        self.numbers, self.flat = numbers, numbers.reshape(-1)
        self.loads, self.flat_loads, self.load_width = loads, loads.reshape(-1), loads.shape[1]
        self.touched_starts, self.touched_ops = touched
        self.journal, self.saved = journal, saved
        self.node_of = np.arange(machine.num_ranks) // machine.local_ranks
        self.changed = np.zeros(machine.num_ranks, dtype=np.int64)
        """Ranks whose loads a move has changed, the first ``num_changed`` entries."""
        self.is_changed = np.zeros(machine.num_ranks, dtype=np.int64)
        self.num_changed = 0

    def put(self, row: int, rank: int, value: float) -> None:
        """Change a number; ``rollback`` undoes it."""
        cell, count = row * self.num_ranks + rank, self.journal.length
        self.journal.cells[count] = cell
        self.journal.values[count] = self.flat[cell]
        self.flat[cell] = value
        self.journal.length = count + 1

    def save(self, rank: int, first: int) -> None:
        """Note ``NUM_TRAFFIC`` loads of a rank before they change; ``rollback`` undoes it.

        Noting more than changes does no harm.
        """
        cell, count = rank * self.load_width + first, self.saved.length
        self.saved.cells[count] = cell
        for index in range(NUM_TRAFFIC):
            self.saved.values[count * NUM_TRAFFIC + index] = self.flat_loads[cell + index]
        self.saved.length = count + 1

    def rollback(self) -> None:
        """Undo all changes since the journals were empty, and empty them."""
        for index in range(self.journal.length - 1, -1, -1):
            self.flat[self.journal.cells[index]] = self.journal.values[index]
        for entry in range(self.saved.length - 1, -1, -1):
            cell = self.saved.cells[entry]
            for index in range(NUM_TRAFFIC):
                self.flat_loads[cell + index] = self.saved.values[entry * NUM_TRAFFIC + index]
        self.commit()

    def commit(self) -> None:
        """Keep all changes: empty the journals."""
        self.journal.length = 0
        self.saved.length = 0

    def note_changed(self, rank: int) -> None:
        """Add a rank to those whose loads have changed."""
        if not self.is_changed[rank]:
            self.is_changed[rank] = 1
            self.changed[self.num_changed] = rank
            self.num_changed += 1

    def note_all_changed(self) -> None:
        """Add all ranks to those whose loads have changed."""
        for rank in range(self.num_ranks):
            self.note_changed(rank)

    def clear_changed(self) -> None:
        """Clear the list of changed ranks."""
        for index in range(self.num_changed):
            self.is_changed[self.changed[index]] = 0
        self.num_changed = 0

    def look_up_all(self) -> None:
        """Compute the times of all lookup kernels on all ranks."""
        for kernel in range(self.backward - self.forward):
            first = self.num_rank_features + kernel * NUM_TRAFFIC
            for rank in range(self.num_ranks):
                self.numbers[self.forward + kernel, rank] = self.lookups.forward_seconds(
                    rank, first
                )
                self.numbers[self.backward + kernel, rank] = self.lookups.backward_seconds(
                    rank, first
                )

    def refresh(self, every: Step, groups: int, sums: bool, flags: Ints, wanted: int) -> None:
        """Recompute the durations that changed ranks decide.

        Parameters
        ----------
        every
            The step of plans that have all sharding groups.
        groups
            Bits of the sharding groups that have changed.
        sums
            Whether plan features have changed too.
        flags, wanted
            Of every row, a flag; and the flag of those that are to be recomputed.

        """
        for group in range(self.touched_starts.shape[0] - 1):
            if groups >> group & 1:
                for index in range(self.touched_starts[group], self.touched_starts[group + 1]):
                    op = self.touched_ops[index]
                    if flags[every.rows[op]] == wanted:
                        self._refresh(every, op, sums)

    def refresh_all(self, every: Step, groups: int) -> None:
        """Compute every duration that some groups decide, or none, for all ranks.

        Those of other groups are not brought up to date. All ranks must be noted as changed.
        """
        for op in range(every.num_ops - 1, -1, -1):  # an issue needs the operation it launches
            kind, row = every.kind[op], every.rows[op]
            if kind == CONSTANT or kind == FORWARD or kind == BACKWARD or kind == GIVEN:
                continue
            if every.touched_by[op] & (groups | NO_GROUP):
                for rank in range(self.num_ranks):
                    self.numbers[row, rank] = 0.0
                    self.numbers[row + self.num_durations, rank] = 0.0
                    # whatever is exchanged is more
                    self.numbers[row + 2 * self.num_durations, rank] = -1.0
                self._refresh(every, op, True)
                self.commit()

    def _refresh(self, step: Step, op: int, sums: bool) -> None:
        """Recompute one operation's duration on the changed ranks, or on all."""
        kind, row = step.kind[op], step.rows[op]
        if kind == EXCHANGE:
            self._exchange(step, op, sums)
            return
        if step.same[op]:
            if sums or kind == ISSUE:
                seconds = self._duration(step, op, 0)
                if seconds != self.numbers[row, 0]:
                    self.put(row, 0, seconds)
            return
        everyone = sums and step.whole[op] != NONE
        busy = row + self.num_durations
        for index in range(self.num_ranks if everyone else self.num_changed):
            rank = index if everyone else self.changed[index]
            seconds, known = self._duration(step, op, rank), self.numbers[row, rank]
            if seconds != known:
                self.put(row, rank, seconds)
                if kind == ISSUE and (known == 0) != (seconds == 0):
                    self.put(busy, 0, self.numbers[busy, 0] + (1.0 if known == 0 else -1.0))

    def _duration(self, step: Step, op: int, rank: int) -> float:
        """Return the duration of anything but lookups, their updates and collectives."""
        if step.kind[op] == ISSUE:
            launched = step.rows[step.launched[op]]
            return step.seconds[op] if self.numbers[launched, rank] > 0 else 0.0
        if step.kind[op] == WEIGHT_GRADIENT:
            first = self.num_rank_features + step.kernels[step.parts[op]] * NUM_TRAFFIC
            return self.lookups.weight_gradient_seconds(rank, first)
        amount = self.amount(step, op, rank)
        if step.kind[op] == LINEAR:
            return amount
        if step.least[op] > 0 and self._num_busy(step, op, rank) < step.least[op]:
            return 0.0
        return self.streams.seconds(amount)

    def _num_busy(self, step: Step, op: int, rank: int) -> int:
        """Return how many of an operation's lookup kernels have work on a rank."""
        count = 0
        for part in range(step.parts[op], step.parts[op + 1]):
            first = self.num_rank_features + step.kernels[part] * NUM_TRAFFIC
            if self.loads[rank, first + LOOKUPS] > 0:
                count += 1
        return count

    def amount(self, step: Step, op: int, rank: int) -> float:
        """Return the bytes that an operation moves or sends on a rank."""
        total = step.constants[op]
        for term in range(step.terms[op], step.terms[op + 1]):
            column = step.features[term]
            if column < self.num_rank_features:
                value = self.loads[rank, column]
            else:
                value = self.numbers[self.whole + column - self.num_rank_features, 0]
            total += step.weights[term] * value
        return total

    def _exchange(self, step: Step, op: int, sums: bool) -> None:
        """Recompute the bytes that changed ranks exchange, and the seconds on all ranks."""
        sent = step.rows[op] + self.num_durations
        known = sent + self.num_durations
        joined = self.local_ranks if step.group[op] == INTRA_NODE else self.num_ranks
        if step.whole[op] == ONLY:
            if sums:
                size = self.amount(step, op, 0)
                for number in range(self.num_ranks // joined):
                    self._take(step, op, number * joined, size)
            return
        everyone = sums and step.whole[op] != NONE
        count = self.num_ranks if everyone else self.num_changed
        index = 0
        while index < count:  # ranks of one group after another
            rank = index if everyone else self.changed[index]
            start = self.node_of[rank] * joined if step.group[op] == INTRA_NODE else 0
            largest, lost, earlier = 0.0, False, self.numbers[known, start]
            while index < count:
                rank = index if everyone else self.changed[index]
                if rank < start or rank >= start + joined:
                    break
                size, before = self.amount(step, op, rank), self.numbers[sent, rank]
                if size != before:
                    lost = lost or before >= earlier
                    self.put(sent, rank, size)
                largest = max(largest, size)
                index += 1
            if largest < earlier:
                largest = self._largest(sent, start, joined) if lost else earlier
            self._take(step, op, start, largest)

    def _largest(self, row: int, first: int, count: int) -> float:
        """Return the largest value of a row over some ranks."""
        largest = 0.0
        for rank in range(first, first + count):
            largest = max(largest, self.numbers[row, rank])
        return largest

    def _take(self, step: Step, op: int, start: int, size: float) -> None:
        """Note the largest bytes of a group of ranks, and their seconds, if they have changed."""
        row = step.rows[op]
        known = row + 2 * self.num_durations
        if size == self.numbers[known, start]:
            return
        self.put(known, start, size)
        seconds = step.exchanges.seconds(size, op, step.knots[op], step.knots[op + 1])
        alike = step.same[op] or step.group[op] != INTRA_NODE
        for rank in range(start, start + 1 if alike else start + self.local_ranks):
            self.put(row, rank, seconds)
