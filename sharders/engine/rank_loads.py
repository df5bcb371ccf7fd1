"""The loads of a plan under search: lookups, bytes sent and bytes held of every rank.

They are in the arrays of ``costmodel.engine.state.PlanState``, with rows of numbers beyond
durations (``SearchRows``). Changes note the old values, so that a move can be undone.
"""

from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array
from costmodel.domain.workload import BAG_STEP
from costmodel.engine.state import PlanState
from costmodel.kernels.traffic import MAXIMA, NUM_TRAFFIC, Traffic
from costmodel.step.template import KERNEL_FEATURES, PLAN_FEATURES, RANK_FEATURES
from sharders.engine.imbalance_penalty import BALANCE_ROOTS
from sharders.engine.tables import EVERYWHERE, FIXED, ON_RANKS, Choices, Tables

NUM_FEATURES: int = len(RANK_FEATURES)
FEATURES, IDS = RANK_FEATURES.index("features"), RANK_FEATURES.index("ids")
TABLE_COLUMNS, SENT_IDS, SENT_FEATURES, PRESENT, NUM_TABLES = (
    PLAN_FEATURES.index(name)
    for name in (
        "table_columns",
        "sent_ids",
        "sent_features",
        "present",
        "tables",
    )
)
NUM_SUMS: int = len(PLAN_FEATURES)
PARAMETERS, NUM_KERNEL_SUMS = KERNEL_FEATURES.index("parameter_bytes"), len(KERNEL_FEATURES)
CHAIN, WIDEST, LOOKUPS = int(Traffic.CHAIN), int(Traffic.WIDEST), int(Traffic.LOOKUPS)
BAG, WIDTH = MAXIMA.index(Traffic.CHAIN), MAXIMA.index(Traffic.WIDEST)
EMPTY: float = 1e-6
"""Lookups below this are rounding on a rank whose last table has left."""
SOME_LEFT: float = BAG_STEP / 2
"""Ranks with at least so many features have some: they are counted exactly."""
ROUNDED: float = 1e-10
"""A sum's rest below this share of what is taken away is rounding."""
CANCELLED: float = 1e-4
"""A sum's rest above this share of it is rounded to at most 1e-12 of itself: numbers have 16
digits."""


class SearchRows(NamedTuple):
    """Rows of numbers besides durations."""

    load: int
    """Seconds of all lookups, forward and backward."""
    launches: int
    """Seconds in which the host launches the lookup kernels with work on the rank."""
    power: int
    """Sum over ranks of the power (2 to the ``BALANCE_ROOTS``) of both together, in the first
    column."""
    exchanged: int
    """The same sum of the seconds that each rank's own amount of every rank feature takes to
    exchange."""
    free: int
    """Bytes of HBM left."""
    host_free: int
    """Bytes of host memory left, by node."""
    excess: int
    """Memory that ranks and hosts hold beyond theirs, as a sum of shares of it, in the first
    column."""
    counts: int
    """Tables of every sharding group, in the first column."""
    end: int


