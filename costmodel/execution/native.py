"""Lowered steps timed by compiled code: the rules of ``execution.compiled``, one plan at a time.

Durations follow from loads and are kept, so that a search which changes two ranks recomputes those
of two ranks; the recurrences are then run over all ranks, some microseconds for 64 of them.
Compiled on first use, and kept on disk for later processes.

All numbers of a plan are rows of one array with a column for every rank, the *numbers*; ``Places``
says which rows are what. Whoever changes one calls ``put``, which notes the old one in a journal,
so that a move that is not made costs no more to take back than it changed.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import (
    ACROSS,
    ALONE,
    ALPHA,
    BACKWARD,
    CONSTANT,
    EXCHANGE,
    FORWARD,
    INTRA_NODE,
    ISSUE,
    OFFSET,
    RATIO,
    SCALE,
    SLOPE,
    WORLD,
    LoweredStep,
    Machine,
)
from costmodel.execution.synthesis import NUM_STEPS
from costmodel.kernels import collectives, embedding

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
"""``_nrt``: without counting references to arrays, which took three quarters of the time. So
nothing here makes an array, and no array is returned to Python."""
compiled = numba.njit(cache=True, **_OPTIONS)
inlined = numba.njit(forceinline=True, **_OPTIONS)
"""For what is called millions of times: passing some seventy arrays takes longer than their use."""
forward_seconds = compiled(embedding.forward_seconds)
backward_seconds = compiled(embedding.backward_seconds)
curve_seconds = compiled(collectives.curve_seconds)


class Places(NamedTuple):
    """Rows of the numbers."""

    ranks: int
    """Rank features of every group."""
    whole: int
    """Plan features of every group, in the first column."""
    forward: int
    """Seconds of every lookup kernel."""
    backward: int
    steps: int
    """Durations of every operation; bytes of every exchange, and of every issue whether it takes
    all ranks as long; the largest of these bytes: of the step of the present plan, and of that of a
    plan with other sharding groups. What is the same on all ranks is in the first column."""
    step_rows: int


class Journal(NamedTuple):
    """Rows of the numbers as they were before they were changed."""

    saved: NDArray[np.float64]
    """As many rows as the numbers; those of ``rows`` count."""
    is_saved: NDArray[np.int64]
    rows: NDArray[np.int64]
    """The last number counts them."""


class Plan(NamedTuple):
    """What is known of the present plan."""

    machine: Machine
    places: Places
    numbers: NDArray[np.float64]
    journal: Journal
    everyone: NDArray[np.int64]
    """All ranks."""


class Scratch(NamedTuple):
    """Where ``step_time`` works; nothing in it outlives a call."""

    ends: NDArray[np.float64]
    """When each operation of two steps ended: (2 x operations, ranks)."""
    together: NDArray[np.int64]
    """Whether all ranks ended it together; the first rank's end counts then."""
    others: NDArray[np.int64]
    """Sources of one operation; as many as any has."""
    waits: NDArray[np.float64]


class Changes(NamedTuple):
    """What a move has changed in the loads."""

    groups: int
    """Bits of the sharding groups."""
    ranks: NDArray[np.int64]
    sums: bool
    """Whether plan features have changed too."""


@compiled
def program(programs, number):
    """Return one of several lowered steps; its arrays are views."""
    steps = programs.steps
    op, end = programs.ops[number], programs.ops[number + 1]
    bounds, bounds_end = op + number, end + number + 1
    entry, last_entry = programs.entries[number], programs.entries[number + 1]
    term, last_term = programs.terms[number], programs.terms[number + 1]
    knot, last_knot = programs.knots[number], programs.knots[number + 1]
    final, last_final = programs.finals[number], programs.finals[number + 1]
    return LoweredStep(
        kind=steps.kind[op:end],
        seconds=steps.seconds[op:end],
        kernel=steps.kernel[op:end],
        group=steps.group[op:end],
        launched=steps.launched[op:end],
        same=steps.same[op:end],
        touched_by=steps.touched_by[op:end],
        starts=steps.starts[bounds:bounds_end],
        sources=steps.sources[entry:last_entry],
        lags=steps.lags[entry:last_entry],
        terms=steps.terms[bounds:bounds_end],
        features=steps.features[term:last_term],
        weights=steps.weights[term:last_term],
        constants=steps.constants[op:end],
        forms=steps.forms[op:end],
        knots=steps.knots[bounds:bounds_end],
        log_bytes=steps.log_bytes[knot:last_knot],
        log_seconds=steps.log_seconds[knot:last_knot],
        finals=steps.finals[final:last_final],
    )


