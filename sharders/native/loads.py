"""The loads of a plan under search: what every rank looks up, sends and holds.

They lie in two arrays (``costmodel.execution.native.Loads`` and ``Places``, ``state.Rows``); a
function that changes some notes what they were, so that a move can be taken back.
"""

from costmodel.execution.native import (
    backward_seconds,
    compiled,
    forget,
    forward_seconds,
    inlined,
    put,
    put_at,
    refresh_all,
    save,
)
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES
from costmodel.kernels.embedding import NUM_TRAFFIC, Traffic
from sharders.guide import BALANCE_ROOTS
from sharders.native.places import home, num_shards
from sharders.native.tables import EVERYWHERE, FIXED, ON_RANKS
from sharders.search_state import EMPTY

NUM_FEATURES = len(RANK_FEATURES)
FEATURES, IDS = RANK_FEATURES.index("features"), RANK_FEATURES.index("ids")
TABLE_COLUMNS, SENT_IDS, SENT_FEATURES, PARAMETERS, PRESENT = (
    PLAN_FEATURES.index(name)
    for name in ("table_columns", "sent_ids", "sent_features", "parameter_bytes", "present")
)
NUM_SUMS = len(PLAN_FEATURES)
CHAIN, LOOKUPS = int(Traffic.CHAIN), int(Traffic.LOOKUPS)
CANCELLED = 1e-4
"""What is left of a sum, as a share of it, is rounded to at most 1e-12 of itself if this is more:
numbers have 16 digits."""


@inlined
def hold(search, option, ranks, sign):
    """Take memory for an option's shards, or give it back."""
    tables, plan, numbers = search.tables, search.plan, search.plan.numbers
    free, host_free, count = search.rows.free, search.rows.host_free, plan.journal.length[0]
    for shard in range(num_shards(tables, option)):
        rank = home(search, option, ranks, shard)
        size = tables.rows[tables.first[option] + shard]
        put_at(plan, count, (free, rank), numbers[free, rank] - sign * tables.held[size, 0])
        count += 1
        if tables.held[size, 1] != 0:
            node = plan.node_of[rank]
            left = numbers[host_free, node] - sign * tables.held[size, 1]
            put_at(plan, count, (host_free, node), left)
            count += 1
    plan.journal.length[0] = count


@inlined
def has_room(search, option, ranks):
    """Return whether no rank or node of an option's shards holds more than it can."""
    tables, plan = search.tables, search.plan
    for shard in range(num_shards(tables, option)):
        rank = home(search, option, ranks, shard)
        if plan.numbers[search.rows.free, rank] < 0:
            return False
        if plan.numbers[search.rows.host_free, plan.node_of[rank]] < 0:
            return False
    return True


@inlined
def fits(search):
    """Return whether no rank or node holds more than it can."""
    for rank in range(search.plan.machine.num_ranks):
        if search.plan.numbers[search.rows.free, rank] < 0:
            return False
        if search.plan.numbers[search.rows.host_free, rank] < 0:
            return False
    return True


@inlined
def load(search, option, places, sign):
    """Add an option's loads, or take them away; but for the longest bag, which does not add up.

    ``places``: the ranks of its blocks; others, and whether shards that are there stay as they are
    (then what is sent in all stays the same, too).
    """
    tables, (ranks, others, some), ids, sent = search.tables, places, 0.0, 0.0
    traffic = _traffic(search, tables.kernel[option])
    features = tables.group[option] * NUM_FEATURES
    powers = _note_powers(search, features)
    for shard in range(num_shards(tables, option)):
        rank = home(search, option, ranks, shard)
        if some and rank == home(search, option, others, shard):
            continue
        row = tables.rows[tables.first[option] + shard]
        if not search.is_changed[rank]:
            search.is_changed[rank] = 1
            search.changed[search.changed[-1]] = rank
            search.changed[-1] += 1
        _look_up_more(search, traffic, rank, (row, sign))
        _send_more(search, features, rank, (row, sign))
        ids += tables.features[row, IDS]
        sent += tables.features[row, FEATURES]
    _check_powers(search, features, powers)
    if not some:
        plan, numbers = search.plan, search.plan.numbers
        whole = plan.places.whole + tables.group[option] * NUM_SUMS
        ids *= sign / plan.machine.num_ranks
        put(plan, whole + SENT_IDS, 0, numbers[whole + SENT_IDS, 0] + ids)
        put(plan, whole + SENT_FEATURES, 0, numbers[whole + SENT_FEATURES, 0] + sign * sent)


@inlined
def _traffic(search, kernel):
    """Return where a kernel's traffic begins among a rank's loads; features come before."""
    return search.plan.machine.num_rank_features + kernel * NUM_TRAFFIC


