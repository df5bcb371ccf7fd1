"""Moves of a search: how one or a few tables could be sharded instead."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import EXCHANGE, ONLY
from costmodel.execution.native import compiled, inlined
from costmodel.execution.native_cycles import cycle_of
from costmodel.plan import ShardingType
from sharders.moves import MOST_TOGETHER
from sharders.native.chance import below, uniform
from sharders.native.places import block_at, copy_row, num_shards
from sharders.native.tables import ON_NODES

Ints = NDArray[np.int64]
CRITICAL_SHARE = 0.8
"""Share of the moves that change a table which the step waits for. This and the numbers below were
varied one by one and together, from plans that were balanced before (means of 3 to 16 runs): with
those of ``sharders.moves``, five CPU seconds end 0.5% higher at 856 tables on 64 GPUs and 0.7% at
788 on 128, two 0.1% at 400 on 16 and 0.4% at 100 on 8."""
SWAP_SHARE = 0.25
"""Shares of the moves that exchange the places of two tables' blocks,"""
OPTION_SHARE = 0.6
"""and that shard a table in another way; those left move one block."""
TOGETHER_SHARE = 0.02
"""Share of the moves that change several tables at once; fewer than in ``sharders.moves``, as here
they take some ten times as long as the others: they often change which collectives there are."""
SUITED_SHARE = 0.5
"""Share of the joins that take up to ``MOST_TOGETHER`` tables which the type suits: a type's
collectives cost more than a few tables gain by it, so that one at a time none would begin."""
MOST_COSTLIEST = 4
"""Tables that the other joins take at most."""
SUITED_OF = 8
"""Tables drawn for one that a type suits."""
KEEP_SHARE = 0.85
"""Share of the other options whose column blocks stay where they are, as far as they can."""
MANY_SHARDS = 6
"""Other options of one table that change more shards than this are tried so much less often (and
count as moves if not): they take as much longer. Three CPU seconds end 0.1% lower at 856 tables on
64 GPUs (eight runs), others as before."""
OPTION_TRIES = 3
"""Options drawn for a table, the cheapest of which it may take."""
EAGERNESS = 3
"""Power of a uniform number that says how little loaded a drawn rank is."""
SWAP_TRIES = 8
"""Tables drawn until one has a block to exchange."""
ALL_GROUPS = -1
NUM_TYPES = len(ShardingType)


class Aids(NamedTuple):
    """What moves are drawn by; out of date by some moves at most."""

    order: Ints
    """Ranks, the one that the others wait for last."""
    slowest: Ints
    """Tables that keep that rank busy; the last number counts them."""
    taken: Ints
    """Of every rank, whether the option being placed has it."""
    op_of: Ints
    """Of every row of the numbers, the operation, in the program of all groups, whose duration it
    is; -1: an issue's, or none's."""
    state: NDArray[np.uint64]
    """Of the random numbers (``chance``)."""


@compiled
def look_around(search, aids):
    """Bring the aids up to date: order the ranks by something that the step waits for."""
    order, (row, groups) = aids.order, _bottleneck(search, aids)
    for place in range(1, order.size):  # hardly anything is out of order
        rank, before = order[place], place - 1
        while before >= 0 and (
            search.plan.numbers[row, order[before]] > search.plan.numbers[row, rank]
        ):
            order[before + 1] = order[before]
            before -= 1
        order[before + 1] = rank
    slowest = aids.order[-1]
    aids.slowest[-1] = 0
    for table in range(search.choices.option.size):
        group = search.tables.group[search.choices.option[table]]
        if groups >> group & 1 and _block_on(search, table, slowest) >= 0:
            aids.slowest[aids.slowest[-1]] = table
            aids.slowest[-1] += 1


@inlined
def _bottleneck(search, aids):
    """Draw what differs between ranks on the heaviest cycle, longer ones more often.

    Return its row of the numbers (of an exchange, its bytes) and the bits of its sharding groups;
    the ranks' lookups, and all groups, where no cycle is known or none of it differs.
    """
    every, numbers = search.every, search.plan.numbers
    number, total = search.which[0], 0.0
    found, groups = search.rows.load, ALL_GROUPS
    if number >= search.cycles.span.shape[0]:
        return found, groups
    cycle = cycle_of(search.cycles, number)
    for index in range(cycle.span[0], cycle.span[1]):
        row = cycle.rows[index]
        op = aids.op_of[row] if row >= 0 else -1
        if op < 0:
            continue
        exchange = every.kind[op] == EXCHANGE
        if every.whole[op] == ONLY if exchange else every.same[op]:
            continue
        seconds = numbers[row, 0 if every.same[op] else cycle.ranks[index]]
        total += seconds
        if uniform(aids.state) * total < seconds:
            found = row + search.plan.places.step_rows if exchange else row
            groups = every.touched_by[op]
    return found, groups


