"""Durations of a plan under search, in compiled code: the rules of ``execution.compiled``.

They follow from loads and are kept, so that a search which changes two ranks recomputes those of
two ranks; ``execution.native_step`` then times the step. Compiled on first use, and kept on disk
for later processes.

What a plan's ranks look up and send are its *loads*, rank by rank, as shards change what belongs
to one rank. All else is rows of one array with a column for every rank, the *numbers*, as steps
are timed for all ranks at once; ``Places`` says which rows are what. Whoever changes one calls
``put``, or ``save`` for loads, which notes the old one in a journal, so that a move that is not
made costs no more to take back than it changed. Programs of other sharding groups have the same
operations with the same durations where they have them at all, so that all programs share these.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import (
    ACROSS,
    ALPHA,
    BACKWARD,
    CONSTANT,
    EXCHANGE,
    FORWARD,
    INTRA_NODE,
    ISSUE,
    NO_GROUP,
    NONE,
    OFFSET,
    ONLY,
    RATIO,
    SCALE,
    SLOPE,
    LoweredStep,
    Machine,
)
from costmodel.execution.native_code import Native
from costmodel.kernels import collectives, embedding
from costmodel.kernels.embedding import NUM_TRAFFIC

Decorator = Callable[[Callable[..., Any]], Native]
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
"""``_nrt``: without counting references to arrays, which took three quarters of the time. So
nothing here makes an array, and no array is returned to Python."""
compiled: Decorator = partial(Native, cache=True, **_OPTIONS)
inlined: Decorator = partial(Native, forceinline=True, **_OPTIONS)
"""For what is called millions of times: passing some seventy arrays takes longer than their use."""
forward_seconds = compiled(embedding.forward_seconds)
backward_seconds = compiled(embedding.backward_seconds)
curve_seconds = compiled(collectives.curve_seconds)


class Places(NamedTuple):
    """Rows of the numbers."""

    whole: int
    """Plan features of every group, in the first column."""
    forward: int
    """Seconds of every lookup kernel."""
    backward: int
    steps: int
    """Durations of all other operations that any program has; then bytes of every exchange, and of
    every issue on how many ranks it takes time; then the largest of these bytes. What is the same
    on all ranks is in the first column."""
    step_rows: int


class Journal(NamedTuple):
    """Numbers as they were before they were changed, in the order of the changes."""

    cells: NDArray[np.int64]
    values: NDArray[np.float64]
    length: NDArray[np.int64]
    """(1,)."""


class Loads(NamedTuple):
    """What ranks look up and send, and some of it as it was before it was changed."""

    of_ranks: NDArray[np.float64]
    """(ranks, features and traffic): rank features of every group, then what every lookup kernel
    moves, ``NUM_TRAFFIC`` numbers each."""
    flat: NDArray[np.float64]
    """The same numbers, one rank after the other."""
    saved: Journal
    """``NUM_TRAFFIC`` values for each of the cells, which is the first of as many: features are
    fewer, and traffic comes after those of the last group."""


class Touched(NamedTuple):
    """Operations whose durations each sharding group decides, what an issue launches first."""

    starts: NDArray[np.int64]
    """Where each group's begin; one more than there are groups."""
    ops: NDArray[np.int64]


class Plan(NamedTuple):
    """What is known of the present plan."""

    machine: Machine
    places: Places
    numbers: NDArray[np.float64]
    flat: NDArray[np.float64]
    """The same numbers, one row after the other."""
    journal: Journal
    loads: Loads
    touched: Touched
    everyone: NDArray[np.int64]
    """All ranks."""
    node_of: NDArray[np.int64]
    """Of every rank; found here, as dividing takes longer."""


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
        rows=steps.rows[op:end],
        whole=steps.whole[op:end],
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
def put(plan, row, rank, value):
    """Change a number; ``take_back`` undoes it."""
    count = plan.journal.length[0]
    put_at(plan, count, (row, rank), value)
    plan.journal.length[0] = count + 1


@inlined
def put_at(plan, entry, place, value):
    """Change a number, noted as an entry of the journal whose length the caller keeps.

    Many numbers change sooner without the length going through memory each time.
    """
    (row, rank), journal = place, plan.journal
    cell = row * plan.machine.num_ranks + rank
    journal.cells[entry], journal.values[entry] = cell, plan.flat[cell]
    plan.flat[cell] = value


@inlined
def save(loads, rank, first):
    """Note ``NUM_TRAFFIC`` loads of a rank, which may then change; ``take_back`` undoes it.

    More than change is no harm, as all are taken back in the end.
    """
    saved, cell = loads.saved, rank * loads.of_ranks.shape[1] + first
    count = saved.length[0]
    saved.cells[count] = cell
    for index in range(NUM_TRAFFIC):
        saved.values[count * NUM_TRAFFIC + index] = loads.flat[cell + index]
    saved.length[0] = count + 1


@inlined
def take_back(plan):
    """Undo all changes since the journals were empty, and empty them."""
    journal, loads, saved = plan.journal, plan.loads, plan.loads.saved
    for index in range(journal.length[0] - 1, -1, -1):
        plan.flat[journal.cells[index]] = journal.values[index]
    for entry in range(saved.length[0] - 1, -1, -1):
        cell = saved.cells[entry]
        for index in range(NUM_TRAFFIC):
            loads.flat[cell + index] = saved.values[entry * NUM_TRAFFIC + index]
    forget(plan)


