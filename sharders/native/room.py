"""Room for a move that does not fit in memory: a column block of another table makes way.

Where memory is tight, most moves find no room (at 100 tables on 8 GPUs 60 to 80%), least of all
those of large tables. With this and ``moves.KEEP_SHARE`` together, 5,000 moves a table end 0.9%
lower there (eight plans, eight seeds each); with the latter alone 0.3% (four of them).
"""

import numpy as np

from costmodel.execution.native import inlined
from sharders.native.chance import below
from sharders.native.moves import add, has
from sharders.native.places import block_at
from sharders.native.tables import ON_RANKS

TRIES = 64
"""Tables looked at for one that makes way."""
PLACES = 8
"""Ranks drawn for where it could go."""


@inlined
def fullest(search):
    """Return the rank with least HBM left, and how many bytes it lacks; none, if negative."""
    free, rank = search.plan.numbers[search.rows.free], 0
    for other in range(1, search.plan.machine.num_ranks):
        if free[other] < free[rank]:
            rank = other
    return rank, -free[rank]


@inlined
def make_way(search, aids, move, rank, lack):
    """Add to a move that a column block leaves a rank that lacks bytes; return whether one could.

    The plan is the one before the move.
    """
    tables, choices = search.tables, search.choices
    table, block, size = _smallest(search, aids, move, rank, lack)
    if table < 0 or move.length[0] == move.table.size:
        return False
    option, local = choices.option[table], search.plan.machine.local_ranks
    for number in range(PLACES):
        place, left = _place(search, aids, move.table[0], number % 2 == 0)
        if tables.one_node[option] and place // local != rank // local:
            continue
        if left >= size and block_at(search, table, place) < 0:
            move.ranks[add(search, move, table, option), block] = place
            return True
    return False


@inlined
def _smallest(search, aids, move, rank, least):
    """Return a table, which of its blocks is on a rank, and the block's bytes.

    The smallest of at least so many bytes, of some tables, but none that the move changes; -1:
    there is none.
    """
    tables, choices = search.tables, search.choices
    found, its_block, smallest, num_tables = -1, -1, 0.0, choices.option.size
    first = below(aids.state, num_tables)
    for number in range(min(TRIES, num_tables)):
        table = (first + number) % num_tables
        option = choices.option[table]
        if tables.spread[option] != ON_RANKS or has(move, table):
            continue
        block = block_at(search, table, rank)
        if block >= 0:
            size = tables.held[tables.rows[tables.first[option] + block], 0]
            if size >= least and (found < 0 or size < smallest):
                found, its_block, smallest = table, block, size
    return found, its_block, smallest


@inlined
def _place(search, aids, moved, origin):
    """Draw a rank, if ``origin`` one that a table moves from, and what may be left there, in bytes.

    What the table leaves behind is not known: enough, one hopes.
    """
    blocks = search.tables.blocks[search.choices.option[moved]]
    if origin and blocks > 0:
        return search.choices.ranks[moved, below(aids.state, blocks)], np.inf
    place = below(aids.state, search.plan.machine.num_ranks)
    return place, search.plan.numbers[search.rows.free, place]
