"""Lowered steps timed in compiled code: the recurrences of ``execution.compiled``, plan by plan.

Some microseconds for 64 ranks: what an operation waits for is sorted out once for all of them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import ALONE, CONSTANT, INTRA_NODE, ISSUE, WORLD
from costmodel.execution.native import inlined
from costmodel.execution.synthesis import NUM_STEPS


class Scratch(NamedTuple):
    """Where ``step_time`` works; nothing in it outlives a call."""

    ends: NDArray[np.float64]
    """When each operation of two steps ended: (2 x operations, ranks)."""
    together: NDArray[np.int64]
    """Whether all ranks ended it together; the first rank's end counts then."""
    latest: NDArray[np.float64]
    """The latest of these ends, where somebody asked for it; before: negative."""
    others: NDArray[np.int64]
    """Sources of one operation; as many as any has."""
    waits: NDArray[np.float64]


@inlined
def step_time(plan, step, scratch):  # one function, as calls cost more than their work
    """Return the duration of the last of some steps, as ``CompiledStep.step_times``.

    Where all ranks end an operation together, one of them is timed.
    """
    num_ops, num_ranks, local = step.kind.size, plan.machine.num_ranks, plan.machine.local_ranks
    numbers, ends, together = plan.numbers, scratch.ends, scratch.together
    group, starts, sources, lags = step.group, step.starts, step.sources, step.lags
    others, waits, latest = scratch.others, scratch.waits, scratch.latest
    last = before_last = 0.0
    for number in range(NUM_STEPS):
        now, before = number % 2 * num_ops, (1 - number % 2) * num_ops
        for op in range(num_ops):
            base, count, row, end = 0.0, 0, step.rows[op], now + op
            for entry in range(starts[op], starts[op + 1]):
                source, lag = sources[entry], lags[entry]
                if source < 0 and number == 0:
                    base = max(base, lag)
                    continue
                source = now + source if source >= 0 else before - 1 - source
                if together[source]:
                    base = max(base, ends[source, 0] + lag)
                elif group[op] == WORLD:
                    if latest[source] < 0:
                        latest[source] = _largest(ends[source])
                    base = max(base, latest[source] + lag)
                else:
                    others[count], waits[count] = source, lag
                    count += 1
            same = step.same[op] != 0
            if step.kind[op] == ISSUE and not same:
                busy = numbers[row + plan.places.step_rows, 0]
                same = busy == 0 or busy == num_ranks
            seconds = step.seconds[op] if step.kind[op] == CONSTANT else numbers[row, 0]
            together[end] = same and count == 0
            if together[end]:
                ends[end, 0] = base + seconds
                continue
            latest[end] = -1.0
            out, durations = ends[end], numbers[row]
            if group[op] != ALONE:
                _begin(ends, out, base, (others, waits, count))
                _join(group[op], local, out)
                for rank in range(num_ranks):
                    out[rank] += seconds if same else durations[rank]
            elif same:
                for index in range(count):
                    waits[index] += seconds
                _begin(ends, out, base + seconds, (others, waits, count))
            elif count == 1:
                lag, first = waits[0], ends[others[0]]
                for rank in range(num_ranks):
                    out[rank] = max(base, first[rank] + lag) + durations[rank]
            elif count == 2:
                lag, first, wait, second = waits[0], ends[others[0]], waits[1], ends[others[1]]
                for rank in range(num_ranks):
                    start = max(base, first[rank] + lag, second[rank] + wait)
                    out[rank] = start + durations[rank]
            else:
                _begin(ends, out, base, (others, waits, count))
                for rank in range(num_ranks):
                    out[rank] += durations[rank]
        if number < NUM_STEPS - 2:
            continue  # the last step begins when the one before ends
        before_last, last = last, 0.0
        for op in step.finals:
            if together[now + op]:
                last = max(last, ends[now + op, 0])
            else:
                last = max(last, _largest(ends[now + op]))
    return last - before_last


@inlined
def _largest(values):
    """Return the largest of some numbers that are not negative.

    Eight at a time, as each waits for the one before it: LLVM keeps the order of comparisons.
    """
    a = b = c = d = e = f = g = h = 0.0
    together = values.size - values.size % 8
    for index in range(0, together, 8):
        a, b = max(a, values[index]), max(b, values[index + 1])
        c, d = max(c, values[index + 2]), max(d, values[index + 3])
        e, f = max(e, values[index + 4]), max(f, values[index + 5])
        g, h = max(g, values[index + 6]), max(h, values[index + 7])
    for index in range(together, values.size):
        a = max(a, values[index])
    return max(a, b, c, d, e, f, g, h)


@inlined
def _begin(ends, out, base, waiting):
    """Give every rank the latest of a time and of some sources, each plus a lag."""
    others, waits, count = waiting
    if count == 1:
        lag, first = waits[0], ends[others[0]]
        for rank in range(out.size):
            out[rank] = max(base, first[rank] + lag)
    elif count == 2:
        lag, first, wait, second = waits[0], ends[others[0]], waits[1], ends[others[1]]
        for rank in range(out.size):
            out[rank] = max(base, first[rank] + lag, second[rank] + wait)
    else:
        for rank in range(out.size):
            out[rank] = base
        for index in range(count):
            lag, first = waits[index], ends[others[index]]
            for rank in range(out.size):
                out[rank] = max(out[rank], first[rank] + lag)


@inlined
def _join(group, local, starts):
    """Give every rank the latest start of its group."""
    if group == INTRA_NODE:
        for first in range(0, starts.size, local):
            latest = 0.0
            for rank in range(first, first + local):
                latest = max(latest, starts[rank])
            for rank in range(first, first + local):
                starts[rank] = latest
        return
    for first in range(local, starts.size, local):
        for rank in range(local):
            starts[rank] = max(starts[rank], starts[first + rank])
    for first in range(local, starts.size, local):
        for rank in range(local):
            starts[first + rank] = starts[rank]
