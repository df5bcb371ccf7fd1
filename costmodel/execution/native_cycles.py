"""A heaviest cycle of a step, in compiled code: how short a step of other plans can be at most.

What ends a step waited for something, that for something else, and so on: a path. From where it
passes a collective of all ranks in one step to where it did in the step before it is a *cycle*
(or from any operation, if it passes no such collective: a host that is too slow for its GPU), and
step after step takes at least the cycle's durations and lags. That holds for every plan of the
same program, with that plan's durations, and whatever rank the path keeps to between two
collectives of all ranks. So one cycle of every program tells most moves that overload a rank, or
that bring a collective in for one table, for what they are before they are timed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import CONSTANT, CROSS_NODE, INTRA_NODE, ISSUE, WORLD
from costmodel.execution.native import compiled, inlined
from costmodel.execution.synthesis import NUM_STEPS

COMPARED = 64
"""Ranks besides its own that a cycle is tried on, those that a move changed last (where it puts
something) first. A move of one table mostly changes two, but to time one that changes more takes
longer than trying them all."""
JOINED, EQUAL, ANY = range(3)
"""Operations before which all ranks wait for each other; others that take all ranks as long; and
those that depend on the rank."""
NOTHING = 1 << 60
"""Stands for what an operation waited for, where that is not known any more."""
ROUNDING = 1e-12


class Cycle(NamedTuple):
    """A cycle: the last operations of a path; or those of several programs, with one more axis."""

    span: NDArray[np.int64]
    """(2,): where on the path it begins, and the path's length; nowhere: no cycle is known."""
    rows: NDArray[np.int64]
    """Where the durations of the path's operations are; -1: among the lags. Latest ones first."""
    ranks: NDArray[np.int64]
    kinds: NDArray[np.int64]
    lags: NDArray[np.float64]
    """Between an operation and the one it waited for, and constant durations."""
    constant: NDArray[np.float64]
    """(1,): the sum of the cycle's."""
    seen: NDArray[np.int64]
    """Where on the path each operation of the last step is; -1: nowhere."""
    is_on: NDArray[np.bool_]
    """Of every row of the numbers, whether the cycle has its duration."""
    sums: NDArray[np.float64]
    """To add up in: on its own ranks, and on ``COMPARED`` others."""


def no_cycles(num_programs: int, num_ops: int, num_rows: int) -> Cycle:
    """Return room for a cycle of each of some programs."""

    def ints(width: int) -> NDArray[np.int64]:
        return np.zeros((num_programs, width), dtype=np.int64)

    path = 2 * num_ops
    return Cycle(
        span=ints(2), rows=ints(path), ranks=ints(path), kinds=ints(path),
        lags=np.zeros((num_programs, path)), constant=np.zeros((num_programs, 1)),
        seen=ints(num_ops), is_on=np.zeros((num_programs, num_rows), dtype=np.bool_),
        sums=np.zeros((num_programs, 1 + COMPARED)),
    )  # fmt: skip


@inlined
def cycle_of(cycles, number):
    """Return the cycle of one program."""
    return Cycle(
        cycles.span[number], cycles.rows[number], cycles.ranks[number], cycles.kinds[number],
        cycles.lags[number], cycles.constant[number], cycles.seen[number], cycles.is_on[number],
        cycles.sums[number],
    )  # fmt: skip


@inlined
def bound(plan, cycle, ranks):
    """Return what a step takes at least: the cycle, on its own ranks or on some of others."""
    numbers, sums, total = plan.numbers, cycle.sums, cycle.constant[0]
    count = min(ranks.size, COMPARED)
    for other in range(count + 1):
        sums[other] = 0.0
    for index in range(cycle.span[0], cycle.span[1]):
        row, kind = cycle.rows[index], cycle.kinds[index]
        if kind == ANY:
            sums[0] += numbers[row, cycle.ranks[index]]
            for other in range(count):
                sums[other + 1] += numbers[row, ranks[ranks.size - 1 - other]]
            continue
        if kind == JOINED:
            total += _most(sums, count)
        if row >= 0:
            total += numbers[row, 0]
    return total + _most(sums, count)


@inlined
def _most(sums, count):
    """Return the largest sum, and begin anew."""
    longest = 0.0
    for other in range(count + 1):
        longest = max(longest, sums[other])
        sums[other] = 0.0
    return longest


