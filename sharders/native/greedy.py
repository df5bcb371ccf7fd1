"""Whole plans by a rule, in compiled code: ``cost_greedy``'s greedy, a millisecond a plan."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.native import compiled, forget
from costmodel.plan import ShardingType
from sharders.native.loads import has_room, hold
from sharders.native.places import home, num_shards
from sharders.native.tables import ON_NODES, Tables

NUM_TYPES = len(ShardingType)
DATA_PARALLEL = list(ShardingType).index(ShardingType.DATA_PARALLEL)
TABLE_WISE = list(ShardingType).index(ShardingType.TABLE_WISE)
REPLICATED, WHOLE, SMALL, LARGE, LAST = range(5)
"""Ranks of a table's options in the eyes of a rule; ``cost_greedy`` says why."""


class Rule(NamedTuple):
    """Which tables a plan splits and which it replicates, and how options compare."""

    split_above: float
    replicate_below: float
    memory: float
    """Load that a shard counts for besides its own, if it takes all memory of a rank; in balanced
    loads."""
    weights: NDArray[np.float64]
    """Of the sharding types: their costs are multiplied by them."""


class Desk(NamedTuple):
    """Where plans are made; nothing in it outlives a call."""

    load: NDArray[np.float64]
    """Of every rank."""
    order: NDArray[np.int64]
    """Tables."""
    key: NDArray[np.float64]
    """What tables are ordered by, largest first."""
    refused: NDArray[np.int64]
    """Of every option, whether there is no room for it."""
    taken: NDArray[np.int64]
    """Of every rank, whether the option being placed has it."""


def desk(tables: Tables, num_ranks: int) -> Desk:
    """Return a desk for a problem."""
    count = len(tables.table_columns)
    return Desk(
        load=np.zeros(num_ranks),
        order=np.zeros(count, dtype=np.int64),
        key=np.zeros(count),
        refused=np.zeros(len(tables.kind), dtype=np.int64),
        taken=np.zeros(num_ranks, dtype=np.int64),
    )


def rule_of(parameters: Mapping[str, float], balanced_load: float, capacity: float) -> Rule:
    """Return the rule of some parameters (``tuned_greedy.RANGES``)."""
    return Rule(
        split_above=parameters["split_above"],
        replicate_below=parameters["replicate_below"],
        memory=parameters["memory"] * balanced_load / capacity,
        weights=np.exp([parameters[f"weight {kind.value}"] for kind in ShardingType]),
    )


@compiled
def fill(search, desk, rule, room):
    """Make the rule's plan the present choices; return whether all tables have found room.

    ``room``: bytes that are for shards on a rank, and on a node's host. Tables are placed by load,
    and once more by size if that finds no room. Loads are not brought up to date (``rebuild``).
    """
    tables, ranks = search.tables, desk.load.size
    balanced = 0.0
    for table in range(desk.order.size):
        balanced += _total(tables, rule, _whole(tables, rule, table)) / ranks
    for by_size in range(2):
        for table in range(desk.order.size):
            option = _next(tables, desk, rule, table, balanced)
            size = _bytes(tables, option) * num_shards(tables, option)
            desk.key[table] = size if by_size else _load(tables, rule, option)
            desk.order[table] = table
        _sort(desk.order, desk.key)
        if _place_all(search, desk, rule, balanced, room):
            return True
    return False


@compiled
def _place_all(search, desk, rule, balanced, room):
    tables = search.tables
    search.plan.numbers[search.rows.free] = room[0]
    search.plan.numbers[search.rows.host_free] = room[1]
    desk.load[:] = 0.0
    for index in range(desk.order.size):
        table = desk.order[index]
        first, last = tables.options[table], tables.options[table + 1]
        placed = False
        while not placed:
            option = _next(tables, desk, rule, table, balanced)
            if option < 0:
                break
            placed = _put(search, desk, table, option, _load(tables, rule, option))
            forget(search.plan)
            desk.refused[option] = not placed
        desk.refused[first:last] = 0
        if not placed:
            return False
    return True


@compiled
def _total(tables, rule, option):
    """Return the weighted cost of an option over all its shards."""
    shards = num_shards(tables, option)
    extra = rule.memory * _bytes(tables, option) * shards
    return rule.weights[tables.kind[option]] * tables.cost[option] + extra


@compiled
def _load(tables, rule, option):
    """Return the weighted cost of an option's largest shard."""
    extra = rule.memory * _bytes(tables, option)
    return rule.weights[tables.kind[option]] * tables.shard_cost[option] + extra


@compiled
def _bytes(tables, option):
    """Return the bytes of an option's first shard; none is larger."""
    return tables.held[tables.rows[tables.first[option]], 0]