@inlined
def save(plan, row):
    """Note a row, which is going to be changed, unless that was done."""
    journal = plan.journal
    if not journal.is_saved[row]:
        journal.is_saved[row] = 1
        journal.rows[journal.rows[-1]] = row
        journal.rows[-1] += 1
        for rank in range(plan.numbers.shape[1]):
            journal.saved[row, rank] = plan.numbers[row, rank]


@compiled
def take_back(plan):
    """Undo all changes since the journal was empty, and empty it."""
    journal = plan.journal
    for index in range(journal.rows[-1]):
        row = journal.rows[index]
        for rank in range(plan.numbers.shape[1]):
            plan.numbers[row, rank] = journal.saved[row, rank]
    forget(plan)


@compiled
def forget(plan):
    """Empty the journal."""
    journal = plan.journal
    for index in range(journal.rows[-1]):
        journal.is_saved[journal.rows[index]] = 0
    journal.rows[-1] = 0


@inlined
def first_row(plan, which):
    """Return where the durations of one of the two steps begin."""
    return plan.places.steps + which * plan.places.step_rows


@compiled
def refresh(plan, step, which, changes):
    """Recompute the durations of one of the two steps that some changes decide.

    Those of the present plan's step are noted.
    """
    first = first_row(plan, which)
    for op in range(step.kind.size - 1, -1, -1):  # an issue needs the operation it launches
        kind, row = step.kind[op], first + op
        if kind == CONSTANT or not step.touched_by[op] & changes.groups:
            continue
        save(plan, row)
        if kind == EXCHANGE:
            _exchange(plan, step, op, row, changes)
        elif step.same[op]:
            if changes.sums:
                plan.numbers[row, 0] = _duration(plan, step, op, row, 0)
                if kind == ISSUE:
                    save(plan, row + step.kind.size)
                    plan.numbers[row + step.kind.size, 0] = 1.0
        elif kind == FORWARD or kind == BACKWARD:
            known = plan.places.forward if kind == FORWARD else plan.places.backward
            for rank in range(plan.machine.num_ranks):
                plan.numbers[row, rank] = plan.numbers[known + step.kernel[op], rank]
        else:
            everyone = changes.sums
            for index in range(plan.machine.num_ranks if everyone else changes.ranks.size):
                rank = index if everyone else changes.ranks[index]
                plan.numbers[row, rank] = _duration(plan, step, op, row, rank)
            if kind == ISSUE:
                _compare(plan, row, row + step.kind.size)


@inlined
def _compare(plan, row, noted):
    """Note whether the duration of an issue is the same on all ranks now."""
    same = 1.0
    for rank in range(1, plan.machine.num_ranks):
        if plan.numbers[row, rank] != plan.numbers[row, 0]:
            same = 0.0
    save(plan, noted)
    plan.numbers[noted, 0] = same


@compiled
def refresh_all(plan, step, which):
    """Compute every duration of one of the two steps."""
    first = first_row(plan, which)
    for op in range(step.kind.size):
        save(plan, first + op)
        for rank in range(plan.machine.num_ranks):
            if step.kind[op] == CONSTANT:
                plan.numbers[first + op, rank] = step.seconds[op]
            plan.numbers[first + 2 * step.kind.size + op, rank] = -1.0
    refresh(plan, step, which, Changes(groups=-1, ranks=plan.everyone, sums=True))


@inlined
def _duration(plan, step, op, row, rank):
    """Return the duration of an issue, or of a kernel that moves memory."""
    if step.kind[op] == ISSUE:
        launched = row + step.launched[op] - op
        return step.seconds[op] if plan.numbers[launched, rank] > 0 else 0.0
    amount, machine = _amount(plan, step, op, rank), plan.machine
    return machine.stream_latency + amount / machine.stream_bandwidth if amount > 0 else 0.0


@inlined
def _amount(plan, step, op, rank):
    total = step.constants[op]
    for term in range(step.terms[op], step.terms[op + 1]):
        column = step.features[term] - plan.machine.num_rank_features
        if column < 0:
            value = plan.numbers[plan.places.ranks + step.features[term], rank]
        else:
            value = plan.numbers[plan.places.whole + column, 0]
        total += step.weights[term] * value
    return total


