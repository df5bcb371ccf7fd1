"""The combinations of candidates that TorchRec tries, in order: its four default proposers.

References
----------
torchrec 1.9.2, distributed/planner/planners.py (``EmbeddingShardingPlanner``, which they are) and
proposers.py: ``GridSearchProposer``, ``GreedyProposer`` with ``use_depth`` and without,
``UniformProposer``. A combination that another proposer has tried is not partitioned again, which
would change nothing.

"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from costmodel.domain.plan import ShardingType
from sharders.torchrec.candidates import Candidates, Integers

MOST_COMBINATIONS = 10_000
"""``MAX_PROPOSALS``: all combinations are tried only if there are no more."""


def proposals(candidates: Candidates) -> Iterator[Integers]:
    """Yield combinations: the number of every table's candidate, in an array that is reused."""
    by_slowest = _sorted(candidates, lambda number: candidates.found[number].perf.total)
    yield from _grid(by_slowest)
    yield from _greedy(candidates, by_slowest)
    yield from _greedy(candidates, _sorted(candidates, _summed(candidates)))
    yield from _uniform(candidates, by_slowest)


def _summed(candidates: Candidates) -> Callable[[int], float]:
    """Return a function: the cost of all of a candidate's shards, added as TorchRec does."""

    def total(number: int) -> float:
        candidate = candidates.found[number]
        return sum([candidate.perf.total] * candidate.num_shards)

    return total


def _sorted(candidates: Candidates, score: Callable[[int], float]) -> Sequence[Sequence[int]]:
    """Return every table's candidates by score.

    Equal ones in the order in which they were offered.
    """
    scores = [score(number) for number in range(len(candidates.found))]
    return [sorted(numbers, key=scores.__getitem__) for numbers in candidates.of_table]


def _grid(tables: Sequence[Sequence[int]]) -> Iterator[Integers]:
    """Yield all combinations, if there are few; the last table's candidates change fastest."""
    if prod(map(len, tables)) <= MOST_COMBINATIONS:
        for combination in product(*tables):
            yield np.array(combination, dtype=np.int64)


def _greedy(candidates: Candidates, tables: Sequence[Sequence[int]]) -> Iterator[Integers]:
    """Yield the first candidates of all tables, then with the largest table's next one, and on.

    The largest is by HBM of its largest shard, of all shards, then by host memory likewise; of
    equal ones the first.
    """
    takes = [
        (largest.hbm, whole.hbm, largest.host, whole.host)
        for each in candidates.found
        for largest, whole in [(each.largest_storage, each.total_storage)]
    ]

    def entry(table: int, place: int) -> tuple[int, int, int, int, int, int]:
        largest, whole, largest_host, whole_host = takes[tables[table][place]]
        return -largest, -whole, -largest_host, -whole_host, table, place

    chosen = np.array([numbers[0] for numbers in tables], dtype=np.int64)
    yield chosen
    left = [entry(table, 0) for table, numbers in enumerate(tables) if len(numbers) > 1]
    heapq.heapify(left)
    while left:
        *_, table, place = left[0]
        chosen[table] = tables[table][place + 1]
        if place + 2 < len(tables[table]):
            heapq.heapreplace(left, entry(table, place + 1))
        else:
            heapq.heappop(left)
        yield chosen


def _uniform(candidates: Candidates, tables: Sequence[Sequence[int]]) -> Iterator[Integers]:
    """Yield the best candidates of one sharding type, for each type that all tables have."""
    kinds = [each.option.sharding_type for each in candidates.found]
    offered = dict.fromkeys(kinds[number] for table in candidates.of_table for number in table)
    for kind in offered:
        best = [_first_of(kind, numbers, kinds) for numbers in tables]
        if None not in best:
            yield np.array(best, dtype=np.int64)


def _first_of(
    kind: ShardingType, numbers: Sequence[int], kinds: Sequence[ShardingType]
) -> int | None:
    return next((number for number in numbers if kinds[number] is kind), None)
