"""Fitting tables into memory that they nearly fill, whatever the step time.

It is for where greedies run out of room. Tables are placed by decreasing size, each by the option
that takes least memory where it leaves least. For tables without room, room is made again and
again, by taking tables from a few ranks and placing them anew (ruin and recreate: Schrimpf,
Schneider, Stamm-Wilbrandt, Dueck, 2000).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import exp, inf
from random import Random
from typing import TypeAlias

import numpy as np

from costmodel.base.arrays import Mask, Places
from costmodel.base.ranges import first_least
from costmodel.domain.plan import ComputeKernel, ShardingPlan
from costmodel.kernels.lookup_shards import KERNELS
from sharders.problem.first_fit import place_by_bytes
from sharders.problem.groundwork import Groundwork
from sharders.problem.packed_ranks import Blocks, PackedRanks, PackedTable
from sharders.problem.room import ROUNDING, fits_alone

Size: TypeAlias = Callable[[int], float]
"""Returns the size by which tables are ordered, given a table's index."""
SPLITTING = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weights of the penalty on large shards: the square of a shard's share of a rank's memory, added
to its bytes. Splits take more memory, and the memory left decides which are worth it."""
MOST_ROUNDS = 4000
"""Number of rounds, about one to three CPU seconds."""
FEW_RANKS = (1, 2, 2, 3, 3, 4)
MOST_TAKEN = 16
"""Most ranks from which tables are taken in a round, and most of these tables."""
WIDE_TAKEN = 0.05
"""Share of the tables taken whose blocks lie on all ranks of a node, or on all: moving one changes
the room of all these."""
HEAT = 0.01
"""Share of a rank's memory by which a round may leave out more, with a probability of 1 / e."""
TOGETHER = 0.2
"""Share of a free rank's bytes that free memory counts for if it is on one rank."""
ROOMIEST = 0.2
"""Share of the rounds that place tables where they leave most."""
SPILLED = (0.97, 0.9, 0.7, 0.0)
"""Shares of all HBM that tables take when others are in host memory. At last all that may be there
are, as only a few ranks may have no room: those given to tables."""
WAY, ROUND = 17.0, 20.0
"""Moves of annealing that take as long as placing a table in one way, and as a round, at 30 tables
(where these are many, moves take longer)."""
AT_ONCE = 20
"""Rounds between two looks at the effort."""
_HOST = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)


def packed(ground: Groundwork) -> ShardingPlan | None:
    """Return a plan that fits in memory; None if none is found. It is searched for once.

    Tables stay whole first; then large ones are split; then tables go to host memory, if their
    kernels allow it, those first with most bytes for each that is looked up. If none of that places
    all tables, they are balanced by bytes, and the last packing is mended: at 389 tables on 128
    GPUs that finds nothing within 3 CPU seconds. Always the same for the same workload and
    topology.
    """
    return ground.once(_packed)


def _packed(ground: Groundwork) -> ShardingPlan | None:
    """Return the first plan that fits, by packing, balancing, then mending; None: none does."""
    packings = []
    for some in _allowed(ground):
        packing = _Packing(ground, some)
        if packing.fill():
            return packing.ranks.plan()
        packings.append(packing)
    balanced = place_by_bytes(ground)
    if balanced is not None:
        return balanced
    for packing in packings:
        if packing.mend():
            return packing.ranks.plan()
    return None


