"""A plan under search: try a move, time the plan it makes, and keep or undo it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import Programs
from costmodel.execution.native import (
    Changes,
    Plan,
    Scratch,
    backward_seconds,
    compiled,
    forget,
    forward_seconds,
    inlined,
    program,
    refresh,
    refresh_all,
    save,
    step_time,
    take_back,
)
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES
from costmodel.kernels.embedding import NUM_TRAFFIC, Traffic
from sharders.native.tables import EVERYWHERE, FIXED, ON_RANKS, Tables
from sharders.search_state import BALANCE_POWER, BALANCE_WEIGHT, EMPTY

Ints = NDArray[np.int64]
NUM_FEATURES = len(RANK_FEATURES)
FEATURES, IDS = RANK_FEATURES.index("features"), RANK_FEATURES.index("ids")
TABLE_COLUMNS, SENT_IDS, SENT_FEATURES, PARAMETERS, PRESENT = (
    PLAN_FEATURES.index(name)
    for name in ("table_columns", "sent_ids", "sent_features", "parameter_bytes", "present")
)
NUM_SUMS = len(PLAN_FEATURES)
CHAIN, LOOKUPS = int(Traffic.CHAIN), int(Traffic.LOOKUPS)
TO_FIND = -1.0
"""Stands for a longest bag that left with its table."""
FITS, FULL, UNKNOWN = range(3)
"""How a move went: it was timed; there is no room; the program of its groups is missing."""


class Rows(NamedTuple):
    """Rows of the numbers besides those of ``costmodel.execution.native.Places``."""

    traffic: int
    """Of every kernel, ``NUM_TRAFFIC`` rows."""
    load: int
    """Seconds of lookups, forward and backward, in all."""
    free: int
    """Bytes of HBM left."""
    host_free: int
    """Bytes of host memory left, by node."""
    counts: int
    """Tables of every sharding group, in the first column."""


class Choices(NamedTuple):
    """How every table is sharded."""

    option: Ints
    ranks: Ints
    """(tables, most blocks)."""


class Move(NamedTuple):
    """New choices of some tables, the first ``length[0]``."""

    length: Ints
    table: Ints
    option: Ints
    ranks: Ints


class Search(NamedTuple):
    """Everything a search changes or reads."""

    plan: Plan
    rows: Rows
    tables: Tables
    choices: Choices
    programs: Programs
    program_of: Ints
    """By the bits of the groups a plan has; -1: not made yet."""
    which: Ints
    """(2,): which of the two steps is the present plan's, and its program."""
    wanted: Ints
    """(1,): bits of the groups whose program was missing."""
    scratch: Scratch
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