class RankLoads:
    """Lookups, bytes sent and bytes held of all ranks under the present choices.

    Moves change them.
    """

    def __init__(
        self,
        *,
        plan: PlanState,
        tables: Tables,
        choices: Choices,
        rows: SearchRows,
        exchange_rates: Array,
        launch_seconds: Array,
        rooms: Array,
        host_room: float,
    ) -> None:
        """Keep the parts.

        Parameters
        ----------
        plan, rows
            Where loads are, and in which rows.
        tables, choices
            What the loads follow from.
        exchange_rates
            Seconds for a unit of every rank feature of every group, (groups x features,).
        launch_seconds
            Seconds that the host launches every lookup kernel, (kernels,).
        rooms, host_room
            Bytes that are for shards on every rank (ranks,), and on a node's host.

        """
        self.plan, self.tables, self.choices = plan, tables, choices
        self.load_row, self.launches_row = rows.load, rows.launches
        self.power_row, self.exchanged_row = rows.power, rows.exchanged
        self.free_row, self.host_row, self.counts_row = rows.free, rows.host_free, rows.counts
        self.excess_row = rows.excess
        self.end_row = rows.end
        self.exchange_rates, self.launch_seconds = exchange_rates, launch_seconds
        self.num_groups = exchange_rates.size // NUM_FEATURES
        self.num_kernels = plan.backward - plan.forward
        self.rooms, self.host_room = rooms, host_room
        self.kernel_changed = np.zeros(self.num_kernels, dtype=np.int64)
        """Whether the traffic of each lookup kernel has changed."""

    def rank_of(self, option: int, choices: Choices, row: int, shard: int) -> int:
        """Return the rank of one of an option's shards.

        Row ``row`` of choices has its blocks' ranks.
        """
        spread = self.tables.spread[option]
        if spread == ON_RANKS:
            return choices.ranks[row, shard]
        if spread == EVERYWHERE:
            return shard
        if spread == FIXED:
            return self.tables.at[self.tables.first[option] + shard]
        block = self.plan.node_of[shard]
        node = self.plan.node_of[choices.ranks[row, block]]
        return shard + (node - block) * self.plan.local_ranks

    def hold(self, option: int, choices: Choices, row: int, sign: float) -> None:
        """Add the memory of an option's shards, or subtract it, by ``sign``."""
        first = self.tables.first[option]
        for shard in range(self.tables.num_shards(option)):
            rank = self.rank_of(option, choices, row, shard)
            size = self.tables.rows[first + shard]
            free = self.plan.numbers[self.free_row, rank]
            left = free - sign * self.tables.held[size, 0]
            self.plan.put(self.free_row, rank, left)
            if left < 0 or free < 0:
                self._exceed(max(0.0, -left) - max(0.0, -free), self.rooms[rank])
            if self.tables.held[size, 1] != 0:
                node = self.plan.node_of[rank]
                free = self.plan.numbers[self.host_row, node]
                left = free - sign * self.tables.held[size, 1]
                self.plan.put(self.host_row, node, left)
                if left < 0 or free < 0:
                    self._exceed(max(0.0, -left) - max(0.0, -free), self.host_room)

    def _exceed(self, more: float, room: float) -> None:
        """Add to the memory held beyond what there is."""
        self._add(self.excess_row, more / max(room, 1.0))

    def has_room(self, option: int, choices: Choices, row: int) -> bool:
        """Return whether no rank or node of an option's shards holds more than it can."""
        for shard in range(self.tables.num_shards(option)):
            rank = self.rank_of(option, choices, row, shard)
            if self.plan.numbers[self.free_row, rank] < 0:
                return False
            if self.plan.numbers[self.host_row, self.plan.node_of[rank]] < 0:
                return False
        return True

    def fits(self) -> bool:
        """Return whether no rank or node holds more than it can."""
        for rank in range(self.plan.num_ranks):
            if self.plan.numbers[self.free_row, rank] < 0:
                return False
            if self.plan.numbers[self.host_row, rank] < 0:
                return False
        return True

    def change(
        self,
        option: int,
        choices: Choices,
        row: int,
        others: Choices,
        other_row: int,
        sign: float,
    ) -> None:
        """Add an option's loads, or subtract them, by ``sign``.

        Without maxima, which do not add up.

        If the table has the same option in ``others``, shards that are there on the same rank stay
        as they are, and so do sums over all ranks.
        """
        stays = others.option[other_row] == option
        ids = sent = 0.0
        traffic = self._traffic(self.tables.kernel[option])
        self.kernel_changed[self.tables.kernel[option]] = 1
        features = self.tables.group[option] * NUM_FEATURES
        noted = self._note_powers(features)
        first = self.tables.first[option]
        for shard in range(self.tables.num_shards(option)):
            rank = self.rank_of(option, choices, row, shard)
            if stays and rank == self.rank_of(option, others, other_row, shard):
                continue
            size = self.tables.rows[first + shard]
            self.plan.note_changed(rank)
            self._look_up_more(traffic, rank, size, sign)
            self._send_more(features, rank, size, sign)
            ids += self.tables.features[size, IDS]
            sent += self.tables.features[size, FEATURES]
        self._check_powers(features, noted)
        if not stays:
            whole = self.plan.whole + self.tables.group[option] * NUM_SUMS
            ids *= sign / self.plan.num_ranks
            self._add(whole + SENT_IDS, ids)
            self._add(whole + SENT_FEATURES, sign * sent)

    def _add(self, row: int, amount: float) -> None:
        """Add to a number that is the same on all ranks."""
        self.plan.put(row, 0, self.plan.numbers[row, 0] + amount)

    def _traffic(self, kernel: int) -> int:
        """Return the first column of a kernel's traffic among a rank's loads.

        Features come before.
        """
        return self.plan.num_rank_features + kernel * NUM_TRAFFIC

    def _look_up_more(self, traffic: int, rank: int, size: int, sign: float) -> None:
        """Add a shard's traffic, or subtract it; 0 where the last table has left."""
        self.plan.save(rank, traffic)
        left = self.plan.loads[rank, traffic + LOOKUPS] + sign * self.tables.traffic[size, LOOKUPS]
        if sign < 0 and left < EMPTY:
            for column in range(NUM_TRAFFIC):
                self.plan.loads[rank, traffic + column] = 0.0
            return
        longest = self._most_with(rank, traffic + CHAIN, self.tables.traffic[size, CHAIN], sign)
        widest = self._most_with(rank, traffic + WIDEST, self.tables.traffic[size, WIDEST], sign)
        for column in range(NUM_TRAFFIC):
            self.plan.loads[rank, traffic + column] += sign * self.tables.traffic[size, column]
        self.plan.loads[rank, traffic + CHAIN] = longest
        self.plan.loads[rank, traffic + WIDEST] = widest

    def _most_with(self, rank: int, column: int, of_shard: float, sign: float) -> float:
        """Return a maximum with a shard more, or without it; negative: an upper bound."""
        most = self.plan.loads[rank, column]
        if sign > 0:
            return of_shard if of_shard >= abs(most) else most
        return -most if of_shard >= most > 0 else most

    def _send_more(self, features: int, rank: int, size: int, sign: float) -> None:
        """Add a shard's features, or subtract them; 0 where the last table has left."""
        self.plan.save(rank, features)
        column = features + FEATURES
        left = self.plan.loads[rank, column] + sign * self.tables.features[size, FEATURES]
        is_left = sign > 0 or left > SOME_LEFT
        for feature in range(NUM_FEATURES):
            if is_left and self.tables.features[size, feature] == 0.0:
                continue  # few tables have rows to fetch
            column = features + feature
            before, rate = self.plan.loads[rank, column], self.exchange_rates[column]
            more = sign * self.tables.features[size, feature]
            amount = before + more if is_left else 0.0
            if amount < -ROUNDED * more:  # nothing to fetch is no launch, either
                amount = 0.0
            self.plan.loads[rank, column] = amount
            change = power(rate * amount) - power(rate * before)
            self.plan.numbers[self.exchanged_row + column, 0] += change

    def _note_powers(self, features: int) -> int:
        """Note the powers of a group's exchanges, and return their place in the journal."""
        noted = self.plan.journal.length
        for feature in range(features, features + NUM_FEATURES):
            kept = self.exchanged_row + feature
            self.plan.put(kept, 0, self.plan.numbers[kept, 0])
        return noted

    def _check_powers(self, features: int, noted: int) -> None:
        """Recompute powers that are mostly rounding since they were noted."""
        for column in range(NUM_FEATURES):
            kept = self.exchanged_row + features + column
            if self.plan.numbers[kept, 0] < CANCELLED * self.plan.journal.values[noted + column]:
                self.plan.numbers[kept, 0] = self._exchanged(features + column)

    def _exchanged(self, feature: int) -> float:
        """Return the sum over ranks of the power of their exchange of a feature."""
        total = 0.0
        for rank in range(self.plan.num_ranks):
            total += power(self.exchange_rates[feature] * self.plan.loads[rank, feature])
        return total

    def _find_most(self, kernel: int, rank: int, number: int, column: int) -> None:
        """Compute a maximum over the tables of one kernel on a rank, so far only bounded.

        ``number`` is its place in ``MAXIMA``, ``column`` that in the traffic.
        """
        traffic, most, local = self._traffic(kernel), 0.0, self.plan.local_ranks
        bound = -self.plan.loads[rank, traffic + column]
        for table in range(self.tables.num_tables):
            option = self.choices.option[table]
            first, spread = self.tables.first[option], self.tables.spread[option]
            if self.tables.kernel[option] != kernel or self.tables.most[option, number] <= most:
                continue
            if spread == EVERYWHERE:
                most = max(most, self._of_shard(first + rank, column))
            elif spread == FIXED:
                for shard in range(first, self.tables.first[option + 1]):
                    if self.tables.at[shard] == rank:
                        most = max(most, self._of_shard(shard, column))
            else:
                width = 1 if spread == ON_RANKS else local
                for block in range(self.tables.blocks[option]):
                    if self.choices.ranks[table, block] // width == rank // width:
                        shard = first + block * width + rank % width
                        most = max(most, self._of_shard(shard, column))
            if most >= bound:
                break
        self.plan.save(rank, traffic)
        self.plan.loads[rank, traffic + column] = most

    def _of_shard(self, shard: int, column: int) -> float:
        """Return a column of a shard's traffic."""
        return self.tables.traffic[self.tables.rows[shard], column]

    def count(self, table: int, option: int, sign: float) -> None:
        """Add a table to its group, or remove it; the sums are 0 when the last one has left."""
        group = self.tables.group[option]
        whole, counts = self.plan.whole + group * NUM_SUMS, self.counts_row + group
        self._add(whole + TABLE_COLUMNS, sign * self.tables.table_columns[table])
        self._add(whole + NUM_TABLES, sign)
        self._add(counts, sign)
        if self.tables.replicated[option] != 0:  # whole numbers, which leave nothing
            of_kernels = self.plan.whole + self.num_groups * NUM_SUMS
            parameters = of_kernels + self.tables.kernel[option] * NUM_KERNEL_SUMS + PARAMETERS
            self._add(parameters, sign * self.tables.replicated[option])
        present = 1.0 if self.plan.numbers[counts, 0] > 0.5 else 0.0
        if present != self.plan.numbers[whole + PRESENT, 0]:
            self.plan.put(whole + PRESENT, 0, present)
        if present == 0:
            for row in range(whole, whole + NUM_SUMS):
                self.plan.put(row, 0, 0.0)

    def num_in(self, group: int) -> int:
        """Return the number of tables of a sharding group."""
        return int(self.plan.numbers[self.counts_row + group, 0] + 0.5)

    def present_groups(self) -> int:
        """Return the bits of the sharding groups that have tables."""
        bits = 0
        for group in range(self.num_groups):
            if self.plan.numbers[self.counts_row + group, 0] > 0.5:
                bits |= 1 << group
        return bits

    def look_up(self) -> None:
        """Recompute the lookup times of changed kernels on changed ranks."""
        total = self.plan.numbers[self.power_row, 0]
        for index in range(self.plan.num_changed):
            total -= power(self.work(self.plan.changed[index]))
        for kernel in range(self.num_kernels):
            if self.kernel_changed[kernel]:
                self._look_up(kernel)
                self.kernel_changed[kernel] = 0
        for index in range(self.plan.num_changed):
            total += power(self.work(self.plan.changed[index]))
        if total < CANCELLED * self.plan.numbers[self.power_row, 0]:
            total = 0.0
            for rank in range(self.plan.num_ranks):
                total += power(self.work(rank))
        self.plan.put(self.power_row, 0, total)

    def work(self, rank: int) -> float:
        """Return the seconds of a rank's lookups and of their launches."""
        return self.plan.numbers[self.load_row, rank] + self.plan.numbers[self.launches_row, rank]

    def _look_up(self, kernel: int) -> None:
        """Recompute one kernel's times, and its maxima where they are unknown and matter."""
        plan, first = self.plan, self._traffic(kernel)
        at, back = plan.forward + kernel, plan.backward + kernel
        for index in range(plan.num_changed):
            rank = plan.changed[index]
            if plan.loads[rank, first + WIDEST] < 0:
                self._find_most(kernel, rank, WIDTH, WIDEST)
            forward = plan.lookups.forward_seconds(rank, first)
            if plan.loads[rank, first + CHAIN] < 0 and not self._is_hidden(rank, first, forward):
                self._find_most(kernel, rank, BAG, CHAIN)
                forward = plan.lookups.forward_seconds(rank, first)
            backward = plan.lookups.backward_seconds(rank, first)
            more = forward - plan.numbers[at, rank] + backward - plan.numbers[back, rank]
            if (forward > 0) != (plan.numbers[at, rank] > 0):
                launches = self.launch_seconds[kernel] * (1.0 if forward > 0 else -1.0)
                before = plan.numbers[self.launches_row, rank]
                plan.put(self.launches_row, rank, before + launches)
            plan.put(self.load_row, rank, plan.numbers[self.load_row, rank] + more)
            plan.put(at, rank, forward)
            plan.put(back, rank, backward)

    def _is_hidden(self, rank: int, first: int, seconds: float) -> bool:
        """Return whether a kernel's time does not depend on the longest bag."""
        most = -self.plan.loads[rank, first + CHAIN]
        self.plan.loads[rank, first + CHAIN] = most
        longest = self.plan.lookups.forward_seconds(rank, first)
        self.plan.loads[rank, first + CHAIN] = -most
        return longest == seconds

    def rebuild(self) -> None:
        """Recompute all loads from the choices, without rounding, and note all ranks as changed."""
        plan = self.plan
        for row in range(self.end_row):
            if row < plan.steps or row >= self.load_row:
                for rank in range(plan.num_ranks):
                    plan.numbers[row, rank] = 0.0
        for rank in range(plan.num_ranks):
            plan.numbers[self.free_row, rank] = self.rooms[rank]
            plan.numbers[self.host_row, rank] = self.host_room
            for column in range(plan.load_width):
                plan.loads[rank, column] = 0.0
        for table in range(self.tables.num_tables):
            self._load_all(table, self.choices.option[table])
            self.count(table, self.choices.option[table], 1.0)
            plan.commit()
        for group in range(self.num_groups):
            self._sum_up(group)
        for rank in range(plan.num_ranks):
            self._exceed(max(0.0, -plan.numbers[self.free_row, rank]), self.rooms[rank])
            self._exceed(max(0.0, -plan.numbers[self.host_row, rank]), self.host_room)
            plan.commit()
        plan.note_all_changed()
        for kernel in range(self.num_kernels):
            self.kernel_changed[kernel] = 1
        self.look_up()
        plan.commit()

    def _load_all(self, table: int, option: int) -> None:
        """Add an option's loads and memory, not to be undone."""
        plan, tables = self.plan, self.tables
        traffic = self._traffic(tables.kernel[option])
        features, first = tables.group[option] * NUM_FEATURES, tables.first[option]
        for shard in range(tables.num_shards(option)):
            rank = self.rank_of(option, self.choices, table, shard)
            size = tables.rows[first + shard]
            longest = max(plan.loads[rank, traffic + CHAIN], tables.traffic[size, CHAIN])
            widest = max(plan.loads[rank, traffic + WIDEST], tables.traffic[size, WIDEST])
            for column in range(NUM_TRAFFIC):
                plan.loads[rank, traffic + column] += tables.traffic[size, column]
            plan.loads[rank, traffic + CHAIN] = longest
            plan.loads[rank, traffic + WIDEST] = widest
            for column in range(NUM_FEATURES):
                plan.loads[rank, features + column] += tables.features[size, column]
            plan.numbers[self.free_row, rank] -= tables.held[size, 0]
            if tables.held[size, 1] != 0:
                plan.numbers[self.host_row, plan.node_of[rank]] -= tables.held[size, 1]

    def _sum_up(self, group: int) -> None:
        """Recompute one group's sums over ranks, and its powers, without rounding."""
        plan, ids, sent = self.plan, 0.0, 0.0
        features = group * NUM_FEATURES
        whole = plan.whole + group * NUM_SUMS
        for rank in range(plan.num_ranks):
            ids += plan.loads[rank, features + IDS]
            sent += plan.loads[rank, features + FEATURES]
        plan.numbers[whole + SENT_IDS, 0] = ids / plan.num_ranks
        plan.numbers[whole + SENT_FEATURES, 0] = sent
        for feature in range(features, features + NUM_FEATURES):
            plan.numbers[self.exchanged_row + feature, 0] = self._exchanged(feature)


def power(value: float) -> float:
    """Return a number to the power of 2 to the ``BALANCE_ROOTS``."""
    for _ in range(BALANCE_ROOTS):
        value *= value
    return value