class PackingSearch:
    """A search for a plan of some options that fits in memory, in portions."""

    def __init__(self, ground: Groundwork, wanted: Mask) -> None:
        """Begin a search; a table without wanted options may take all."""
        self._steps: Iterator[tuple[float, ShardingPlan | None]] = self._searched(ground, wanted)
        self.is_over = False
        """Whether a plan was found, or nothing is left to try."""

    def go_on(self, effort: float, is_spent: Callable[[], bool]) -> ShardingPlan | None:
        """Return a plan that fits; None: the effort finds none, or the budget is spent.

        ``effort`` is in moves of annealing (``WAY``, ``ROUND``).
        """
        for spent, plan in self._steps:
            effort -= spent
            if plan is not None:
                self._steps = iter(())
                self.is_over = True
                return plan
            if effort <= 0 or is_spent():
                return None
        self.is_over = True
        return None

    def _searched(
        self, ground: Groundwork, wanted: Mask
    ) -> Iterator[tuple[float, ShardingPlan | None]]:
        """Yield the effort of every step, and the plan that it found; None: none."""
        packings = []
        for some in _allowed(ground, wanted):
            packing = _Packing(ground, some)
            packings.append(packing)
            for is_placed in packing.ways():
                yield WAY * len(packing.tables), packing.ranks.plan() if is_placed else None
        for _ in range(MOST_ROUNDS // AT_ONCE):
            for packing in packings:
                is_placed = packing.mend(AT_ONCE)
                yield ROUND * AT_ONCE, packing.ranks.plan() if is_placed else None


def on_hosts(ground: Groundwork) -> Mask:
    """Return which options have their weights in host memory."""
    hosted: Mask = np.isin(ground.arrays.codes.kernel, [KERNELS[kernel] for kernel in _HOST])
    return hosted


def _allowed(ground: Groundwork, wanted: Mask | None = None) -> Iterator[Mask]:
    """Yield the options to pack by: those in HBM alone, then with more and more in host memory.

    Only wanted ones (by default all) of a table that has any. Tables with most bytes for each that
    is looked up go to hosts first, as rows there are read slowly.
    """
    arrays = ground.arrays
    fits = arrays.of_each_table(fits_alone(ground))
    if wanted is not None:
        fits &= arrays.of_each_table(fits & wanted)
    hosted = on_hosts(ground)
    in_hbm = fits & arrays.of_each_table(fits & ~hosted)
    size = np.minimum.reduceat(np.where(in_hbm, arrays.total_bytes, np.inf), arrays.begins[:-1])
    if size.sum() <= ground.total_capacity * (1 + ROUNDING):
        yield in_hbm
    if not (fits & hosted).any():
        return
    on_host = fits & arrays.of_each_table(fits & hosted)
    least = np.minimum.reduceat(np.where(on_host, arrays.total_bytes, np.inf), arrays.begins[:-1])
    tables = ground.workload.tables
    read = np.array([table.pooling_factor * table.embedding_dim for table in tables])
    order = np.argsort(-size / read, kind="stable")
    held = size.sum() + np.cumsum((least - size)[order])  # with the first ones on hosts
    shares = -ground.total_capacity * np.array(SPILLED)
    for num_spilled in dict.fromkeys((1 + np.searchsorted(-held, shares)).tolist()):
        spilled = np.zeros(len(tables), dtype=bool)
        spilled[order[:num_spilled]] = True
        yield np.where(spilled[arrays.codes.table], on_host, in_hbm)


class _Packing:
    """A search for a place for every table."""

    def __init__(self, ground: Groundwork, allowed: Mask) -> None:
        arrays = ground.arrays
        self.capacity = ground.capacity
        self.bytes: list[float] = arrays.total_bytes.tolist()
        self.tables = range(len(ground.workload.tables))
        self.given = [bool(table.ranks) for table in ground.workload.tables]
        self.orders = _orders(ground, allowed)
        """The options to try, by strength of ``SPLITTING`` and table."""
        self.ranks = PackedRanks(ground)
        smallest = np.array([options[0] for options in self.orders[0]])
        self.least: list[float] = arrays.total_bytes[smallest].tolist()
        self.largest: list[float] = arrays.largest_bytes[smallest].tolist()
        self._clear()
        self._present = inf
        """Bytes without room (``_excess``) at present."""
        self.rng = Random(0)  # noqa: S311 - any will do, as long as it is the same

    def fill(self) -> bool:
        """Place all tables by size, in several ways, and return whether there is room."""
        return any(self.ways())

    def ways(self) -> Iterator[bool]:
        """Place all tables by size, in one way after the other; yield whether there is room.

        Ways that leave most come early: at 950 tables on 128 GPUs, of which many are small, one
        places all, and the tightest ones never do (19 ways, 0.37 CPU seconds). At last the way is
        kept that leaves out fewest bytes.
        """
        best, kept = inf, list(self.ranks.at)
        for strength, size, roomiest in product(
            range(len(SPLITTING)), (self.largest, self.least), (False, True)
        ):
            self._clear()
            self.ranks.roomiest = roomiest
            self._place_missing(strength, size.__getitem__)
            yield not self.missing
            if self._excess() < best:
                best, kept = self._excess(), list(self.ranks.at)
        self._become(kept)
        self._present = self._excess()

    def _clear(self) -> None:
        """Remove all tables."""
        self.ranks.clear()
        self.spare = float(self.ranks.free.sum() - sum(self.least))
        """Bytes that options may take in all beyond the smallest ones."""
        self.missing = list(self.tables)
        """Tables that found no room."""

    def mend(self, num_rounds: int = MOST_ROUNDS) -> bool:
        """Remove tables and place them anew, and return whether all have found room."""
        heat = HEAT * self.capacity
        for _ in range(num_rounds):
            before = self._ruin()
            strength = self.rng.randrange(len(SPLITTING))
            self.ranks.roomiest = self.rng.random() < ROOMIEST
            self._place_missing(strength, self._sizes_drawn())
            if not self.missing:
                return True
            excess = self._excess()
            worse = excess - self._present
            if worse <= 0 or self.rng.random() < exp(-worse / heat):
                self._present = excess
            else:
                self._become(before)
        return False

    def _become(self, wanted: Sequence[PackedTable | None]) -> None:
        """Put tables in wanted places, and remove those without."""
        changed = [table for table in self.tables if self.ranks.at[table] is not wanted[table]]
        for table in changed:
            if self.ranks.at[table] is not None:
                self._take(table)
        for table in changed:
            placed = wanted[table]
            if placed is not None:
                self._put(table, placed)
        self.missing = [table for table in self.tables if wanted[table] is None]

    def _put(self, table: int, placed: PackedTable) -> None:
        self.ranks.put(table, placed)
        self.spare -= self.bytes[placed.option] - self.least[table]

    def _take(self, table: int) -> None:
        placed = self.ranks.take(table)
        self.spare += self.bytes[placed.option] - self.least[table]

    def _excess(self) -> float:
        """Return the bytes that found no room; fewer if free bytes are on one rank."""
        free = self.ranks.free
        together = float(free @ free) / self.capacity
        return sum(self.least[table] for table in self.missing) - TOGETHER * together

    def _place_missing(self, strength: int, size: Size) -> None:
        """Place missing tables, the largest first; those with given ranks before others."""
        self.missing.sort(key=lambda table: (not self.given[table], -size(table)))
        self.missing = [each for each in self.missing if not self._place(each, strength)]

    def _place(self, table: int, strength: int) -> bool:
        for option in self.orders[strength][table]:
            if self._affords(table, option):
                places = self.ranks.places(option)
                if places is not None:
                    self._put(table, PackedTable(option, places))
                    return True
        return False

    def _affords(self, table: int, option: int) -> bool:
        """Return whether enough memory is left in all for an option larger than the smallest."""
        return self.bytes[option] - self.least[table] <= self.spare + 1

    def _sizes_drawn(self) -> Size:
        """Return drawn sizes by which missing tables are ordered: mostly near their bytes."""
        least = self.rng.choice((1.0, 1.0, 1.0, 0.5, 0.0))
        drawn = {each: self.largest[each] * self.rng.uniform(least, 1.0) for each in self.missing}
        return drawn.__getitem__

    def _ruin(self) -> list[PackedTable | None]:
        """Remove tables from a few ranks, and return the places of all before."""
        before = list(self.ranks.at)
        if self.rng.random() < 0.5:
            self._make_room()
            return before
        number = min(self.ranks.num_ranks, self.rng.choice(FEW_RANKS))
        few = self.rng.sample(range(self.ranks.num_ranks), number)
        if self.rng.random() < 0.3:
            few[0] = int(np.argmax(self.ranks.free))
        taken = self._movable(few)
        if len(taken) > MOST_TAKEN:
            taken = self.rng.sample(taken, MOST_TAKEN)
        for table in taken:
            self._take(table)
        self.missing += taken
        return before

    def _movable(self, ranks: Sequence[int]) -> list[int]:
        """Return tables with blocks on some ranks; few of those that lie on many."""
        tables = sorted(set().union(*(self.ranks.tables_on[rank] for rank in ranks)))
        return [
            table
            for table in tables
            if self.ranks.is_narrow(table) or self.rng.random() < WIDE_TAKEN
        ]

    def _make_room(self) -> None:
        """Remove tables from some ranks until a missing one fits, and put it there."""
        table, ranks = self.rng.choice(self.missing), self.ranks
        option = self.orders[self.rng.randrange(len(SPLITTING))][table][0]
        blocks = ranks.blocks(option)
        places = self._places_drawn(blocks)
        own = ranks.ranks_of(blocks, places)
        needed = np.zeros(ranks.num_ranks)
        np.add.at(needed, own, np.resize(blocks.size, len(own)))
        others = self._movable(own.tolist())
        self.rng.shuffle(others)
        if self.rng.random() < 0.5:
            others.sort(key=lambda other: self.least[other] * self.rng.uniform(0.5, 1.0))
        full = needed > ranks.free
        for other in others:
            if not full.any():
                break
            if full[ranks.ranks_of_table(other)].any():
                self._take(other)
                self.missing.append(other)
                full = needed > ranks.free
        fits = (needed <= ranks.free).all() and ranks.hosts_fit(blocks, places)
        if fits and self._affords(table, option):
            self._put(table, PackedTable(option, places))
            self.missing.remove(table)

    def _places_drawn(self, blocks: Blocks) -> Places:
        """Return drawn places for blocks, preferring those with much free."""
        number = self.ranks.num_ranks // blocks.width
        free = self.ranks.free.reshape(number, -1).sum(axis=1).tolist()
        some, even = list(range(number)), self.rng.random() < 0.5
        if blocks.one_node:
            node = self.rng.randrange(number // self.ranks.local)
            some = some[node * self.ranks.local :][: self.ranks.local]
        keys = {each: (1.0 if even else free[each]) * self.rng.random() for each in some}
        return np.array(sorted(some, key=keys.__getitem__)[-blocks.count :])


def _orders(ground: Groundwork, allowed: Mask) -> list[list[list[int]]]:
    """Return the options of every table from the best to the worst, for every strength.

    Only those that are best for some strength.
    """
    arrays = ground.arrays
    uneven = arrays.over_shards(arrays.held[0] ** 2) / ground.capacity
    costs = [np.where(allowed, arrays.total_bytes + each * uneven, inf) for each in SPLITTING]
    firsts = np.array([first_least(cost, arrays.begins[:-1]) for cost in costs]).T.tolist()
    some = [list(dict.fromkeys(own)) for own in firsts]
    flat = [option for own in some for option in own]
    orders = []
    for cost in costs:
        of_option = dict(zip(flat, cost[flat].tolist(), strict=True))
        orders.append([sorted(own, key=of_option.__getitem__) for own in some])
    return orders