@inlined
def home(search, option, ranks, shard):
    """Return the rank of one of an option's shards."""
    spread, local = search.tables.spread[option], search.plan.machine.local_ranks
    if spread == EVERYWHERE:
        return shard
    if spread == ON_RANKS:
        return ranks[shard]
    if spread == FIXED:
        return search.tables.at[search.tables.first[option] + shard]
    return ranks[shard // local] // local * local + shard % local


@inlined
def copy_row(source, row, target, target_row):
    """Copy a row of one array to another of the same width."""
    for column in range(source.shape[1]):
        target[target_row, column] = source[row, column]


@inlined
def hold(search, option, ranks, sign):
    """Take memory for an option's shards, or give it back."""
    tables, local, numbers = search.tables, search.plan.machine.local_ranks, search.plan.numbers
    free, host_free = search.rows.free, search.rows.host_free
    save(search.plan, free)
    save(search.plan, host_free)
    for shard in range(tables.first[option + 1] - tables.first[option]):
        rank = home(search, option, ranks, shard)
        size = tables.rows[tables.first[option] + shard]
        numbers[free, rank] -= sign * tables.held[size, 0]
        numbers[host_free, rank // local] -= sign * tables.held[size, 1]


@inlined
def has_room(search, option, ranks):
    """Return whether no rank or node of an option's shards holds more than it can."""
    tables, local = search.tables, search.plan.machine.local_ranks
    for shard in range(tables.first[option + 1] - tables.first[option]):
        rank = home(search, option, ranks, shard)
        if search.plan.numbers[search.rows.free, rank] < 0:
            return False
        if search.plan.numbers[search.rows.host_free, rank // local] < 0:
            return False
    return True


@inlined
def _load(search, option, ranks, sign):
    """Add an option's loads, or take them away; but for the longest bag, which does not add up."""
    tables, numbers = search.tables, search.plan.numbers
    traffic = search.rows.traffic + tables.kernel[option] * NUM_TRAFFIC
    features = search.plan.places.ranks + tables.group[option] * NUM_FEATURES
    for row in range(traffic, traffic + NUM_TRAFFIC):
        save(search.plan, row)
    for row in range(features, features + NUM_FEATURES):
        save(search.plan, row)
    for shard in range(tables.first[option + 1] - tables.first[option]):
        rank = home(search, option, ranks, shard)
        row = tables.rows[tables.first[option] + shard]
        if not search.is_changed[rank]:
            search.is_changed[rank] = 1
            search.changed[search.changed[-1]] = rank
            search.changed[-1] += 1
        longest, chain = numbers[traffic + CHAIN, rank], tables.traffic[row, CHAIN]
        for column in range(NUM_TRAFFIC):
            numbers[traffic + column, rank] += sign * tables.traffic[row, column]
        for column in range(NUM_FEATURES):
            numbers[features + column, rank] += sign * tables.features[row, column]
        if sign > 0:
            numbers[traffic + CHAIN, rank] = max(longest, chain) if longest >= 0 else longest
        else:
            numbers[traffic + CHAIN, rank] = longest if chain < longest else TO_FIND
            _clear_rounding(search, traffic, features, rank)


@inlined
def _clear_rounding(search, traffic, features, rank):
    """Where the last table has left, leave nothing."""
    numbers = search.plan.numbers
    if numbers[traffic + LOOKUPS, rank] < EMPTY:
        for column in range(NUM_TRAFFIC):
            numbers[traffic + column, rank] = 0.0
    if numbers[features + FEATURES, rank] < 0.5:  # counted exactly
        for column in range(NUM_FEATURES):
            numbers[features + column, rank] = 0.0


@inlined
def _longest_bag(search, kernel, rank):
    """Return the longest bag of the tables that one kernel serves on a rank."""
    tables, choices, longest = search.tables, search.choices, 0.0
    local = search.plan.machine.local_ranks
    for table in range(choices.option.size):
        option = choices.option[table]
        first, spread = tables.first[option], tables.spread[option]
        if tables.kernel[option] != kernel or tables.longest_bag[option] <= longest:
            continue
        if spread == EVERYWHERE:
            longest = max(longest, tables.traffic[tables.rows[first + rank], CHAIN])
            continue
        if spread == FIXED:
            for shard in range(first, tables.first[option + 1]):
                if tables.at[shard] == rank:
                    longest = max(longest, tables.traffic[tables.rows[shard], CHAIN])
            continue
        width = 1 if spread == ON_RANKS else local
        for block in range(tables.blocks[option]):
            if choices.ranks[table, block] // width == rank // width:
                shard = first + block * width + rank % width
                longest = max(longest, tables.traffic[tables.rows[shard], CHAIN])
    return longest


@inlined
def _sum_up(search, group):
    """Recompute the plan features of one group."""
    plan, numbers, ranks = search.plan, search.plan.numbers, search.plan.machine.num_ranks
    features = plan.places.ranks + group * NUM_FEATURES
    whole = plan.places.whole + group * NUM_SUMS
    ids = sent = 0.0
    for rank in range(ranks):
        ids += numbers[features + IDS, rank]
        sent += numbers[features + FEATURES, rank]
    for row in range(whole, whole + NUM_SUMS):
        save(plan, row)
    numbers[whole + SENT_IDS, 0] = ids / ranks
    numbers[whole + SENT_FEATURES, 0] = sent
    present = numbers[search.rows.counts + group, 0] > 0.5
    numbers[whole + PRESENT, 0] = 1.0 if present else 0.0


@inlined
def _count(search, table, option, sign):
    """Count a table in its group, or no longer."""
    tables, plan = search.tables, search.plan
    whole = plan.places.whole + tables.group[option] * NUM_SUMS
    counts = search.rows.counts + tables.group[option]
    for row in (whole + TABLE_COLUMNS, whole + PARAMETERS, counts):
        save(plan, row)
    plan.numbers[whole + TABLE_COLUMNS, 0] += sign * tables.table_columns[table]
    plan.numbers[whole + PARAMETERS, 0] += sign * tables.replicated[option]
    plan.numbers[counts, 0] += sign


@inlined
def _lookups(search, kernels):
    """Recompute the lookup times of the changed ranks, of the kernels with these bits."""
    plan, numbers, places = search.plan, search.plan.numbers, search.plan.places
    num_kernels = places.backward - places.forward
    save(plan, search.rows.load)
    for index in range(search.changed[-1]):
        numbers[search.rows.load, search.changed[index]] = 0.0
    for kernel in range(num_kernels):
        forward, backward = places.forward + kernel, places.backward + kernel
        if kernels >> kernel & 1:
            save(plan, forward)
            save(plan, backward)
            _look_up(search, kernel)
        for index in range(search.changed[-1]):
            rank = search.changed[index]
            numbers[search.rows.load, rank] += numbers[forward, rank] + numbers[backward, rank]


@inlined
def _look_up(search, kernel):
    """Recompute one kernel's times; and its longest bags, where they must be found."""
    plan, numbers = search.plan, search.plan.numbers
    first = search.rows.traffic + kernel * NUM_TRAFFIC
    for index in range(search.changed[-1]):
        rank = search.changed[index]
        if numbers[first + CHAIN, rank] < 0:
            numbers[first + CHAIN, rank] = _longest_bag(search, kernel, rank)
        traffic = numbers[first : first + NUM_TRAFFIC, rank]
        numbers[plan.places.forward + kernel, rank] = forward_seconds(traffic, plan.machine.rates)
        numbers[plan.places.backward + kernel, rank] = backward_seconds(traffic, plan.machine.rates)


@inlined
def _bits(search):
    """Return the bits of the groups that have tables."""
    bits, groups = 0, search.plan.machine.num_rank_features // NUM_FEATURES
    for group in range(groups):
        if search.plan.numbers[search.rows.counts + group, 0] > 0.5:
            bits |= 1 << group
    return bits


@compiled
def time_of(search):
    """Return the step time of the present plan."""
    step = program(search.programs, search.which[1])
    return step_time(search.plan, step, search.which[0], search.scratch)


@compiled
def guide_of(search, seconds):
    """Return what the search minimises."""
    total, ranks = 0.0, search.plan.machine.num_ranks
    for rank in range(ranks):
        total += search.plan.numbers[search.rows.load, rank] ** BALANCE_POWER
    return seconds + BALANCE_WEIGHT * (total / ranks) ** (1 / BALANCE_POWER)


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
def try_move(search, step, move):
    """Make a move and time the plan; ``undo`` or ``keep`` it, whatever the outcome.

    Afterwards the move holds the choices from before. ``step`` is the present plan's program.
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
    groups = _change(search, move)
    bits = _bits(search)
    number = search.program_of[bits]
    if number < 0:
        search.wanted[0] = bits
        return Timed(UNKNOWN, np.inf, np.inf, -1)
    which = search.which[0]
    if number == search.which[1]:
        changes = Changes(groups[0], search.changed[: search.changed[-1]], groups[1] > 0)
        refresh(plan, step, which, changes)
        seconds = step_time(plan, step, which, search.scratch)
    else:
        other = program(search.programs, number)
        refresh_all(plan, other, 1 - which)
        seconds = step_time(plan, other, 1 - which, search.scratch)
    return Timed(FITS, seconds, guide_of(search, seconds), number)


@inlined
def _change(search, move):
    """Change the loads as a move says; return bits of its groups, and whether sums changed."""
    tables, choices = search.tables, search.choices
    groups = kernels = 0
    sums = False
    for index in range(move.length[0]):
        table = move.table[index]
        before, after = move.option[index], choices.option[table]
        _load(search, before, move.ranks[index], -1.0)
        _load(search, after, choices.ranks[table], 1.0)
        groups |= 1 << tables.group[before] | 1 << tables.group[after]
        kernels |= 1 << tables.kernel[before] | 1 << tables.kernel[after]
        if before != after:
            _count(search, table, before, -1.0)
            _count(search, table, after, 1.0)
            sums = True
    if sums:
        for group in range(64):
            if groups >> group & 1:
                _sum_up(search, group)
    _lookups(search, kernels)
    return groups, 1 if sums else 0


@compiled
def undo(search, move):
    """Take back the move that was tried last."""
    take_back(search.plan)
    swap(search, move)
    _forget_changes(search)


@compiled
def keep(search, timed):
    """Stay with the move that was tried last."""
    forget(search.plan)
    if timed.program != search.which[1]:
        search.which[0] = 1 - search.which[0]
        search.which[1] = timed.program
    _forget_changes(search)


@inlined
def _forget_changes(search):
    for index in range(search.changed[-1]):
        search.is_changed[search.changed[index]] = 0
    search.changed[-1] = 0


@compiled
def rebuild(search, capacity, host_capacity):
    """Compute all loads from the choices, free of rounding; return whether a program is missing."""
    plan, choices = search.plan, search.choices
    plan.numbers[: plan.places.steps] = 0.0
    plan.numbers[search.rows.traffic :] = 0.0
    plan.numbers[search.rows.free] = capacity
    plan.numbers[search.rows.host_free] = host_capacity
    for table in range(choices.option.size):
        option = choices.option[table]
        hold(search, option, choices.ranks[table], 1.0)
        _load(search, option, choices.ranks[table], 1.0)
        _count(search, table, option, 1.0)
    for group in range(plan.machine.num_rank_features // NUM_FEATURES):
        _sum_up(search, group)
    _lookups(search, -1)
    bits = _bits(search)
    _forget_changes(search)
    search.which[1] = search.program_of[bits]
    if search.which[1] < 0:
        search.wanted[0] = bits
    else:
        refresh_all(plan, program(search.programs, search.which[1]), search.which[0])
    forget(plan)
    return search.which[1] < 0