@inlined
def forget(plan):
    """Empty the journals."""
    plan.journal.length[0] = 0
    plan.loads.saved.length[0] = 0


@inlined
def refresh(plan, every, changes, rows):
    """Recompute the durations that some changes decide; ``every``: the step of all groups.

    ``rows``: which rows of the numbers, as an array of flags, and the flag of those that count.
    """
    flags, wanted = rows
    for group in range(plan.touched.starts.size - 1):
        if changes.groups >> group & 1:
            for index in range(plan.touched.starts[group], plan.touched.starts[group + 1]):
                op = plan.touched.ops[index]
                if flags[every.rows[op]] == wanted:
                    _refresh(plan, every, op, changes)


@compiled
def refresh_all(plan, every, groups):
    """Compute every duration that some groups decide, or none; ``every``: the step of all groups.

    Those of other groups are not brought up to date.
    """
    changes = Changes(groups=-1, ranks=plan.everyone, sums=True)
    for op in range(every.kind.size - 1, -1, -1):  # an issue needs the operation it launches
        kind, row, height = every.kind[op], every.rows[op], plan.places.step_rows
        if kind in (CONSTANT, FORWARD, BACKWARD):
            continue
        if every.touched_by[op] & (groups | NO_GROUP):
            plan.numbers[row] = 0.0
            plan.numbers[row + height] = 0.0
            plan.numbers[row + 2 * height] = -1.0  # whatever is exchanged is more
            _refresh(plan, every, op, changes)


@inlined
def _refresh(plan, step, op, changes):
    kind, row = step.kind[op], step.rows[op]
    if kind == EXCHANGE:
        _exchange(plan, step, op, changes)
    elif step.same[op]:
        if changes.sums or kind == ISSUE:
            seconds = _duration(plan, step, op, 0)
            if seconds != plan.numbers[row, 0]:
                put(plan, row, 0, seconds)
    else:
        everyone = changes.sums and step.whole[op] != NONE
        busy = row + plan.places.step_rows
        for index in range(plan.machine.num_ranks if everyone else changes.ranks.size):
            rank = index if everyone else changes.ranks[index]
            seconds, before = _duration(plan, step, op, rank), plan.numbers[row, rank]
            if seconds != before:
                put(plan, row, rank, seconds)
                if kind == ISSUE and (before == 0) != (seconds == 0):
                    more = 1.0 if before == 0 else -1.0
                    put(plan, busy, 0, plan.numbers[busy, 0] + more)


@inlined
def _duration(plan, step, op, rank):
    """Return the duration of an issue, or of a kernel that moves memory."""
    if step.kind[op] == ISSUE:
        launched = step.rows[step.launched[op]]
        return step.seconds[op] if plan.numbers[launched, rank] > 0 else 0.0
    amount, machine = _amount(plan, step, op, rank), plan.machine
    return machine.stream_latency + amount / machine.stream_bandwidth if amount > 0 else 0.0


@inlined
def _amount(plan, step, op, rank):
    total = step.constants[op]
    for term in range(step.terms[op], step.terms[op + 1]):
        column = step.features[term] - plan.machine.num_rank_features
        if column < 0:
            value = plan.loads.of_ranks[rank, step.features[term]]
        else:
            value = plan.numbers[plan.places.whole + column, 0]
        total += step.weights[term] * value
    return total


@inlined
def _exchange(plan, step, op, changes):
    """Recompute the bytes that some ranks exchange, and how long that takes all of them."""
    machine, numbers = plan.machine, plan.numbers
    sent = step.rows[op] + plan.places.step_rows
    known = sent + plan.places.step_rows
    joined = machine.local_ranks if step.group[op] == INTRA_NODE else machine.num_ranks
    if step.whole[op] == ONLY:
        if changes.sums:
            size = _amount(plan, step, op, 0)
            for start in range(0, machine.num_ranks, joined):
                _take(plan, step, op, start, size)
        return
    everyone = changes.sums and step.whole[op] != NONE
    count = machine.num_ranks if everyone else changes.ranks.size
    index = 0
    while index < count:  # ranks of one group after another
        rank = index if everyone else changes.ranks[index]
        start = plan.node_of[rank] * joined if step.group[op] == INTRA_NODE else 0
        largest, lost, before = 0.0, False, numbers[known, start]
        while index < count:
            rank = index if everyone else changes.ranks[index]
            if rank < start or rank >= start + joined:
                break
            size = _amount(plan, step, op, rank)
            if size != numbers[sent, rank]:
                lost |= numbers[sent, rank] >= before
                put(plan, sent, rank, size)
            largest = max(largest, size)
            index += 1
        if largest < before:
            largest = before
            if lost:
                largest = 0.0
                for member in range(start, start + joined):
                    largest = max(largest, numbers[sent, member])
        _take(plan, step, op, start, largest)


@inlined
def _take(plan, step, op, start, size):
    """Note the largest bytes of a group of ranks, and their time, where these are others now."""
    row, machine = step.rows[op], plan.machine
    known = row + 2 * plan.places.step_rows
    if size == plan.numbers[known, start]:
        return
    put(plan, known, start, size)
    seconds = _form_seconds(step, op, size)
    alike = step.same[op] or step.group[op] != INTRA_NODE
    for rank in range(start, start + 1 if alike else start + machine.local_ranks):
        put(plan, row, rank, seconds)


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
