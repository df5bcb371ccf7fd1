"""A plan under search: try a move, time the plan it makes, and keep or undo it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import LoweredStep, Programs
from costmodel.execution.native import (
    Changes,
    Plan,
    compiled,
    forget,
    inlined,
    program,
    refresh,
    take_back,
)
from costmodel.execution.native_cycles import Cycle, bound, cycle_of, trace
from costmodel.execution.native_step import Scratch, step_time
from sharders.guide import BALANCE_ROOTS, BALANCE_WEIGHT
from sharders.native.loads import (
    bits_of,
    count,
    fits,
    forget_changes,
    has_room,
    hold,
    load,
    lookups,
    rebuild,
)
from sharders.native.tables import Shorts, Tables

Ints = NDArray[np.int64]
FITS, SLOW, FULL, UNKNOWN = range(4)
"""How a move went: it was timed; a bound says that it takes too long; there is no room; the program
of its groups is missing."""


MARGIN = 1e-9
"""Share of the guide: sums along a cycle and along steps are rounded differently."""


class Rows(NamedTuple):
    """Rows of the numbers besides those of ``costmodel.execution.native.Places``."""

    load: int
    """Seconds of lookups, forward and backward, in all."""
    power: int
    """Sum over ranks of these to the ``BALANCE_POWER``, in the first column."""
    exchanged: int
    """The same of what each rank needs to exchange its own of every rank feature."""
    free: int
    """Bytes of HBM left."""
    host_free: int
    """Bytes of host memory left, by node."""
    counts: int
    """Tables of every sharding group, in the first column."""


class Choices(NamedTuple):
    """How every table is sharded."""

    option: Ints
    ranks: Shorts
    """(tables, most blocks)."""


class Move(NamedTuple):
    """New choices of some tables, the first ``length[0]``."""

    length: Ints
    table: Ints
    option: Ints
    ranks: Shorts


class Search(NamedTuple):
    """Everything a search changes or reads."""

    plan: Plan
    rows: Rows
    tables: Tables
    exchange_rates: NDArray[np.float64]
    """Seconds for a unit of every rank feature of every group (``guide.exchange_rates``)."""
    choices: Choices
    every: LoweredStep
    """The program of all groups."""
    programs: Programs
    program_of: Ints
    """By the bits of the groups a plan has; -1: not made yet."""
    which: Ints
    """(1,): the present plan's program."""
    wanted: Ints
    """(1,): bits of the groups whose program was missing."""
    scratch: Scratch
    cycles: Cycle
    """Of every program, the first ones of them."""
    margin: float
    """Share of a guide that a bound is trusted to; 1: not at all."""
    changed: Ints
    """Ranks whose loads a move has changed; the last number counts them."""
    is_changed: Ints


class Timed(NamedTuple):
    """What a move leads to."""

    outcome: int
    step_time: float
    guide: float
    program: int
    """Of the groups the plan then has."""


@compiled
def time_of(search):
    """Return the step time of the present plan."""
    step = program(search.programs, search.which[0])
    return step_time(search.plan, step, search.scratch)


@compiled
def times_of(search, options, ranks, room, times, first):
    """Time plans given as choices, from one on; return how many were done before a program missed.

    ``options``: (plans, tables); ``ranks``: (plans, tables, most blocks); ``room``: bytes that are
    for shards on a rank, and on a node's host; ``times``: seconds, infinite where memory is short.
    """
    for plan in range(first, times.size):
        for table in range(options.shape[1]):
            search.choices.option[table] = options[plan, table]
            for block in range(ranks.shape[2]):
                search.choices.ranks[table, block] = ranks[plan, table, block]
        if rebuild(search, room, 0):
            return plan
        times[plan] = time_of(search) if fits(search) else np.inf
    return times.size


@compiled
def guide_of(search, seconds):
    """Return what the search minimises, for a step time of the present plan."""
    return _guide(search, seconds)


@inlined
def _guide(search, seconds):
    spread = _power_mean(search, search.rows.power)
    for feature in range(search.exchange_rates.size):
        if search.exchange_rates[feature] > 0:
            spread += _power_mean(search, search.rows.exchanged + feature)
    return seconds + BALANCE_WEIGHT * spread


