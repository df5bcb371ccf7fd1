"""Placing one combination of candidates as TorchRec does, and its rating of the plan.

Uniform shards come first, in the order of the tables; the others by decreasing storage, each shard
on the rank with the least cost so far that has room. Costs of a rank are summed component by
component, those of the rating shard by shard: rounding decides ties, so both are kept.

References
----------
torchrec 1.9.2, distributed/planner/partitioners.py (``GreedyPerfPartitioner``), perf_models.py
(``NoopPerfModel``).

"""

import heapq
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from math import inf
from operator import add

import numpy as np

from costmodel.domain.plan import ShardingType
from sharders.torchrec.attempts import Memory
from sharders.torchrec.candidates import Candidates, Integers
from sharders.torchrec.costs import Perf, RankCounts
from sharders.torchrec.search_space import Candidate

_ROUNDING = 1e-9
"""Share by which a rank's cost, summed in another order, may differ from the rating's."""


class Partitioner:
    """Places combinations, one after another; ``places`` are those of the last one."""

    def __init__(self, candidates: Candidates, ranks: RankCounts, memory: Memory) -> None:
        self._candidates, self._ranks, self._memory = candidates, ranks, memory
        self.places: dict[int, Sequence[int]] = {}
        """By table, the rank of every column block that has a choice; the first one of its host if
        rows are split."""
        self.tries = 0
        """Number of combinations placed, successfully or not."""

    def rating(self, chosen: Integers, best: float) -> float:
        """Return the cost of the slowest rank.

        Infinite if it is above ``best`` or there is no room.
        """
        candidates, limit = self._candidates, best * (1 + _ROUNDING)
        num_ranks = self._ranks.world_size
        if candidates.load[chosen].sum() > limit * num_ranks:
            return inf
        hbm, host = candidates.hbm[chosen], candidates.host[chosen]
        if hbm.sum() > self._memory.hbm * num_ranks or host.sum() > self._memory.host * num_ranks:
            return inf
        self.tries += 1
        order = np.lexsort((-host, -hbm))  # of equals the first comes first
        placed = self._placed([candidates.found[n] for n in chosen], order.tolist(), limit)
        return self._rating(chosen) if placed else inf

    def _placed(self, tables: Sequence[Candidate], order: Iterable[int], limit: float) -> bool:
        """Place every table's candidate, and return whether there was room."""
        self.places = {}
        on_all = [each for each in tables if each.option.sharding_type.everywhere]
        loads = FilledRanks.uniform(on_all, self._ranks, self._memory)
        if loads is None or loads.slowest > limit:
            return False
        for table in order:
            candidate = tables[table]
            kind = candidate.option.sharding_type
            if kind.everywhere:
                continue
            if kind is ShardingType.GRID_SHARD:
                places = loads.on_hosts(candidate)
            elif kind in {ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE}:
                places = loads.on_host(candidate)
            else:
                places = loads.on_ranks(candidate)
            if places is None or loads.slowest > limit:
                return False
            self.places[table] = places
        return True

    def _rating(self, chosen: Integers) -> float:
        """Return the cost of the slowest rank, shards added up in the order of the tables."""
        costs = np.zeros(self._ranks.world_size)
        for table, number in enumerate(chosen):
            candidate = self._candidates.found[number]
            total = candidate.perf.total
            if table not in self.places:
                costs += total
                continue
            width = candidate.num_rows
            for place in self.places[table]:
                costs[place : place + width] += total
        return float(costs.max())


