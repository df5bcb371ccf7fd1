"""Moves of a search: how one or a few tables could be sharded instead."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.native import compiled
from costmodel.plan import ShardingType
from sharders.moves import CRITICAL_SHARE, MOST_TOGETHER, OPTION_SHARE, SWAP_SHARE
from sharders.native.loads import copy_row
from sharders.native.tables import ON_NODES

Ints = NDArray[np.int64]
TOGETHER_SHARE = 0.02
"""Share of the moves that change several tables at once; fewer than in ``sharders.moves``, as here
they take some ten times as long as the others: they often change which collectives there are."""
NUM_TYPES = len(ShardingType)


class Aids(NamedTuple):
    """What moves are drawn by; out of date by some moves at most."""

    order: Ints
    """Ranks, least loaded first."""
    slowest: Ints
    """Tables on the rank with the longest lookups; the last number counts them."""
    taken: Ints
    """Of every rank, whether the option being placed has it."""


@compiled
def look_around(search, aids):
    """Bring the aids up to date."""
    order, load = aids.order, search.rows.load
    for place in range(1, order.size):  # hardly anything is out of order
        rank, before = order[place], place - 1
        while before >= 0 and (
            search.plan.numbers[load, order[before]] > search.plan.numbers[load, rank]
        ):
            order[before + 1] = order[before]
            before -= 1
        order[before + 1] = rank
    slowest = aids.order[-1]
    aids.slowest[-1] = 0
    for table in range(search.choices.option.size):
        if _is_on(search, table, slowest):
            aids.slowest[aids.slowest[-1]] = table
            aids.slowest[-1] += 1


@compiled
def _is_on(search, table, rank):
    """Return whether a table has a block on a rank, and could have it elsewhere."""
    option = search.choices.option[table]
    for block in range(search.tables.blocks[option]):
        if search.choices.ranks[table, block] == rank:
            return True
    return False


@compiled
def draw(search, aids, move):
    """Draw a move; none (``length`` 0) where what was drawn leads nowhere."""
    move.length[0] = 0
    if aids.slowest[-1] > 0 and np.random.random() < CRITICAL_SHARE:
        table = aids.slowest[np.random.randint(aids.slowest[-1])]
    else:
        table = np.random.randint(search.choices.option.size)
    if np.random.random() < TOGETHER_SHARE:
        if np.random.random() < 0.5:
            _leave_type(search, aids, move)
        else:
            _join_type(search, aids, move)
        return
    kind = np.random.random()
    if kind < SWAP_SHARE:
        _swap_ranks(search, move, table)
    elif (
        kind < SWAP_SHARE + OPTION_SHARE or search.tables.blocks[search.choices.option[table]] == 0
    ):
        _other_option(search, aids, move, table, -1, -1)
    else:
        _other_rank(search, aids, move, table)


@compiled
def _add(search, move, table, option):
    """Add a table to a move, on the ranks it is on now; return its row."""
    row = move.length[0]
    move.table[row], move.option[row] = table, option
    copy_row(search.choices.ranks, table, move.ranks, row)
    move.length[0] = row + 1
    return row


@compiled
def _swap_ranks(search, move, table):
    """Exchange the ranks of two tables of one type with equally many."""
    tables, choices = search.tables, search.choices
    other = np.random.randint(choices.option.size)
    first, second = choices.option[table], choices.option[other]
    blocks = tables.blocks[first]
    alike = tables.kind[first] == tables.kind[second] and blocks == tables.blocks[second]
    if table == other or not alike:
        return
    moved = False
    for block in range(blocks):
        moved |= choices.ranks[table, block] != choices.ranks[other, block]
    if moved:
        here, there = _add(search, move, table, first), _add(search, move, other, second)
        copy_row(choices.ranks, other, move.ranks, here)
        copy_row(choices.ranks, table, move.ranks, there)


@compiled
def _other_rank(search, aids, move, table):
    """Put one column block on another rank, lightly loaded ones first."""
    tables, option = search.tables, search.choices.option[table]
    local = search.plan.machine.local_ranks
    block, rank = np.random.randint(tables.blocks[option]), _light(aids)
    nodes = tables.spread[option] == ON_NODES
    for other in range(tables.blocks[option]):
        at = search.choices.ranks[table, other]
        if (nodes and at // local == rank // local) or at == rank:
            return
        if tables.one_node[option] and other != block and at // local != rank // local:
            return
    row = _add(search, move, table, option)
    move.ranks[row, block] = rank // local * local if nodes else rank


@compiled
def _other_option(search, aids, move, table, but, only):
    """Shard a table in another way, on lightly loaded ranks; return whether there was one.

    Not of the sharding type ``but``, of the type ``only``; -1: whatever the type.
    """
    tables = search.tables
    first, last = tables.options[table], tables.options[table + 1]
    chosen, wanted = -1, 1 if np.random.random() < 0.3 else 3
    for _ in range(8 * wanted):
        option = np.random.randint(first, last)
        if tables.kind[option] == but or (only >= 0 and tables.kind[option] != only):
            continue
        if chosen < 0 or tables.cost[option] < tables.cost[chosen]:
            chosen = option
        wanted -= 1
        if wanted == 0:
            break
    if chosen < 0:
        return False
    row = _add(search, move, table, chosen)
    _place(search, aids, chosen, move.ranks, row)
    same = chosen == search.choices.option[table]
    for block in range(tables.blocks[chosen]):
        same &= move.ranks[row, block] == search.choices.ranks[table, block]
    if same:
        move.length[0] = row
    return not same


@compiled
def _place(search, aids, option, ranks, row):
    """Draw distinct ranks or nodes for an option's blocks, as its sharding type allows."""
    tables, local = search.tables, search.plan.machine.local_ranks
    blocks, num_ranks = tables.blocks[option], aids.order.size
    nodes = tables.spread[option] == ON_NODES
    node = _light(aids) // local
    for block in range(blocks):
        at = int(num_ranks * np.random.random() ** 2)
        for step in range(num_ranks):  # at most once around
            rank = aids.order[(at + step) % num_ranks]
            place = rank // local * local if nodes else rank
            if tables.one_node[option] and rank // local != node:
                continue
            if not aids.taken[place]:
                break
        aids.taken[place] = 1
        ranks[row, block] = place
    for block in range(blocks):
        aids.taken[ranks[row, block]] = 0