@inlined
def _block_on(search, table, rank):
    """Return the column block of a table on a rank, or its node; -1: none that can be moved."""
    option, local = search.choices.option[table], search.plan.machine.local_ranks
    place = rank // local * local if search.tables.spread[option] == ON_NODES else rank
    return block_at(search, table, place)


@inlined
def draw(search, aids, move, placing):
    """Draw a move; none (``length`` 0) where what was drawn leads nowhere.

    ``placing``: only other ranks for what the present options have.
    """
    move.length[0] = 0
    block = -1
    if aids.slowest[-1] > 0 and uniform(aids.state) < CRITICAL_SHARE:
        table = aids.slowest[below(aids.state, aids.slowest[-1])]
        block = _block_on(search, table, aids.order[-1])
    else:
        table = below(aids.state, search.choices.option.size)
    blocks = search.tables.blocks[search.choices.option[table]]
    if block < 0 < blocks:
        block = below(aids.state, blocks)
    swaps, options = SWAP_SHARE, OPTION_SHARE
    if placing:
        if blocks == 0:
            return
        swaps, options = SWAP_SHARE / (1 - OPTION_SHARE), 0.0
    elif uniform(aids.state) < TOGETHER_SHARE:
        if uniform(aids.state) < 0.5:
            _leave_type(search, aids, move)
        else:
            _join_type(search, aids, move)
        return
    kind = uniform(aids.state)
    if blocks == 0 or swaps <= kind < swaps + options:
        option = _drawn_option(search, aids, table, -1, -1)
        if option >= 0 and _chance_allows(search, aids, table, option):
            _take_option(search, aids, move, table, option)
    elif kind < swaps:
        _swap(search, aids, move, (table, block))
    else:
        _other_rank(search, aids, move, (table, block))


@inlined
def add(search, move, table, option):
    """Add a table to a move, on the ranks it is on now; return its row."""
    row = move.length[0]
    move.table[row], move.option[row] = table, option
    copy_row(search.choices.ranks, table, move.ranks, row)
    move.length[0] = row + 1
    return row


@inlined
def _swap(search, aids, move, which):
    """Exchange the ranks of column blocks of two tables of one type; of all, if on one node."""
    (table, block), tables, choices = which, search.tables, search.choices
    first, here = choices.option[table], choices.ranks[table, block]
    for _ in range(SWAP_TRIES):
        other = below(aids.state, choices.option.size)
        second = choices.option[other]
        alike = tables.kind[first] == tables.kind[second] and tables.blocks[second] > 0
        if other == table or not alike:
            continue
        other_block = below(aids.state, tables.blocks[second])
        there = choices.ranks[other, other_block]
        if tables.one_node[first]:
            if tables.blocks[first] != tables.blocks[second] or here == there:
                continue
            add(search, move, table, first)
            add(search, move, other, second)
            copy_row(choices.ranks, other, move.ranks, 0)
            copy_row(choices.ranks, table, move.ranks, 1)
            return
        if block_at(search, table, there) < 0 and block_at(search, other, here) < 0:
            add(search, move, table, first)
            add(search, move, other, second)
            move.ranks[0, block], move.ranks[1, other_block] = there, here
            return


