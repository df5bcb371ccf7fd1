"""One step as flat arrays, and how long it takes: max-plus recurrences, operation by operation.

An operation starts when the last of its sources has ended, each plus a lag, and, in a collective,
when it could start on the last rank of its group. Where all ranks end an operation together, one
number is kept for all of them.
"""

import numpy as np

from costmodel.base.arrays import Array, Ints
from costmodel.engine.codes import ALONE, CONSTANT, CROSS_NODE, INTRA_NODE, ISSUE, WORLD
from costmodel.kernels.times import ExchangeTimes
from costmodel.step.synthesis import NUM_STEPS


class Step:
    """One step of plans with certain sharding groups, as arrays; operations in dependency order."""

    def __init__(
        self,
        *,
        kind: Ints,
        seconds: Array,
        group: Ints,
        launched: Ints,
        same: Ints,
        rows: Ints,
        whole: Ints,
        touched_by: Ints,
        starts: Ints,
        sources: Ints,
        lags: Array,
        terms: Ints,
        features: Ints,
        weights: Array,
        constants: Array,
        forms: Array,
        knots: Ints,
        log_bytes: Array,
        log_seconds: Array,
        finals: Ints,
        like: Ints,
        least: Ints,
        parts: Ints,
        kernels: Ints,
    ) -> None:
        """Keep the arrays; one entry per operation where nothing else is said.

        Parameters
        ----------
        kind, group
            Kind of work, and the process group of a collective (``engine.codes``).
        seconds
            Of a constant; of an issue, where what it launches takes time.
        launched
            Of an issue, the operation it launches; -1 otherwise.
        same
            1 where the duration is the same on all ranks.
        rows
            Row of the durations (``state.PlanState.numbers``) where it is kept.
        whole
            Whether it depends on features of the whole plan: ``NONE``, ``SOME``, ``ONLY``.
        touched_by
            Bits of the sharding groups that it depends on.
        starts, sources, lags
            Where each operation's sources begin (one more entry than operations); the sources,
            operations, where ``-1 - op`` is the operation in the step before; seconds after them.
        terms, features, weights, constants
            Where each operation's terms begin; columns (rank features, then plan features, each by
            group and name, then those of lookup kernels); bytes for a unit of each; bytes besides
            the terms.
        forms, knots, log_bytes, log_seconds
            Of collectives: (operations, columns from ``ALPHA`` to ``OPTIONAL``); where each one's
            curve begins; the curves.
        finals
            Operations that end a step, the last of every resource.
        like
            Of batches that are not written: the numbers of ``LikeBatches``; else empty.
        least, parts, kernels
            How many lookup kernels must have work on a rank for the operation to take place there;
            where each one's begin (one more entry than operations); these kernels. Of a gradient of
            ids' weights, its own kernel.

        """
        self.num_ops = kind.size
        self.kind, self.seconds, self.group, self.launched = kind, seconds, group, launched
        self.same, self.rows, self.whole, self.touched_by = same, rows, whole, touched_by
        self.starts, self.sources, self.lags = starts, sources, lags
        self.terms, self.features, self.weights = terms, features, weights
        self.constants = constants
        self.knots, self.exchanges = knots, ExchangeTimes(forms, log_bytes, log_seconds)
        self.finals, self.like = finals, like
        self.least, self.parts, self.kernels = least, parts, kernels