class FilledRanks:
    """Costs of ranks so far, and the memory that they have left."""

    def __init__(self, ranks: RankCounts, perf: Perf, hbm: list[int], host: list[int]) -> None:
        self._local, self._num_ranks = ranks.local_world_size, ranks.world_size
        self._hbm, self._host = hbm, host
        self._perfs = [perf] * self._num_ranks
        """Cost of each rank by component."""
        self._costs = [perf.total] * self._num_ranks
        """Total cost of each rank."""
        self._host_costs = [0.0] * (self._num_ranks // self._local)
        """of all ranks of a host, and which of these are to be added up again."""
        self._changed_hosts = set(range(len(self._host_costs)))
        self.slowest = perf.total
        """Cost of the costliest rank."""
        self._heap = [self._entry(rank) for rank in range(self._num_ranks)]
        heapq.heapify(self._heap)

    @classmethod
    def uniform(
        cls, tables: Sequence[Candidate], ranks: RankCounts, memory: Memory
    ) -> "FilledRanks | None":
        """Return ranks filled with tables that have a shard on each; None: they have no room."""
        num_ranks = ranks.world_size
        perf = Perf(0.0, 0.0, 0.0, 0.0)
        # where the bytes of a rank differ from those of the rank before it
        steps = [memory.hbm] + [0] * num_ranks, [memory.host] + [0] * num_ranks
        for candidate in tables:
            perf = perf.plus(candidate.perf)
            rank = 0
            for storage, repeats in candidate.storages:
                last = rank + repeats * (candidate.num_blocks)
                for step, size in zip(steps, storage, strict=True):
                    step[rank] -= size
                    step[last] += size
                rank = last
        hbm, host = (list(accumulate(step[:num_ranks])) for step in steps)
        return None if min(hbm) < 0 or min(host) < 0 else cls(ranks, perf, hbm, host)

    def on_ranks(self, candidate: Candidate) -> Sequence[int] | None:
        """Put every block on the cheapest rank with room, and return the ranks; None: no room.

        Of ranks that cost the same the first ones of hosts come first.
        """
        heap, costs, places = self._heap, self._costs, []
        ((hbm, host), _) = candidate.storages[0]
        for _ in range(candidate.num_blocks):
            full = []
            while heap:
                cost, _, rank = heap[0]
                if cost != costs[rank]:
                    heapq.heappop(heap)  # it has changed since
                elif hbm <= self._hbm[rank] and host <= self._host[rank]:
                    break
                else:
                    full.append(heapq.heappop(heap))
            else:
                return None
            self._put(candidate, rank, 0)
            heapq.heapreplace(heap, self._entry(rank))
            for entry in full:
                heapq.heappush(heap, entry)
            places.append(rank)
        return places

    def on_host(self, candidate: Candidate) -> Sequence[int] | None:
        """Put a table on the cheapest host with room, and return its ranks; None: no room."""
        split = candidate.option.sharding_type.splits_rows
        total = candidate.total_storage
        for first in self._hosts():
            ranks = range(first, first + self._local)
            free = [sum(some[first : first + self._local]) for some in (self._hbm, self._host)]
            if total.hbm > free[0] or total.host > free[1]:
                continue
            before = self._kept(ranks)
            places = self._rows(candidate, [first]) if split else self._columns(candidate, ranks)
            if places is not None:
                self._changed(ranks)
                return places
            self._restore(ranks, before)
        return None

    def on_hosts(self, candidate: Candidate) -> Sequence[int] | None:
        """Put every block on a host of its own, and return the ranks; None: no room.

        Neighbouring hosts are taken by their cost. If there are more blocks than hosts, hosts have
        several in turn.
        """
        hosts, blocks = self._hosts(), candidate.num_blocks
        ranks = range(self._num_ranks)
        before = self._kept(ranks)
        for shift in range(max(1, len(hosts) - blocks + 1)):
            some = [hosts[(shift + block) % len(hosts)] for block in range(blocks)]
            if self._rows(candidate, some) is not None:
                self._changed(ranks)
                return some
            self._restore(ranks, before)
        return None

    def _rows(self, candidate: Candidate, hosts: Sequence[int]) -> Sequence[int] | None:
        """Put the row shards of every block on the ranks of its host, in order."""
        for first in hosts:
            for row in range(self._local):
                hbm, host = candidate.storage_of(row)
                if hbm > self._hbm[first + row] or host > self._host[first + row]:
                    return None
                self._put(candidate, first + row, row)
        return hosts

    def _columns(self, candidate: Candidate, ranks: range) -> Sequence[int] | None:
        """Put every block on the cheapest of some ranks that has room."""
        ((hbm, host), _) = candidate.storages[0]
        places = []
        for _ in range(candidate.num_blocks):
            roomy = [r for r in ranks if hbm <= self._hbm[r] and host <= self._host[r]]
            if not roomy:
                return None
            places.append(min(roomy, key=self._costs.__getitem__))
            self._put(candidate, places[-1], 0)
        return places

    def _hosts(self) -> list[int]:
        """Return the first ranks of hosts by the cost of their ranks.

        Of equal ones the first first.
        """
        for host in self._changed_hosts:
            first = host * self._local
            self._host_costs[host] = reduce(add, self._costs[first : first + self._local])
        self._changed_hosts.clear()
        order = sorted(range(len(self._host_costs)), key=self._host_costs.__getitem__)
        return [host * self._local for host in order]

    def _put(self, candidate: Candidate, rank: int, row: int) -> None:
        """Add a shard of a candidate to a rank."""
        hbm, host = candidate.storage_of(row)
        self._hbm[rank] -= hbm
        self._host[rank] -= host
        perf = self._perfs[rank] = self._perfs[rank].plus(candidate.perf)
        cost = self._costs[rank] = perf.total
        self._changed_hosts.add(rank // self._local)
        self.slowest = max(self.slowest, cost)

    def _entry(self, rank: int) -> tuple[float, int, int]:
        """Return (cost, place in its host, rank), by which ranks are ordered."""
        return self._costs[rank], rank % self._local, rank

    def _changed(self, ranks: Iterable[int]) -> None:
        """Bring the order of ranks up to date after ranks were filled."""
        for rank in ranks:
            heapq.heappush(self._heap, self._entry(rank))

    def _kept(self, ranks: range) -> tuple[list[int], list[int], list[Perf], list[float], float]:
        """Return the memory and costs of some ranks, to be restored."""
        some = slice(ranks.start, ranks.stop)
        lists = self._hbm[some], self._host[some], self._perfs[some], self._costs[some]
        return *lists, self.slowest

    def _restore(
        self, ranks: range, before: tuple[list[int], list[int], list[Perf], list[float], float]
    ) -> None:
        """Set what some ranks hold back to what it was."""
        some = slice(ranks.start, ranks.stop)
        self._hbm[some], self._host[some], self._perfs[some], self._costs[some] = before[:4]
        self.slowest = before[4]