@inlined
def _other_rank(search, aids, move, which):
    """Put one column block on another rank, lightly loaded ones first.

    All of them on another node, where they must be on one.
    """
    (table, block), tables = which, search.tables
    option, rank = search.choices.option[table], _light(aids)
    local = search.plan.machine.local_ranks
    nodes = tables.spread[option] == ON_NODES
    if tables.one_node[option] and search.choices.ranks[table, block] // local != rank // local:
        _place(search, aids, option, move.ranks, add(search, move, table, option), 0)
        return
    for other in range(tables.blocks[option]):
        at = search.choices.ranks[table, other]
        if (nodes and at // local == rank // local) or at == rank:
            return
    row = add(search, move, table, option)
    move.ranks[row, block] = rank // local * local if nodes else rank


@inlined
def _other_option(search, aids, move, table, but, only):
    """Shard a table in another way, as ``_drawn_option`` has it; return whether it was."""
    option = _drawn_option(search, aids, table, but, only)
    return option >= 0 and _take_option(search, aids, move, table, option)


@inlined
def _drawn_option(search, aids, table, but, only):
    """Draw an option of a table, cheap ones sooner; -1: none was found.

    Not of the sharding type ``but``, of the type ``only``; -1: whatever the type.
    """
    tables = search.tables
    first, last = tables.options[table], tables.options[table + 1]
    chosen, wanted = -1, OPTION_TRIES
    for _ in range(8 * wanted):
        option = first + below(aids.state, last - first)
        if tables.kind[option] == but or (only >= 0 and tables.kind[option] != only):
            continue
        if chosen < 0 or tables.cost[option] < tables.cost[chosen]:
            chosen = option
        wanted -= 1
        if wanted == 0:
            break
    return chosen


@inlined
def _chance_allows(search, aids, table, option):
    """Draw whether a table is to be sharded by an option: seldom, if of many shards."""
    tables, present = search.tables, search.choices.option[table]
    shards = max(num_shards(tables, option), num_shards(tables, present))
    return uniform(aids.state) * shards <= MANY_SHARDS


@inlined
def _take_option(search, aids, move, table, chosen):
    """Shard a table by an option, on lightly loaded ranks; return whether that is another way."""
    tables = search.tables
    row = add(search, move, table, chosen)
    same = chosen == search.choices.option[table]
    kept = 0 if same or uniform(aids.state) >= KEEP_SHARE else _keepable(search, table, chosen)
    _place(search, aids, chosen, move.ranks, row, kept)
    for block in range(tables.blocks[chosen]):
        same &= move.ranks[row, block] == search.choices.ranks[table, block]
    if same:
        move.length[0] = row
    return not same


@inlined
def _keepable(search, table, option):
    """Return how many column blocks can stay where they are if the table takes an option."""
    tables, local = search.tables, search.plan.machine.local_ranks
    present, places = search.choices.option[table], search.choices.ranks[table]
    if tables.spread[present] != tables.spread[option]:
        return 0
    count = min(tables.blocks[present], tables.blocks[option])
    if tables.one_node[option]:
        for block in range(1, count):
            if places[block] // local != places[0] // local:
                return 0
    return count


@inlined
def _place(search, aids, option, ranks, row, kept):
    """Draw distinct ranks or nodes for an option's blocks, as its sharding type allows.

    ``kept``: of the first so many blocks, the places stay as they are in ``ranks``.
    """
    tables, local = search.tables, search.plan.machine.local_ranks
    blocks, num_ranks = tables.blocks[option], aids.order.size
    nodes = tables.spread[option] == ON_NODES
    node = (ranks[row, 0] if kept > 0 else _light(aids)) // local
    for block in range(kept):
        aids.taken[ranks[row, block]] = 1
    for block in range(kept, blocks):
        at = int(num_ranks * uniform(aids.state) ** EAGERNESS)
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


@inlined
def _light(aids):
    """Draw a rank, less loaded ones more often."""
    return aids.order[int(aids.order.size * uniform(aids.state) ** EAGERNESS)]


@compiled
def _leave_type(search, aids, move):
    """Shard all tables of one type, if they are few, in other ways."""
    tables, choices = search.tables, search.choices
    left = tables.kind[choices.option[below(aids.state, choices.option.size)]]
    if uniform(aids.state) < 0.7:
        left = below(aids.state, NUM_TYPES)
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
    """Shard some tables by one type: those that it suits, or the costliest of the slowest rank."""
    joined, suited = below(aids.state, NUM_TYPES), uniform(aids.state) < SUITED_SHARE
    for _ in range(1 + below(aids.state, MOST_TOGETHER if suited else MOST_COSTLIEST)):
        table = _suited(search, aids, move, joined) if suited else _costliest(search, aids, move)
        if table >= 0:
            _other_option(search, aids, move, table, -1, joined)


@inlined
def _costliest(search, aids, move):
    """Return the costliest table of the slowest rank that a move leaves as it is; -1: none."""
    costliest = -1
    for index in range(aids.slowest[-1]):
        table = aids.slowest[index]
        if has(move, table):
            continue
        if costliest < 0 or _cost(search, table) > _cost(search, costliest):
            costliest = table
    return costliest


@inlined
def _suited(search, aids, move, kind):
    """Draw a table that is not sharded by a type; one that gains by it sooner. -1: none is."""
    tables, choices = search.tables, search.choices
    found, most = -1, 0.0
    for _ in range(SUITED_OF):
        table = below(aids.state, choices.option.size)
        present = choices.option[table]
        if tables.kind[present] == kind or has(move, table):
            continue
        for option in range(tables.options[table], tables.options[table + 1]):
            gain = tables.cost[present] - tables.cost[option]
            if tables.kind[option] == kind and (found < 0 or gain > most):
                found, most = table, gain
    return found


@inlined
def has(move, table):
    """Return whether a move changes a table."""
    for row in range(move.length[0]):
        if move.table[row] == table:
            return True
    return False


@inlined
def _cost(search, table):
    return search.tables.shard_cost[search.choices.option[table]]