@inlined
def _look_up_more(search, traffic, rank, shard):
    """Add a shard's traffic, or take it away; where the last table has left, leave nothing."""
    tables, loads, (row, sign) = search.tables, search.plan.loads.of_ranks, shard
    save(search.plan.loads, rank, traffic)
    is_left = loads[rank, traffic + LOOKUPS] + sign * tables.traffic[row, LOOKUPS] >= EMPTY
    if sign < 0 and not is_left:
        for column in range(NUM_TRAFFIC):
            loads[rank, traffic + column] = 0.0
        return
    chain = _longer(loads[rank, traffic + CHAIN], tables.traffic[row, CHAIN], sign)
    for column in range(NUM_TRAFFIC):
        loads[rank, traffic + column] += sign * tables.traffic[row, column]
    loads[rank, traffic + CHAIN] = chain


@inlined
def _longer(longest, chain, sign):
    """Return the longest bag with one more or one less; negative: that long at most."""
    if sign > 0:
        return chain if chain >= abs(longest) else longest
    return -longest if chain >= longest > 0 else longest


@inlined
def _send_more(search, features, rank, shard):
    """Add a shard's features, or take them away; where the last table has left, leave nothing."""
    tables, plan, (row, sign) = search.tables, search.plan, shard
    loads = plan.loads.of_ranks
    save(plan.loads, rank, features)
    left = loads[rank, features + FEATURES] + sign * tables.features[row, FEATURES]
    is_left = sign > 0 or left > 0.5  # counted exactly
    for feature in range(features, features + NUM_FEATURES):
        before, rate = loads[rank, feature], search.exchange_rates[feature]
        amount = before + sign * tables.features[row, feature - features] if is_left else 0.0
        loads[rank, feature] = amount
        more = _power(rate * amount) - _power(rate * before)
        plan.numbers[search.rows.exchanged + feature, 0] += more


@inlined
def _note_powers(search, features):
    """Note the powers of what a group's ranks exchange; return where in the journal."""
    plan, noted = search.plan, search.plan.journal.length[0]
    for feature in range(features, features + NUM_FEATURES):
        kept = search.rows.exchanged + feature
        put(plan, kept, 0, plan.numbers[kept, 0])
    return noted


@inlined
def _check_powers(search, features, noted):
    """Compute powers anew of which too little is left since they were noted."""
    plan = search.plan
    for column in range(NUM_FEATURES):
        feature = features + column
        kept = search.rows.exchanged + feature
        if plan.numbers[kept, 0] < CANCELLED * plan.journal.values[noted + column]:
            plan.numbers[kept, 0] = _exchanged(search, feature)


@inlined
def _exchanged(search, feature):
    """Return the sum over ranks of what each exchanges of a feature to the ``BALANCE_POWER``."""
    return _powers(search.plan.loads.of_ranks[:, feature], search.exchange_rates[feature])


@inlined
def _powers(values, rate):
    """Return the sum of some numbers, each times a rate, to the ``BALANCE_POWER``."""
    power = 0.0
    for value in values:
        power += _power(rate * value)
    return power


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
def sum_up(search, group):
    """Compute what all ranks of one group send, and its powers, free of rounding."""
    plan, loads, ranks = search.plan, search.plan.loads.of_ranks, search.plan.machine.num_ranks
    features = group * NUM_FEATURES
    whole = plan.places.whole + group * NUM_SUMS
    ids = sent = 0.0
    for rank in range(ranks):
        ids += loads[rank, features + IDS]
        sent += loads[rank, features + FEATURES]
    plan.numbers[whole + SENT_IDS, 0], plan.numbers[whole + SENT_FEATURES, 0] = ids / ranks, sent
    for feature in range(features, features + NUM_FEATURES):
        plan.numbers[search.rows.exchanged + feature, 0] = _exchanged(search, feature)


@inlined
def count(search, table, option, sign):
    """Count a table in its group, or no longer; where the last one has left, leave nothing."""
    tables, plan, numbers = search.tables, search.plan, search.plan.numbers
    whole = plan.places.whole + tables.group[option] * NUM_SUMS
    columns, parameters = whole + TABLE_COLUMNS, whole + PARAMETERS
    counts = search.rows.counts + tables.group[option]
    put(plan, columns, 0, numbers[columns, 0] + sign * tables.table_columns[table])
    put(plan, parameters, 0, numbers[parameters, 0] + sign * tables.replicated[option])
    put(plan, counts, 0, numbers[counts, 0] + sign)
    present = 1.0 if numbers[counts, 0] > 0.5 else 0.0
    if present != numbers[whole + PRESENT, 0]:
        put(plan, whole + PRESENT, 0, present)
    if present == 0:
        for row in range(whole, whole + NUM_SUMS):
            put(plan, row, 0, 0.0)