@compiled
def trace(plan, step, scratch, cycle):
    """Find a cycle of the plan that was timed last, if it is found simply."""
    cycle.span[:] = 0
    cycle.is_on[:] = False
    cycle.seen[:] = -1
    count, number = 0, NUM_STEPS - 1
    op, rank = _last(plan, step, scratch)
    while number >= NUM_STEPS - 2:
        if number == NUM_STEPS - 1:
            cycle.seen[op] = count
        elif cycle.seen[op] >= 0 and _is_closed(cycle, cycle.seen[op], count, rank):
            cycle.span[0], cycle.span[1] = cycle.seen[op], count
            _close(step, cycle)
            return
        source, lag, other = _waited_for(plan, step, scratch, (op, rank, number))
        if source == NOTHING:
            return
        _add(step, cycle, count, (op, rank, lag))
        count += 1
        number -= source < 0
        op, rank = source if source >= 0 else -1 - source, other


@inlined
def _is_closed(cycle, first, last, rank):
    """Return whether a path is a cycle wherever it goes: through all ranks, or never to others."""
    if cycle.kinds[first] == JOINED:
        return True
    joined = False
    for index in range(first, last):
        joined |= cycle.kinds[index] == JOINED
    return cycle.ranks[first] == rank and not joined


@inlined
def _last(plan, step, scratch):
    """Return the operation, and its rank, that ended the last step."""
    now, latest, found = (NUM_STEPS - 1) % 2 * step.kind.size, -1.0, (0, 0)
    for op in step.finals:
        for rank in range(1 if scratch.together[now + op] else plan.machine.num_ranks):
            if scratch.ends[now + op, rank] > latest:
                latest, found = scratch.ends[now + op, rank], (op, rank)
    return found


@inlined
def _waited_for(plan, step, scratch, where):
    """Return what an operation waited for last, how long after that it began, and on which rank."""
    (op, rank, number), num_ops = where, step.kind.size
    now, before = number % 2 * num_ops, (1 - number % 2) * num_ops
    latest, found = -1.0, (NOTHING, 0.0, 0)
    for entry in range(step.starts[op], step.starts[op + 1]):
        source, lag = step.sources[entry], step.lags[entry]
        if source < 0 and number < NUM_STEPS - 1:
            continue  # that step is forgotten
        end = now + source if source >= 0 else before - 1 - source
        first, last, stride = _members(plan, step.group[op], rank)
        if scratch.together[end]:
            first, last, stride = 0, 1, 1
        for member in range(first, last, stride):
            if scratch.ends[end, member] + lag > latest:
                latest, found = scratch.ends[end, member] + lag, (source, lag, member)
    together = scratch.together[now + op] or step.group[op] == WORLD
    start = scratch.ends[now + op, 0 if scratch.together[now + op] else rank]
    row, alike = step.rows[op], together or step.same[op]
    start -= (
        step.seconds[op] if step.kind[op] == CONSTANT else plan.numbers[row, 0 if alike else rank]
    )
    return found if latest >= start * (1 - ROUNDING) else (NOTHING, 0.0, 0)


@inlined
def _members(plan, group, rank):
    """Return the ranks that begin together with one, as a range."""
    ranks, local = plan.machine.num_ranks, plan.machine.local_ranks
    if group == WORLD:
        return 0, ranks, 1
    if group == INTRA_NODE:
        return rank // local * local, rank // local * local + local, 1
    if group == CROSS_NODE:
        return rank % local, ranks, local
    return rank, rank + 1, 1


@inlined
def _add(step, cycle, index, reached):
    """Put an operation on the path, and the lag before it."""
    op, rank, lag = reached
    constant = step.kind[op] == CONSTANT
    cycle.rows[index] = -1 if constant else step.rows[op]
    cycle.ranks[index] = rank
    cycle.lags[index] = lag + (step.seconds[op] if constant else 0.0)
    alike = constant or step.same[op]
    cycle.kinds[index] = JOINED if step.group[op] == WORLD else EQUAL if alike else ANY


@inlined
def _close(step, cycle):
    """Sum up the lags, and note which durations the cycle has."""
    cycle.constant[0] = 0.0
    for index in range(cycle.span[0], cycle.span[1]):
        cycle.constant[0] += cycle.lags[index]
        if cycle.rows[index] >= 0:
            cycle.is_on[cycle.rows[index]] = True
    for op in range(step.kind.size):  # an issue lasts if what it launches does
        if step.kind[op] == ISSUE and cycle.is_on[step.rows[op]]:
            cycle.is_on[step.rows[step.launched[op]]] = True
