"""Whole plans by a rule: large tables first, each where it adds least.

Tables get an option by the predicted cost of each one alone (``OptionCosts``): replicated if that
is cheap, split into the cheapest option whose shards are small enough if they are large, whole
otherwise; then the next best ones, if there is no room. A plan takes about a millisecond.
"""

from collections.abc import Mapping
from math import inf

import numpy as np

from costmodel.domain.plan import ShardingType
from sharders.engine.kernel_ranks import KernelRanks
from sharders.engine.rank_scores import RankScores
from sharders.engine.search_state import SearchState
from sharders.engine.tables import EVERYWHERE, FIXED, ON_NODES

DATA_PARALLEL = list(ShardingType).index(ShardingType.DATA_PARALLEL)
TABLE_WISE = list(ShardingType).index(ShardingType.TABLE_WISE)
REPLICATED, WHOLE, SMALL, LARGE, LAST = range(5)
"""Order in which a rule prefers options: a cheap replica, the whole table, small shards, large
ones, and replicas that are not cheap."""


class Rule:
    """Which tables a plan splits and replicates, and how it compares options."""

    def __init__(
        self, parameters: Mapping[str, float], balanced_load: float, capacity: float
    ) -> None:
        """Keep a rule's parameters (``tuning.NEUTRAL``), for a problem.

        Parameters
        ----------
        parameters
            ``split_above``: share of a balanced rank's load that a shard may have;
            ``replicate_below``: a replica is cheap up to this times the table's share of the load;
            ``apart``: 1 where a rank is to have as few lookup kernels as it can, or 0;
            ``memory``: load that a shard counts for besides its own, if it takes all memory of a
            rank, in balanced loads; ``weight TYPE``: logarithm of what costs are multiplied by.
        balanced_load, capacity
            Seconds and bytes of a rank.

        """
        self.split_above = parameters["split_above"]
        self.replicate_below = parameters["replicate_below"]
        self.memory = parameters["memory"] * balanced_load / capacity
        self.capacity = capacity
        self.apart = parameters["apart"] > 0
        self.weights = np.exp([parameters[f"weight {kind.value}"] for kind in ShardingType])