@compiled
def _light(aids):
    """Draw a rank, less loaded ones more often."""
    return aids.order[int(aids.order.size * np.random.random() ** 2)]


@compiled
def _leave_type(search, aids, move):
    """Shard all tables of one type, if they are few, in other ways."""
    tables, choices = search.tables, search.choices
    left = tables.kind[choices.option[np.random.randint(choices.option.size)]]
    if np.random.random() < 0.7:
        left = np.random.randint(NUM_TYPES)
    count = 0
    for table in range(choices.option.size):
        count += tables.kind[choices.option[table]] == left
    if count > MOST_TOGETHER:
        return
    for table in range(choices.option.size):
        if tables.kind[choices.option[table]] != left:
            continue
        if not _other_option(search, aids, move, table, left, -1):
            move.length[0] = 0
            return


@compiled
def _join_type(search, aids, move):
    """Shard some of the costliest tables of the slowest rank by one type."""
    joined, count = np.random.randint(NUM_TYPES), np.random.randint(1, 5)
    for _ in range(count):
        costliest = -1
        for index in range(aids.slowest[-1]):
            table = aids.slowest[index]
            if _has(move, table):
                continue
            if costliest < 0 or _cost(search, table) > _cost(search, costliest):
                costliest = table
        if costliest >= 0:
            _other_option(search, aids, move, costliest, -1, joined)


@compiled
def _has(move, table):
    for row in range(move.length[0]):
        if move.table[row] == table:
            return True
    return False


@compiled
def _cost(search, table):
    return search.tables.shard_cost[search.choices.option[table]]
