"""Where the shards of a plan under search are: from an option and its places to ranks."""

from costmodel.execution.native import inlined
from sharders.native.tables import EVERYWHERE, FIXED, ON_RANKS


@inlined
def home(search, option, ranks, shard):
    """Return the rank of one of an option's shards."""
    spread, node_of = search.tables.spread[option], search.plan.node_of
    if spread == EVERYWHERE:
        return shard
    if spread == ON_RANKS:
        return ranks[shard]
    if spread == FIXED:
        return search.tables.at[search.tables.first[option] + shard]
    block = node_of[shard]
    return shard + (node_of[ranks[block]] - block) * search.plan.machine.local_ranks


@inlined
def num_shards(tables, option):
    """Return how many shards an option has."""
    return tables.first[option + 1] - tables.first[option]


@inlined
def copy_row(source, row, target, target_row):
    """Copy a row of one array to another of the same width."""
    for column in range(source.shape[1]):
        target[target_row, column] = source[row, column]


@inlined
def block_at(search, table, place):
    """Return the column block of a table at a place as in ``Choices``; -1: none."""
    for block in range(search.tables.blocks[search.choices.option[table]]):
        if search.choices.ranks[table, block] == place:
            return block
    return -1