@inlined
def lookups(search, kernels):
    """Recompute the lookup times of the changed ranks, of the kernels with these bits."""
    plan, numbers, places = search.plan, search.plan.numbers, search.plan.places
    row, power = search.rows.load, numbers[search.rows.power, 0]
    for index in range(search.changed[-1]):
        power -= _power(numbers[row, search.changed[index]])
    for kernel in range(places.backward - places.forward):
        if kernels >> kernel & 1:
            _look_up(search, kernel)
    for index in range(search.changed[-1]):
        power += _power(numbers[row, search.changed[index]])
    if power < CANCELLED * numbers[search.rows.power, 0]:
        power = _powers(numbers[row], 1.0)
    put(plan, search.rows.power, 0, power)


@inlined
def _power(value):
    """Return a number to the ``BALANCE_POWER``."""
    for _ in range(BALANCE_ROOTS):
        value *= value
    return value


@inlined
def _look_up(search, kernel):
    """Recompute one kernel's times; and its longest bags, where they are not known and count."""
    plan, numbers = search.plan, search.plan.numbers
    first = _traffic(search, kernel)
    for index in range(search.changed[-1]):
        rank = search.changed[index]
        traffic = plan.loads.of_ranks[rank, first : first + NUM_TRAFFIC]
        forward = forward_seconds(traffic, plan.machine.rates)
        if traffic[CHAIN] < 0 and not _is_hidden(plan, traffic, forward):
            save(plan.loads, rank, first)
            traffic[CHAIN] = _longest_bag(search, kernel, rank)
            forward = forward_seconds(traffic, plan.machine.rates)
        backward = backward_seconds(traffic, plan.machine.rates)
        at, back = plan.places.forward + kernel, plan.places.backward + kernel
        more = forward - numbers[at, rank] + backward - numbers[back, rank]
        put(plan, search.rows.load, rank, numbers[search.rows.load, rank] + more)
        put(plan, at, rank, forward)
        put(plan, back, rank, backward)


@inlined
def _is_hidden(plan, traffic, seconds):
    """Return whether a kernel takes as long, however long the longest bag is."""
    most = -traffic[CHAIN]
    traffic[CHAIN] = most
    longest = forward_seconds(traffic, plan.machine.rates)
    traffic[CHAIN] = -most
    return longest == seconds


@inlined
def bits_of(search):
    """Return the bits of the groups that have tables."""
    bits, groups = 0, search.plan.machine.num_rank_features // NUM_FEATURES
    for group in range(groups):
        if search.plan.numbers[search.rows.counts + group, 0] > 0.5:
            bits |= 1 << group
    return bits


@inlined
def forget_changes(search):
    """Take no rank's loads for changed."""
    for index in range(search.changed[-1]):
        search.is_changed[search.changed[index]] = 0
    search.changed[-1] = 0


@inlined
def _load_all(search, option, ranks):
    """Add an option's loads and take its memory, not to be taken back."""
    tables, plan, loads = search.tables, search.plan, search.plan.loads.of_ranks
    traffic = _traffic(search, tables.kernel[option])
    features = tables.group[option] * NUM_FEATURES
    for shard in range(num_shards(tables, option)):
        rank = home(search, option, ranks, shard)
        row = tables.rows[tables.first[option] + shard]
        longest = max(loads[rank, traffic + CHAIN], tables.traffic[row, CHAIN])
        for column in range(NUM_TRAFFIC):
            loads[rank, traffic + column] += tables.traffic[row, column]
        loads[rank, traffic + CHAIN] = longest
        for column in range(NUM_FEATURES):
            loads[rank, features + column] += tables.features[row, column]
        plan.numbers[search.rows.free, rank] -= tables.held[row, 0]
        plan.numbers[search.rows.host_free, plan.node_of[rank]] -= tables.held[row, 1]


@compiled
def rebuild(search, room, groups):
    """Compute all loads from the choices, free of rounding; return whether a program is missing.

    ``room``: bytes that are for shards on a rank, and on a node's host. ``groups``: bits of the
    sharding groups whose durations are computed besides those that the plan has; moves need all.
    """
    plan, choices = search.plan, search.choices
    plan.numbers[: plan.places.steps] = 0.0
    plan.numbers[search.rows.load :] = 0.0
    plan.loads.of_ranks[:] = 0.0
    plan.numbers[search.rows.free] = room[0]
    plan.numbers[search.rows.host_free] = room[1]
    for table in range(choices.option.size):
        option = choices.option[table]
        _load_all(search, option, choices.ranks[table])
        count(search, table, option, 1.0)
        forget(plan)
    for group in range(plan.machine.num_rank_features // NUM_FEATURES):
        sum_up(search, group)
    for rank in range(plan.machine.num_ranks):
        search.changed[rank] = rank
    search.changed[-1] = plan.machine.num_ranks
    lookups(search, -1)
    forget_changes(search)
    bits = bits_of(search)
    search.which[0] = search.program_of[bits]
    if search.which[0] < 0:
        search.wanted[0] = bits
    else:
        forget(plan)
        refresh_all(plan, search.every, groups | bits)
    forget(plan)
    return search.which[0] < 0