@compiled
def _whole(tables, rule, table):
    """Return the table's cheapest option on one rank; where none is allowed, of all."""
    best = -1
    for option in range(tables.options[table], tables.options[table + 1]):
        better = best < 0 or _total(tables, rule, option) < _total(tables, rule, best)
        whole, known = tables.kind[option] == TABLE_WISE, best >= 0
        known &= tables.kind[best] == TABLE_WISE
        if (whole and not known) or (whole == known and better):
            best = option
    return best


@compiled
def _next(tables, desk, rule, table, balanced):
    """Return the option that a rule likes best, of those not refused; -1: none is left."""
    first, last = tables.options[table], tables.options[table + 1]
    whole, limit = _whole(tables, rule, table), rule.split_above * balanced
    replica, some_small = -1, False
    for option in range(first, last):
        if tables.kind[option] != DATA_PARALLEL:
            some_small |= _load(tables, rule, option) <= limit
        elif replica < 0 or _total(tables, rule, option) < _total(tables, rule, replica):
            replica = option
    share = rule.replicate_below * _total(tables, rule, whole) / desk.load.size
    cheap = replica >= 0 and _load(tables, rule, replica) <= share
    best, best_place, best_key = -1, LAST + 1, np.inf
    for option in range(first, last):
        if desk.refused[option]:
            continue
        key, load = _total(tables, rule, option), _load(tables, rule, option)
        if tables.kind[option] == DATA_PARALLEL:
            place = REPLICATED if cheap else LAST
        elif cheap or load <= limit:
            place = WHOLE if option == whole else SMALL
        else:
            place, key = LARGE, load if some_small else key
        if place < best_place or (place == best_place and key < best_key):
            best, best_place, best_key = option, place, key
    return best


@compiled
def _put(search, desk, table, option, load):
    """Place an option where the load is least; return whether there is room."""
    tables, choices = search.tables, search.choices
    ranks = choices.ranks[table]
    if tables.blocks[option] > 0 and not _find(search, desk, option, ranks):
        return False
    hold(search, option, ranks, 1.0)
    if not has_room(search, option, ranks):
        hold(search, option, ranks, -1.0)
        return False
    choices.option[table] = option
    for shard in range(num_shards(tables, option)):
        desk.load[home(search, option, ranks, shard)] += load
    return True


@compiled
def _find(search, desk, option, ranks):
    """Find distinct ranks or nodes with room, least loaded first; return whether there are."""
    tables, local = search.tables, search.plan.machine.local_ranks
    nodes, blocks = tables.spread[option] == ON_NODES, tables.blocks[option]
    node = _mates(search, desk, option) if tables.one_node[option] else -1
    found, size = 0, _bytes(tables, option)
    while found < blocks:
        best, least = -1, np.inf
        for rank in range(0, desk.load.size, local if nodes else 1):
            if desk.taken[rank] or (tables.one_node[option] and rank // local != node):
                continue
            load = _busiest(search, desk, rank, size) if nodes else desk.load[rank]
            if load < least and search.plan.numbers[search.rows.free, rank] >= size:
                best, least = rank, load
        if best < 0:
            break
        ranks[found] = best
        desk.taken[best] = 1
        found += 1
    for block in range(found):
        desk.taken[ranks[block]] = 0
    return found == blocks


@compiled
def _busiest(search, desk, first, size):
    """Return the largest load on a node; infinite where a rank of it has no room."""
    most = 0.0
    for rank in range(first, first + search.plan.machine.local_ranks):
        if search.plan.numbers[search.rows.free, rank] < size:
            return np.inf
        most = max(most, desk.load[rank])
    return most


@compiled
def _mates(search, desk, option):
    """Return the node with the least load among those where all blocks of an option fit."""
    local, blocks = search.plan.machine.local_ranks, search.tables.blocks[option]
    best, least, size = -1, np.inf, _bytes(search.tables, option)
    for node in range(desk.load.size // local):
        roomy, load = 0, 0.0
        for rank in range(node * local, (node + 1) * local):
            roomy += search.plan.numbers[search.rows.free, rank] >= size
            load += desk.load[rank]
        if roomy >= blocks and load < least:
            best, least = node, load
    return best


@compiled
def _sort(order, key):
    """Sort tables by decreasing key, then increasing index (a heap: no worst case)."""
    count = order.size
    for start in range(count // 2 - 1, -1, -1):
        _sift(order, key, start, count)
    for last in range(count - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        _sift(order, key, 0, last)


@compiled
def _sift(order, key, start, count):
    """Let an entry sink below those that come later in the order."""
    at = start
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _is_before(key, order[child], order[child + 1]):
            child += 1
        if not _is_before(key, order[at], order[child]):
            return
        order[at], order[child] = order[child], order[at]
        at = child


@compiled
def _is_before(key, first, second):
    return key[first] > key[second] or (key[first] == key[second] and first < second)