@inlined
def _power_mean(search, row):
    total = search.plan.numbers[row, 0]
    if total <= 0:
        return 0.0  # a group that the plan lacks, or rounding
    mean = total / search.plan.machine.num_ranks
    for _ in range(BALANCE_ROOTS):
        mean = np.sqrt(mean)
    return mean


@inlined
def swap(search, move):
    """Exchange the present choices of a move's tables with those in the move."""
    choices = search.choices
    for index in range(move.length[0]):
        table = move.table[index]
        option = choices.option[table]
        choices.option[table] = move.option[index]
        move.option[index] = option
        for block in range(choices.ranks.shape[1]):
            rank = choices.ranks[table, block]
            choices.ranks[table, block] = move.ranks[index, block]
            move.ranks[index, block] = rank


@compiled
def find_cycle(search):
    """Find a heaviest cycle of the present plan."""
    number = search.which[0]
    if number < search.cycles.span.shape[0]:
        step = program(search.programs, number)
        step_time(search.plan, step, search.scratch)
        trace(search.plan, step, search.scratch, cycle_of(search.cycles, number))


@inlined
def try_move(search, move, limit):
    """Make a move and time the plan; ``undo`` or ``keep`` it, whatever the outcome.

    Afterwards the move holds the choices from before. Where the guide is certain to exceed the
    limit, the plan is not timed.
    """
    plan, choices = search.plan, search.choices
    swap(search, move)
    for index in range(move.length[0]):
        table = move.table[index]
        hold(search, move.option[index], move.ranks[index], -1.0)
        hold(search, choices.option[table], choices.ranks[table], 1.0)
    for index in range(move.length[0]):
        table = move.table[index]
        if not has_room(search, choices.option[table], choices.ranks[table]):
            return Timed(FULL, np.inf, np.inf, -1)
    groups, sums = _change(search, move)
    bits = bits_of(search)
    number = search.program_of[bits]
    if number < 0:
        search.wanted[0] = bits
        return Timed(UNKNOWN, np.inf, np.inf, -1)
    changes = Changes(groups, search.changed[: search.changed[-1]], sums)
    slot = min(number, search.cycles.span.shape[0] - 1)
    cycle = cycle_of(search.cycles, slot)
    refresh(plan, search.every, changes, (cycle.is_on, True))
    if slot == number and cycle.span[1] > 0:
        least = bound(plan, cycle, changes.ranks)
        if _guide(search, least) * (1 - search.margin) > limit:
            return Timed(SLOW, np.inf, np.inf, -1)
    refresh(plan, search.every, changes, (cycle.is_on, False))
    step = program(search.programs, number)
    seconds = step_time(plan, step, search.scratch)
    guide = _guide(search, seconds)
    if guide > limit and slot == number != search.which[0]:
        trace(plan, step, search.scratch, cycle)
    return Timed(FITS, seconds, guide, number)


@inlined
def _change(search, move):
    """Change the loads as a move says; return bits of its groups, and whether sums changed."""
    tables, choices = search.tables, search.choices
    groups = kernels = 0
    sums = False
    for index in range(move.length[0]):
        table = move.table[index]
        before, after = move.option[index], choices.option[table]
        here, there = move.ranks[index], choices.ranks[table]
        load(search, before, (here, there, before == after), -1.0)
        if before != after:
            count(search, table, before, -1.0)
            count(search, table, after, 1.0)
            sums = True
        load(search, after, (there, here, before == after), 1.0)
        groups |= 1 << tables.group[before] | 1 << tables.group[after]
        kernels |= 1 << tables.kernel[before] | 1 << tables.kernel[after]
    lookups(search, kernels)
    return groups, sums


@inlined
def undo(search, move):
    """Take back the move that was tried last."""
    take_back(search.plan)
    swap(search, move)
    forget_changes(search)


@inlined
def keep(search, timed):
    """Stay with the move that was tried last."""
    forget(search.plan)
    search.which[0] = timed.program
    forget_changes(search)