class StepClock:
    """Times steps whose durations are kept in one array, a row for every operation."""

    def __init__(self, numbers: Array, *, busy: int, local_ranks: int, num_ops: int) -> None:
        """Make room for steps of up to so many operations.

        Parameters
        ----------
        numbers
            Durations in seconds, (rows, ranks); what is the same on all ranks is in the first
            column. The caller changes them between calls.
        busy
            Rows from an issue's duration to the number of ranks it takes time on.
        local_ranks
            Ranks of a node.
        num_ops
            The most operations of a step.

        """
        self.numbers, self.busy, self.local_ranks = numbers, busy, local_ranks
        self.num_ranks = numbers.shape[1]
        self.ends = np.zeros((2 * num_ops, self.num_ranks))
        """End of each operation of two steps, by rank."""
        self.together = np.zeros(2 * num_ops, dtype=np.int64)
        """Whether all ranks ended an operation at the same time, which is then the first rank's."""
        self.latest = np.zeros(2 * num_ops)
        """Latest of an operation's ends over ranks; negative: not computed yet."""
        self.others = np.zeros(num_ops, dtype=np.int64)
        """Sources of the present operation; room for the most of any."""
        self.waits = np.zeros(num_ops)

    def step_time(self, step: Step) -> float:
        """Return the duration of the last of ``NUM_STEPS`` consecutive steps, in seconds."""
        last = before_last = 0.0
        skipped_at = step.like[2] if step.like.shape[0] > 0 else -1
        for number in range(NUM_STEPS):
            now, before = number % 2 * step.num_ops, (1 - number % 2) * step.num_ops
            for op in range(step.num_ops):
                if op == skipped_at:
                    self._skip_batches(step, now)
                self._time_op(step, op, now, before, number == 0)
            if number >= NUM_STEPS - 2:  # the last step begins when the one before ends
                before_last, last = last, self._end_of_step(step, now)
        return last - before_last

    def _skip_batches(self, step: Step, now: int) -> None:
        """Move the ends of the batch timed last to those of the last of several like it.

        Each of its operations ends later than in the batch before by the same time for every batch.
        """
        length, count = step.like[1] - step.like[0], step.like[3]
        for late in range(now + step.like[1], now + step.like[2]):
            early = late - length
            if self.together[late]:
                earlier = self.ends[early, 0] if self.together[early] else self._latest_end(early)
                self.ends[late, 0] += count * (self.ends[late, 0] - earlier)
                continue
            self.latest[late] = -1.0
            for rank in range(self.num_ranks):
                earlier = self.ends[early, 0 if self.together[early] else rank]
                self.ends[late, rank] += count * (self.ends[late, rank] - earlier)

    def _time_op(self, step: Step, op: int, now: int, before: int, is_first: bool) -> None:
        """Compute the end of one operation on every rank."""
        base, row, end, group = 0.0, step.rows[op], now + op, step.group[op]
        count = 0
        for entry in range(step.starts[op], step.starts[op + 1]):
            source, lag = step.sources[entry], step.lags[entry]
            if source < 0 and is_first:
                base = max(base, lag)
                continue
            source = now + source if source >= 0 else before - 1 - source
            if self.together[source]:
                base = max(base, self.ends[source, 0] + lag)
            elif group == WORLD:
                if self.latest[source] < 0:
                    self.latest[source] = self._latest_end(source)
                base = max(base, self.latest[source] + lag)
            else:
                self.others[count] = source
                self.waits[count] = lag
                count += 1
        same = step.same[op] != 0
        if step.kind[op] == ISSUE and not same:
            ranks_busy = self.numbers[row + self.busy, 0]
            same = ranks_busy == 0 or ranks_busy == self.num_ranks
        seconds = step.seconds[op] if step.kind[op] == CONSTANT else self.numbers[row, 0]
        if same and count == 0:
            self.together[end] = 1
            self.ends[end, 0] = base + seconds
            return
        self.together[end] = 0
        self.latest[end] = -1.0
        if group == ALONE and same:
            for index in range(count):
                self.waits[index] += seconds
            self._start(end, base + seconds, count)
        elif group == ALONE and count == 1:
            self._after_one(end, base, row)
        elif group == ALONE and count == 2:
            self._after_two(end, base, row)
        else:
            self._start(end, base, count)
            if group == INTRA_NODE or group == CROSS_NODE:
                self._join(end, group)
            self._add(end, row, seconds if same else -1.0)

    def _add(self, end: int, row: int, seconds: float) -> None:
        """Add an operation's duration on every rank: ``seconds``, or if negative its row."""
        if seconds >= 0:
            for rank in range(self.num_ranks):
                self.ends[end, rank] += seconds
        else:
            for rank in range(self.num_ranks):
                self.ends[end, rank] += self.numbers[row, rank]

    def _after_one(self, end: int, base: float, row: int) -> None:
        """Set every rank's end to the later of a time and one source, plus the duration."""
        first, lag = self.others[0], self.waits[0]
        for rank in range(self.num_ranks):
            start = self.ends[first, rank] + lag
            self.ends[end, rank] = (start if start > base else base) + self.numbers[row, rank]

    def _after_two(self, end: int, base: float, row: int) -> None:
        """Set every rank's end to the latest of a time and two sources, plus the duration."""
        first, lag, second, wait = self.others[0], self.waits[0], self.others[1], self.waits[1]
        for rank in range(self.num_ranks):
            start, other = self.ends[first, rank] + lag, self.ends[second, rank] + wait
            start = start if start > base else base
            self.ends[end, rank] = (start if start > other else other) + self.numbers[row, rank]

    def _start(self, end: int, base: float, count: int) -> None:
        """Set every rank's start to the latest of a time and some sources, each plus a lag.

        Two sources at a time are read, as reading and writing the ranks' values takes the time; an
        odd one counts twice.
        """
        if count == 0:
            for rank in range(self.num_ranks):
                self.ends[end, rank] = base
        for index in range(0, count, 2):
            pair = min(index + 1, count - 1)
            first, lag = self.others[index], self.waits[index]
            second, wait = self.others[pair], self.waits[pair]
            for rank in range(self.num_ranks):
                start, other = self.ends[first, rank] + lag, self.ends[second, rank] + wait
                known = self.ends[end, rank] if index > 0 else base
                start = start if start > known else known
                self.ends[end, rank] = start if start > other else other

    def _join(self, op: int, group: int) -> None:
        """Set every rank's start to the latest on its node, or of its peers on other nodes."""
        num_nodes = self.num_ranks // self.local_ranks
        if group == INTRA_NODE:
            for node in range(num_nodes):
                first, latest = node * self.local_ranks, 0.0
                for rank in range(first, first + self.local_ranks):
                    end = self.ends[op, rank]
                    latest = end if end > latest else latest
                for rank in range(first, first + self.local_ranks):
                    self.ends[op, rank] = latest
        elif group == CROSS_NODE:
            for node in range(1, num_nodes):
                first = node * self.local_ranks
                for rank in range(self.local_ranks):
                    end, latest = self.ends[op, first + rank], self.ends[op, rank]
                    self.ends[op, rank] = end if end > latest else latest
            for node in range(1, num_nodes):
                first = node * self.local_ranks
                for rank in range(self.local_ranks):
                    self.ends[op, first + rank] = self.ends[op, rank]

    def _latest_end(self, op: int) -> float:
        """Return when the last rank ended an operation."""
        latest = 0.0
        for rank in range(self.num_ranks):
            end = self.ends[op, rank]
            latest = end if end > latest else latest
        return latest

    def _end_of_step(self, step: Step, now: int) -> float:
        """Return when the last of the step's final operations ends on any rank."""
        last = 0.0
        for index in range(step.finals.shape[0]):
            end = now + step.finals[index]
            last = max(last, self.ends[end, 0] if self.together[end] else self._latest_end(end))
        return last
