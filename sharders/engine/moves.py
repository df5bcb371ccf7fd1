"""Moves of a search: other shardings of one or a few tables."""

import numpy as np

from costmodel.domain.plan import ShardingType
from costmodel.engine.codes import CONSTANT, EXCHANGE, ISSUE, ONLY
from costmodel.step.template import RANK_FEATURES
from sharders.engine.params import MAX_TOGETHER, MoveParams
from sharders.engine.search_state import NO_EXCESS, SearchState
from sharders.engine.tables import ON_NODES, Move

CRITICAL_SHARE: float = 0.8
"""Share of the moves that change a table which the step waits for."""
SWAP_SHARE: float = 0.25
"""Share of the moves that exchange the places of two tables' blocks."""
OPTION_SHARE: float = 0.6
"""Share of the moves that shard a table in another way; the rest move one block."""
SUITED_SHARE: float = 0.5
"""Share of the joins that take up to ``MAX_TOGETHER`` tables which the type suits: a type's
collectives cost more than a few tables gain by it, so that one at a time none would begin."""
MAX_COSTLIEST: int = 4
"""Most tables that the other joins take."""
SUITED_TRIES: int = 8
"""Number of tables drawn for one that a type suits."""
ANY_GROUP_SHARE: float = 0.7
"""Share of the leaves whose group is any that has tables, not the group of a table drawn."""
KERNEL_SHARE: float = 0.5
"""Share of the leaves in which the tables of one of the group's lookup kernels leave."""
KEEP_SHARE: float = 0.85
"""Share of the other options whose column blocks stay on their ranks as far as possible."""
MANY_SHARDS: int = 6
"""Options that change more shards than this are tried less often in proportion, as they take
longer; a move not tried counts, too."""
OPTION_TRIES: int = 3
"""Number of options drawn for a table, of which it takes the one of the least predicted time."""
PRICED_TRIES: int = 6
"""The same if options are compared by price."""
EAGERNESS: int = 3
"""Power of a uniform number that gives the place of a drawn rank in the order by load."""
SWAP_TRIES: int = 8
"""Number of tables drawn until one has a block to exchange."""
EXCESS_SHARE: float = 0.5
"""Share of the looks at a plan that does not fit after which moves are of the fullest rank."""
ALL_GROUPS: int = -1
COLUMNS: int = RANK_FEATURES.index("columns")
NUM_TYPES: int = len(ShardingType)
GAMMA: int = 0x9E3779B97F4A7C15
"""Added for every random number; it is odd, so that all 2**64 states occur."""
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Factors of the state between shifts, until all of its bits have changed all of the number's
(Stafford's Mix13, which the paper below takes)."""
WORD: int = 0xFFFFFFFFFFFFFFFF
"""Mask of 64 bits: interpreted, numbers have more."""


class RandomNumbers:
    """Random numbers from one word of state: SplitMix64.

    References
    ----------
    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.

    """

    def __init__(self, seed: int = 0) -> None:
        self.state = seed

    def begin(self, seed: int) -> None:
        """Begin anew: the seed decides what is drawn."""
        self.state = seed

    def uniform(self) -> float:
        """Return a drawn number of at least 0 and below 1."""
        self.state = (self.state + GAMMA) & WORD
        mixed = ((self.state ^ (self.state >> 30)) * FIRST) & WORD
        mixed = ((mixed ^ (mixed >> 27)) * SECOND) & WORD
        mixed ^= mixed >> 31
        return (mixed >> 11) * 2.0**-53  # a float64 has no place for the other 11 bits

    def below(self, count: int) -> int:
        """Return a drawn whole number of at least 0 and below ``count``."""
        return int(count * self.uniform())


class MoveProposer:
    """Draws moves, by what the step waits for; that is known as of some moves ago at most."""

    def __init__(self, search: SearchState, params: MoveParams, rng: RandomNumbers) -> None:
        num_ranks, num_rows = search.plan.num_ranks, search.plan.numbers.shape[0]
        self.search, self.rng = search, rng
        self.together_share, self.finer_share = params.together_share, params.finer_share
        self.priced_share = params.priced_share
        self.order = np.arange(num_ranks)
        """Ranks, the one that the others wait for last."""
        self.slowest = np.zeros(search.tables.num_tables, dtype=np.int64)
        """Tables that keep that rank busy, the first ``num_slowest`` entries."""
        self.num_slowest = 0
        self.taken = np.zeros(num_ranks, dtype=np.int64)
        """Whether the present option is on each rank."""
        first, rows = np.asarray(search.tables.first)[:-1], np.asarray(search.tables.rows)
        self.width = np.array(np.asarray(search.tables.features)[rows[first], COLUMNS])
        """Output columns per sample of every option's first shard."""
        self.op_of = _operations(search, num_rows)
        """The operation, in the step of all groups, whose duration each row of numbers is; -1:
        none."""
        self.bottleneck_row, self.bottleneck_groups = search.loads.load_row, ALL_GROUPS

    def refresh(self) -> None:
        """Order the ranks by a load that the step waits for, and list the slowest one's tables."""
        search = self.search
        self._find_bottleneck()
        row, groups = self.bottleneck_row, self.bottleneck_groups
        sign = -1.0 if row == search.loads.free_row else 1.0
        for place in range(1, self.order.shape[0]):  # hardly anything is out of order
            rank, before = self.order[place], place - 1
            while before >= 0 and (
                sign * search.plan.numbers[row, self.order[before]]
                > sign * search.plan.numbers[row, rank]
            ):
                self.order[before + 1] = self.order[before]
                before -= 1
            self.order[before + 1] = rank
        slowest = self._drawn_slowest(row)
        self.num_slowest = 0
        for table in range(search.tables.num_tables):
            group = search.tables.group[search.choices.option[table]]
            if groups >> group & 1 and self._block_on(table, slowest) >= 0:
                self.slowest[self.num_slowest] = table
                self.num_slowest += 1

    def _drawn_slowest(self, row: int) -> int:
        """Put one of the slowest ranks by a load last, drawn among equals, and return it.

        Where outputs are of a few widths, or launches decide, many are equally slow.
        """
        last = self.order.shape[0] - 1
        first, slowest = last, self.order[last]
        seconds = self.search.plan.numbers[row, slowest]
        while first > 0 and self.search.plan.numbers[row, self.order[first - 1]] == seconds:
            first -= 1
        place = first + self.rng.below(last + 1 - first)
        self.order[last] = self.order[place]
        self.order[place] = slowest
        return self.order[last]

    def _find_bottleneck(self) -> None:
        """Draw a load of ranks on the heaviest cycle, longer ones more often.

        It sets the load's row of numbers (of an exchange, its bytes; of a launch, all launches of
        lookups) and the bits of its sharding groups; ranks' lookups and all groups, if no cycle is
        known or none of it differs between ranks.
        """
        search, total = self.search, 0.0
        every = search.every
        self.bottleneck_row, self.bottleneck_groups = search.loads.load_row, ALL_GROUPS
        if search.excess() > NO_EXCESS and self.rng.uniform() < EXCESS_SHARE:
            self.bottleneck_row = search.loads.free_row
            return
        if search.which >= len(search.cycles):
            return
        cycle = search.cycles[search.which]
        for index in range(cycle.begin, cycle.end):
            row = cycle.rows[index]
            op = self.op_of[row] if row >= 0 else -1
            if op < 0:
                continue
            is_exchange = every.kind[op] == EXCHANGE
            if every.whole[op] == ONLY if is_exchange else every.same[op] != 0:
                continue
            seconds = search.plan.numbers[row, 0 if every.same[op] else cycle.ranks[index]]
            total += seconds
            if self.rng.uniform() * total < seconds:
                self.bottleneck_row = row + search.plan.num_durations if is_exchange else row
                if every.kind[op] == ISSUE:
                    self.bottleneck_row = search.loads.launches_row
                self.bottleneck_groups = every.touched_by[op]

    def _block_on(self, table: int, rank: int) -> int:
        """Return a table's movable column block on a rank, or its node; -1: none."""
        search = self.search
        option, local = search.choices.option[table], search.plan.local_ranks
        nodes = search.tables.spread[option] == ON_NODES
        return search.block_at(table, rank // local * local if nodes else rank)

    def draw(self, move: Move, placing: bool) -> None:
        """Draw a move; one of ``length`` 0 if there is none of the drawn kind.

        With ``placing``, only the ranks of present options change.
        """
        move.length = 0
        search, block = self.search, -1
        if self.num_slowest > 0 and self.rng.uniform() < CRITICAL_SHARE:
            table = self.slowest[self.rng.below(self.num_slowest)]
            block = self._block_on(table, self.order[self.order.shape[0] - 1])
        else:
            table = self.rng.below(search.tables.num_tables)
        blocks = search.tables.blocks[search.choices.option[table]]
        if block < 0 < blocks:
            block = self.rng.below(blocks)
        swaps, options = SWAP_SHARE, OPTION_SHARE
        if placing:
            if blocks == 0:
                return
            swaps, options = SWAP_SHARE / (1 - OPTION_SHARE), 0.0
        elif self.rng.uniform() < self.together_share:
            kind = self.rng.uniform()
            if kind < self.finer_share:
                self._split_finer(move)
            elif kind < 0.5 * (1 + self.finer_share):
                self._leave_group(move)
            else:
                self._join_type(move)
            return
        kind = self.rng.uniform()
        if blocks == 0 or swaps <= kind < swaps + options:
            option = self._drawn_option(table, -1, -1)
            if option >= 0 and self._is_tried(table, option):
                self._take_option(move, table, option)
        elif kind < swaps:
            self._swap(move, table, block)
        else:
            self._other_rank(move, table, block)

    def _swap(self, move: Move, table: int, block: int) -> None:
        """Add the exchange of ranks of two tables' blocks of one type.

        Of all blocks, if on one node.
        """
        search, tables, choices = self.search, self.search.tables, self.search.choices
        first, here = choices.option[table], choices.ranks[table, block]
        for _ in range(SWAP_TRIES):
            other = self.rng.below(tables.num_tables)
            second = choices.option[other]
            alike = tables.kind[first] == tables.kind[second] and tables.blocks[second] > 0
            if other == table or not alike:
                continue
            other_block = self.rng.below(tables.blocks[second])
            there = choices.ranks[other, other_block]
            if tables.one_node[first]:
                if tables.blocks[first] != tables.blocks[second] or here == there:
                    continue
                move.add(choices, table, first)
                move.add(choices, other, second)
                choices.copy_row(other, move, 0)
                choices.copy_row(table, move, 1)
                return
            if search.block_at(table, there) < 0 and search.block_at(other, here) < 0:
                move.add(choices, table, first)
                move.add(choices, other, second)
                move.ranks[0, block], move.ranks[1, other_block] = there, here
                return

    def _other_rank(self, move: Move, table: int, block: int) -> None:
        """Add the move of one column block to another rank, preferring lightly loaded ones.

        If all must be on one node, all of them move to another node.
        """
        search, tables, choices = self.search, self.search.tables, self.search.choices
        option, rank, local = choices.option[table], self.light_rank(), search.plan.local_ranks
        nodes = tables.spread[option] == ON_NODES
        if tables.one_node[option] and choices.ranks[table, block] // local != rank // local:
            self._place(option, move, move.add(choices, table, option), 0)
            return
        for other in range(tables.blocks[option]):
            at = choices.ranks[table, other]
            if (nodes and at // local == rank // local) or at == rank:
                return
        row = move.add(choices, table, option)
        move.ranks[row, block] = rank // local * local if nodes else rank

    def _other_option(self, move: Move, table: int, but: int, only: int) -> bool:
        """Add another option of a table (``_drawn_option``), and return whether there was one."""
        option = self._drawn_option(table, but, only)
        return option >= 0 and self._take_option(move, table, option)

    def _drawn_option(self, table: int, but: int, only: int) -> int:
        """Return a drawn option of a table, preferring cheap ones; -1: none was found.

        Cheap is one with little time alone, or with a low price where all tables compete. It is not
        of the sharding group ``but``, and of the type ``only``; -1: of any.
        """
        tables = self.search.tables
        first, count = tables.options[table], tables.num_offered[table]
        chosen, priced = -1, self.rng.uniform() < self.priced_share
        wanted = PRICED_TRIES if priced else OPTION_TRIES
        for _ in range(8 * wanted):
            option = tables.offered[first + self.rng.below(count)]
            if tables.group[option] == but or (only >= 0 and tables.kind[option] != only):
                continue
            if chosen < 0 or (
                tables.price[option] < tables.price[chosen]
                if priced
                else tables.cost[option] < tables.cost[chosen]
            ):
                chosen = option
            wanted -= 1
            if wanted == 0:
                break
        return chosen

    def _is_tried(self, table: int, option: int) -> bool:
        """Return whether a drawn option of a table is tried: seldom, if it has many shards."""
        tables, present = self.search.tables, self.search.choices.option[table]
        shards = max(tables.num_shards(option), tables.num_shards(present))
        return self.rng.uniform() * shards <= MANY_SHARDS

    def _take_option(self, move: Move, table: int, chosen: int) -> bool:
        """Add an option of a table on lightly loaded ranks, and return whether that is a change."""
        tables, choices = self.search.tables, self.search.choices
        row = move.add(choices, table, chosen)
        same, kept = chosen == choices.option[table], 0
        if not same and self.rng.uniform() < KEEP_SHARE:
            kept = self._keepable(table, chosen)
        self._place(chosen, move, row, kept)
        for block in range(tables.blocks[chosen]):
            same = same and move.ranks[row, block] == choices.ranks[table, block]
        if same:
            move.length = row
        return not same

    def _keepable(self, table: int, option: int) -> int:
        """Return how many column blocks stay on their ranks if a table takes an option."""
        tables, choices = self.search.tables, self.search.choices
        present, local = choices.option[table], self.search.plan.local_ranks
        if tables.spread[present] != tables.spread[option]:
            return 0
        count = min(tables.blocks[present], tables.blocks[option])
        if tables.one_node[option]:
            for block in range(1, count):
                if choices.ranks[table, block] // local != choices.ranks[table, 0] // local:
                    return 0
        return count

    def _place(self, option: int, move: Move, row: int, kept: int) -> None:
        """Draw distinct ranks or nodes for an option's blocks, as its sharding type allows.

        The first ``kept`` blocks stay where they are.
        """
        tables, local = self.search.tables, self.search.plan.local_ranks
        blocks, num_ranks = tables.blocks[option], self.order.shape[0]
        nodes, one_node = tables.spread[option] == ON_NODES, tables.one_node[option] != 0
        node = (move.ranks[row, 0] if kept > 0 else self.light_rank()) // local
        place = 0
        for block in range(kept):
            self.taken[move.ranks[row, block]] = 1
        for block in range(kept, blocks):
            at = self._light_place()
            for step in range(num_ranks):  # at most once around
                rank = self.order[(at + step) % num_ranks]
                place = rank // local * local if nodes else rank
                if (not one_node or rank // local == node) and not self.taken[place]:
                    break
            self.taken[place] = 1
            move.ranks[row, block] = place
        for block in range(blocks):
            self.taken[move.ranks[row, block]] = 0

    def _light_place(self) -> int:
        """Return a drawn place in the order of ranks, less loaded ones more often."""
        drawn = self.rng.uniform()
        power = drawn
        for _ in range(1, EAGERNESS):
            power *= drawn
        return int(self.order.shape[0] * power)

    def light_rank(self) -> int:
        """Return a drawn rank, less loaded ones more often."""
        return self.order[self._light_place()]

    def _leave_group(self, move: Move) -> None:
        """Add other options for all tables of a sharding group, or of one of its kernels.

        None if they are many. Every group has collectives of its own, and every lookup kernel has
        launches: a few tables that are all of one pay for it until the last one has left.
        """
        search, tables, choices = self.search, self.search.tables, self.search.choices
        group = tables.group[choices.option[self.rng.below(tables.num_tables)]]
        if self.rng.uniform() < ANY_GROUP_SHARE:
            group = self.rng.below(search.loads.num_groups)
            while search.loads.num_in(group) == 0:
                group = (group + 1) % search.loads.num_groups
        kernel, count = -1, search.loads.num_in(group)
        if self.rng.uniform() < KERNEL_SHARE:
            kernel = self._kernel_of(group, self.rng.below(count))
            count = 0
            for table in range(tables.num_tables):
                count += tables.kernel[choices.option[table]] == kernel
        if count > MAX_TOGETHER:
            return
        for table in range(tables.num_tables):
            option = choices.option[table]
            if tables.group[option] != group or (kernel >= 0 and tables.kernel[option] != kernel):
                continue
            if not self._other_option(move, table, group, -1):
                move.length = 0
                return

    def _kernel_of(self, group: int, place: int) -> int:
        """Return the lookup kernel of a group's table, by its place in the group."""
        tables, choices = self.search.tables, self.search.choices
        for table in range(tables.num_tables):
            option = choices.option[table]
            if tables.group[option] == group:
                if place == 0:
                    return tables.kernel[option]
                place -= 1
        return -1

    def _join_type(self, move: Move) -> None:
        """Add options of one type: for tables it suits, or the costliest of the slowest rank."""
        joined, suited = self.rng.below(NUM_TYPES), self.rng.uniform() < SUITED_SHARE
        for _ in range(1 + self.rng.below(MAX_TOGETHER if suited else MAX_COSTLIEST)):
            table = self._suited(move, joined) if suited else self._costliest(move)
            if table >= 0:
                self._other_option(move, table, -1, joined)

    def _split_finer(self, move: Move) -> None:
        """Add finer splits for all tables of a group with shards about as wide as a slow one.

        That one is on the slowest rank. One table alone changes nothing where all ranks wait for
        those with the widest shards.
        """
        tables, choices = self.search.tables, self.search.choices
        if self.num_slowest == 0:
            return
        present = choices.option[self.slowest[self.rng.below(self.num_slowest)]]
        if tables.blocks[present] == 0:
            return
        group = tables.group[present]
        limit = self.width[present] * (1 + self.rng.uniform()) / 2
        for table in range(tables.num_tables):
            present = choices.option[table]
            if tables.group[present] != group or self.width[present] < limit:
                continue
            finer = self._widest(table, tables.kind[present], limit)
            if finer >= 0:
                self._take_option(move, table, finer)
            if move.length == MAX_TOGETHER:
                return

    def _widest(self, table: int, kind: int, limit: float) -> int:
        """Return a table's option of a type with the widest shards below a limit; -1: none.

        Of several, it is the cheapest.
        """
        tables, found, most = self.search.tables, -1, 0.0
        first = tables.options[table]
        for place in range(first, first + tables.num_offered[table]):
            option = tables.offered[place]
            width = self.width[option]
            if tables.kind[option] != kind or width >= limit or width < most:
                continue
            if found < 0 or width > most or tables.cost[option] < tables.cost[found]:
                found, most = option, width
        return found

    def _costliest(self, move: Move) -> int:
        """Return the costliest table of the slowest rank that is not in a move; -1: none."""
        tables, choices, costliest = self.search.tables, self.search.choices, -1
        most = 0.0
        for index in range(self.num_slowest):
            table = self.slowest[index]
            cost = tables.shard_cost[choices.option[table]]
            if not move.has(table) and (costliest < 0 or cost > most):
                costliest, most = table, cost
        return costliest

    def _suited(self, move: Move, kind: int) -> int:
        """Return a drawn table not sharded by a type, preferring those that gain by it.

        -1: none.
        """
        tables, choices = self.search.tables, self.search.choices
        found, most = -1, 0.0
        for _ in range(SUITED_TRIES):
            table = self.rng.below(tables.num_tables)
            present = choices.option[table]
            if tables.kind[present] == kind or move.has(table):
                continue
            first = tables.options[table]
            for index in range(first, first + tables.num_offered[table]):
                option = tables.offered[index]
                gain = tables.cost[present] - tables.cost[option]
                if tables.kind[option] == kind and (found < 0 or gain > most):
                    found, most = table, gain
        return found


def _operations(search: SearchState, num_rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the operation whose duration each row of numbers is; -1: none."""
    every, op_of = search.every, np.full(num_rows, -1, dtype=np.int64)
    for op in range(every.num_ops):
        if every.kind[op] != CONSTANT:
            op_of[every.rows[op]] = op
    return op_of