@inlined
def _exchange(plan, step, op, row, changes):
    """Recompute the bytes that some ranks exchange, and how long that takes all of them."""
    machine, sent = plan.machine, row + step.kind.size
    save(plan, sent)
    for index in range(machine.num_ranks if changes.sums else changes.ranks.size):
        rank = index if changes.sums else changes.ranks[index]
        plan.numbers[sent, rank] = _amount(plan, step, op, rank)
    joined = machine.local_ranks if step.group[op] == INTRA_NODE else machine.num_ranks
    for start in range(0, machine.num_ranks, joined):
        largest, known = 0.0, sent + step.kind.size
        for rank in range(start, start + joined):
            largest = max(largest, plan.numbers[sent, rank])
        if largest != plan.numbers[known, start]:
            save(plan, known)
            plan.numbers[known, start] = largest
            value = _form_seconds(step, op, largest)
            for rank in range(start, start + 1 if step.same[op] else start + joined):
                plan.numbers[row, rank] = value


@inlined
def _form_seconds(step, op, size):
    """Return the time of a collective; as ``CollectiveForm.time``."""
    form = step.forms[op]
    local = form[OFFSET] + form[SLOPE] * size
    if form[SCALE] > 0:
        first, last = step.knots[op], step.knots[op + 1]
        log_bytes, log_seconds = step.log_bytes[first:last], step.log_seconds[first:last]
        local += form[SCALE] * curve_seconds(form[RATIO] * size, log_bytes, log_seconds)
    return form[ALPHA] + max(local, form[ACROSS] * size)


@compiled
def step_time(plan, step, which, scratch):  # one function, as calls cost more than their work
    """Return the duration of the last of some steps, as ``CompiledStep.step_times``.

    Where all ranks end an operation together, one of them is timed.
    """
    first, num_ops, num_ranks = first_row(plan, which), step.kind.size, plan.machine.num_ranks
    numbers, ends, together = plan.numbers, scratch.ends, scratch.together
    group, starts, sources, lags = step.group, step.starts, step.sources, step.lags
    others, waits = scratch.others, scratch.waits
    last = before_last = 0.0
    for number in range(NUM_STEPS):
        now, before = number % 2 * num_ops, (1 - number % 2) * num_ops
        for op in range(num_ops):
            base, count, row, end = 0.0, 0, first + op, now + op
            for entry in range(starts[op], starts[op + 1]):
                source, lag = sources[entry], lags[entry]
                if source < 0 and number == 0:
                    base = max(base, lag)
                    continue
                source = now + source if source >= 0 else before - 1 - source
                if together[source]:
                    base = max(base, ends[source, 0] + lag)
                else:
                    others[count], waits[count] = source, lag
                    count += 1
            if group[op] == WORLD:
                for index in range(count):
                    latest, source = 0.0, others[index]
                    for rank in range(num_ranks):
                        latest = max(latest, ends[source, rank])
                    base = max(base, latest + waits[index])
                count = 0
            same = numbers[row + num_ops, 0] if step.kind[op] == ISSUE else step.same[op]
            together[end] = same and count == 0
            if together[end]:
                ends[end, 0] = base + numbers[row, 0]
                continue
            for rank in range(num_ranks):
                ends[end, rank] = base
            if count == 1:
                source, lag = others[0], waits[0]
                for rank in range(num_ranks):
                    ends[end, rank] = max(base, ends[source, rank] + lag)
            elif count == 2:
                source, lag, second, wait = others[0], waits[0], others[1], waits[1]
                for rank in range(num_ranks):
                    latest = max(ends[source, rank] + lag, ends[second, rank] + wait)
                    ends[end, rank] = max(base, latest)
            else:
                for index in range(count):
                    source, lag = others[index], waits[index]
                    for rank in range(num_ranks):
                        ends[end, rank] = max(ends[end, rank], ends[source, rank] + lag)
            if group[op] != ALONE:
                _join(group[op], plan.machine.local_ranks, ends[end])
            if same:
                seconds = numbers[row, 0]
                for rank in range(num_ranks):
                    ends[end, rank] += seconds
            else:
                for rank in range(num_ranks):
                    ends[end, rank] += numbers[row, rank]
        before_last, last = last, 0.0
        for op in step.finals:
            for rank in range(1 if together[now + op] else num_ranks):
                last = max(last, ends[now + op, rank])
    return last - before_last


@compiled
def _join(group, local, starts):
    """Give every rank the latest start of its group."""
    for member in range(starts.size):
        first = member // local * local if group == INTRA_NODE else member % local
        if member != first:
            starts[first] = max(starts[first], starts[member])
    for member in range(starts.size):
        first = member // local * local if group == INTRA_NODE else member % local
        starts[member] = starts[first]