class Greedy:
    """Makes plans by rules; its arrays are reused by every call."""

    def __init__(self, search: SearchState) -> None:
        tables, num_ranks = search.tables, search.plan.num_ranks
        self.search, self.num_ranks = search, num_ranks
        self.scores = RankScores(search)
        self.order = np.zeros(tables.num_tables, dtype=np.int64)
        """Tables."""
        self.key = np.zeros(tables.num_tables)
        """Values by which tables are ordered, largest first."""
        self.preferred = np.full(tables.num_tables, -1, dtype=np.int64)
        """The option that each table gets if there is room, whatever the rule; -1: none."""
        self.refused = np.zeros(tables.kind.shape[0], dtype=np.int64)
        """Whether there is no room for each option."""
        self.taken = np.zeros(num_ranks, dtype=np.int64)
        """Whether the present option is on each rank."""
        self.kernel_ranks = KernelRanks(search)
        self.overfills = False
        """Whether it may take more memory than there is."""

    def fill(self, rule: Rule, may_overfill: bool) -> bool:
        """Make the rule's plan the present choices, and return whether all tables were placed.

        Tables are placed by the share of a rank's time or memory that they take, the largest first;
        if that finds no room, once more by the memory that they take in all. Tables with given
        ranks come before the others. So do tables that every rank has a part of, which need room on
        the fullest rank: the first time those whose option is ``preferred``, the second time those
        whose option is the rule's. If neither order finds room and memory may be overfilled, the
        tables that do not fit go where most memory is left. Loads are not brought up to date
        (``SearchState.rebuild``).
        """
        tables, balanced = self.search.tables, 0.0
        for table in range(tables.num_tables):
            balanced += self._total(rule, self._whole(rule, table)) / self.num_ranks
        self.scores.clear(rule.capacity)
        for table in range(tables.num_tables):
            option = self._next(rule, table, balanced)
            self.scores.expect(option, self._load(rule, option))
        self.kernel_ranks.clear()
        if rule.apart:
            for table in range(tables.num_tables):
                option = self._next(rule, table, balanced)
                size = self._bytes(option)
                self.kernel_ranks.expect(option, self.scores.share(self._load(rule, option), size))
            if not self.kernel_ranks.divide():
                return False
        for by_size in range(2):
            for table in range(tables.num_tables):
                self.order[table] = table
                option = self._next(rule, table, balanced)
                size, spread = self._bytes(option), tables.spread[option]
                if by_size:
                    self.key[table] = size * tables.num_shards(option)
                else:
                    self.key[table] = self.scores.share(self._load(rule, option), size)
                is_preferred = self.preferred[table] >= 0
                if spread == FIXED or (spread == EVERYWHERE and is_preferred != (by_size > 0)):
                    self.key[table] = inf
            self._sort()
            if self._place_all(rule, balanced, may_overfill and by_size > 0):
                return True
        return False

    def _place_all(self, rule: Rule, balanced: float, may_overfill: bool) -> bool:
        """Place all tables in order, and return whether all were placed."""
        search, tables = self.search, self.search.tables
        for rank in range(self.num_ranks):
            search.plan.numbers[search.loads.free_row, rank] = search.loads.rooms[rank]
            search.plan.numbers[search.loads.host_row, rank] = search.loads.host_room
        self.scores.begin()
        for index in range(tables.num_tables):
            table = self.order[index]
            placed = False
            while not placed:
                option = self._next(rule, table, balanced)
                if option < 0:
                    if not may_overfill:
                        break
                    self.overfills, option = True, self._finest(table)
                placed = self._put(table, option, self._load(rule, option))
                search.plan.commit()
                self.refused[option] = not placed
                self.overfills = False
            first = tables.options[table]
            for place in range(first, first + tables.num_offered[table]):
                self.refused[tables.offered[place]] = 0
            if self.preferred[table] >= 0:
                self.refused[self.preferred[table]] = 0
            if not placed:
                return False
        return True

    def _total(self, rule: Rule, option: int) -> float:
        """Return the weighted cost of an option over all its shards."""
        tables = self.search.tables
        extra = rule.memory * self._bytes(option) * tables.num_shards(option)
        return rule.weights[tables.kind[option]] * tables.cost[option] + extra

    def _load(self, rule: Rule, option: int) -> float:
        """Return the weighted cost of an option's largest shard."""
        tables, extra = self.search.tables, rule.memory * self._bytes(option)
        return rule.weights[tables.kind[option]] * tables.shard_cost[option] + extra

    def _bytes(self, option: int) -> float:
        """Return the bytes of an option's first shard; none is larger."""
        tables = self.search.tables
        return tables.held[tables.rows[tables.first[option]], 0]

    def _whole(self, rule: Rule, table: int) -> int:
        """Return the table's cheapest option on one rank; where none is allowed, of all."""
        tables, best = self.search.tables, -1
        known, least, first = False, 0.0, tables.options[table]
        for place in range(first, first + tables.num_offered[table]):
            option = tables.offered[place]
            whole, total = tables.kind[option] == TABLE_WISE, self._total(rule, option)
            if best < 0 or (whole and not known) or (whole == known and total < least):
                best, known, least = option, whole, total
        return best

    def _next(self, rule: Rule, table: int, balanced: float) -> int:
        """Return the option that a rule likes best, of those not refused; -1: none is left."""
        tables, preferred = self.search.tables, self.preferred[table]
        if preferred >= 0 and not self.refused[preferred]:
            return preferred
        first = tables.options[table]
        last = first + tables.num_offered[table]
        whole, limit = self._whole(rule, table), rule.split_above * balanced
        replica, some_small = -1, False
        for index in range(first, last):
            option = tables.offered[index]
            if tables.kind[option] != DATA_PARALLEL:
                some_small = some_small or self._load(rule, option) <= limit
            elif replica < 0 or self._total(rule, option) < self._total(rule, replica):
                replica = option
        share = rule.replicate_below * self._total(rule, whole) / self.num_ranks
        cheap = replica >= 0 and self._load(rule, replica) <= share
        best, best_place, best_key = -1, LAST + 1, inf
        for index in range(first, last):
            option = tables.offered[index]
            if self.refused[option]:
                continue
            key, load = self._total(rule, option), self._load(rule, option)
            if tables.kind[option] == DATA_PARALLEL:
                place = REPLICATED if cheap else LAST
            elif cheap or load <= limit:
                place = WHOLE if option == whole else SMALL
            else:
                place, key = LARGE, load if some_small else key
            if place < best_place or (place == best_place and key < best_key):
                best, best_place, best_key = option, place, key
        return best

    def _finest(self, table: int) -> int:
        """Return the table's option with the smallest shards; of several, the cheapest."""
        tables, best, least = self.search.tables, -1, inf
        first = tables.options[table]
        for place in range(first, first + tables.num_offered[table]):
            option = tables.offered[place]
            size = self._bytes(option)
            if size < least or (size == least and tables.cost[option] < tables.cost[best]):
                best, least = option, size
        return best

    def _put(self, table: int, option: int, load: float) -> bool:
        """Place an option where it adds least; return whether there is room, or none is needed.

        If memory may be overfilled, it goes where most is left.
        """
        search, tables, choices = self.search, self.search.tables, self.search.choices
        self.scores.consider(option, load, self._bytes(option))
        if tables.blocks[option] > 0 and not self._find(table, option):
            return False
        search.loads.hold(option, choices, table, 1.0)
        if not self.overfills and not search.loads.has_room(option, choices, table):
            search.loads.hold(option, choices, table, -1.0)
            return False
        choices.option[table] = option
        for shard in range(tables.num_shards(option)):
            self.scores.take(search.loads.rank_of(option, choices, table, shard))
        return True

    def _find(self, table: int, option: int) -> bool:
        """Find distinct ranks or nodes with room where least is added; return whether there are."""
        search, tables, choices = self.search, self.search.tables, self.search.choices
        local, blocks = search.plan.local_ranks, tables.blocks[option]
        nodes, one_node = tables.spread[option] == ON_NODES, tables.one_node[option] != 0
        node, found = self._roomy_node(blocks) if one_node else -1, 0
        while found < blocks:
            best, least = -1, inf
            for number in range(self.num_ranks // local if nodes else self.num_ranks):
                rank = number * local if nodes else number
                if self.taken[rank] or (one_node and rank // local != node):
                    continue
                added = self._added(rank, local if nodes else 1)
                if added < least:
                    best, least = rank, added
            if best < 0:
                break
            choices.ranks[table, found] = best
            self.taken[best] = 1
            found += 1
        for block in range(found):
            self.taken[choices.ranks[table, block]] = 0
        return found == blocks

    def _added(self, first: int, count: int) -> float:
        """Return the score that shards on ranks ``first`` to ``first + count - 1`` add.

        Infinite if one of the ranks has no room; if memory may be overfilled, the bytes that the
        fullest of them then lacks.
        """
        search, total, fullest = self.search, 0.0, -inf
        for rank in range(first, first + count):
            free = search.plan.numbers[search.loads.free_row, rank]
            if self.overfills:
                fullest = max(fullest, -free)
            elif (
                free < self.scores.bytes
                or not self.kernel_ranks.is_allowed[self.scores.kernel, rank]
            ):
                return inf
            else:
                total += self.scores.added(rank)
        return fullest if self.overfills else total

    def _roomy_node(self, blocks: int) -> int:
        """Return the node where least is added, among those with room for so many blocks."""
        local, best, least = self.search.plan.local_ranks, -1, inf
        for node in range(self.num_ranks // local):
            roomy, total = 0, 0.0
            for rank in range(node * local, (node + 1) * local):
                added = self._added(rank, 1)
                if added < inf:
                    roomy += 1
                    total += added
            if roomy >= blocks and total < least:
                best, least = node, total
        return best

    def _sort(self) -> None:
        """Sort tables by decreasing key, then increasing index (a heap: no worst case)."""
        count = self.order.shape[0]
        for start in range(count // 2 - 1, -1, -1):
            self._sift(start, count)
        for last in range(count - 1, 0, -1):
            self.order[0], self.order[last] = self.order[last], self.order[0]
            self._sift(0, last)

    def _sift(self, start: int, count: int) -> None:
        """Sink an entry of the heap below those that come later in the order."""
        at = start
        while 2 * at + 1 < count:
            child = 2 * at + 1
            if child + 1 < count and self._is_before(child, child + 1):
                child += 1
            if not self._is_before(at, child):
                return
            self.order[at], self.order[child] = self.order[child], self.order[at]
            at = child

    def _is_before(self, place: int, other: int) -> bool:
        """Return whether the table at one place of the order comes before another."""
        first, second = self.order[place], self.order[other]
        equal = self.key[first] == self.key[second]
        return self.key[first] > self.key[second] or (equal and first < second)
