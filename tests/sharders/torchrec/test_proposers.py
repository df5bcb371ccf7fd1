"""The order in which combinations are tried: of all, greedily twice, and of one type each."""

from made_candidates import candidate, candidates, whole

from costmodel.domain.plan import ShardingType
from sharders.torchrec.candidates import Candidates
from sharders.torchrec.proposers import MOST_COMBINATIONS, proposals

ROWS = ShardingType.ROW_WISE
NUM_TABLES = 20
NUM_GREEDY = NUM_TABLES + 1
"""Combinations that a greedy tries where every table has two candidates."""


def tried(found: Candidates) -> list[list[int]]:
    return [chosen.tolist() for chosen in proposals(found)]


def greedily(found: Candidates) -> list[list[int]]:
    """Return what is tried where there are too many combinations to try all."""
    filling = [[whole(1.0, 0), whole(2.0, 0)] for _ in range(NUM_TABLES - len(found.of_table))]
    many = candidates(*([found.found[n] for n in each] for each in found.of_table), *filling)
    assert MOST_COMBINATIONS < 2**NUM_TABLES
    return [chosen[: len(found.of_table)] for chosen in tried(many)]


def test_all_of_few_combinations_come_first_the_last_table_fastest() -> None:
    # by the slowest shard: table 0 is cheapest whole (1), then split (0)
    found = candidates([candidate(ROWS, 3.0, 1, rows=4), whole(2.0, 9)], [whole(1.0, 5)])
    assert tried(found)[:2] == [[1, 2], [0, 2]]
    two = candidates([whole(1.0, 1), whole(2.0, 1)], [whole(1.0, 1), whole(2.0, 1)])
    assert tried(two)[:4] == [[0, 2], [0, 3], [1, 2], [1, 3]]


def test_greedily_the_table_that_takes_most_goes_on() -> None:
    # table 1 takes 8, then 2; so table 0 with 5 is next
    found = candidates([whole(1.0, 5), whole(2.0, 5)], [whole(1.0, 8), whole(2.0, 2)])
    assert greedily(found)[:3] == [[0, 2], [0, 3], [1, 3]]


def test_the_largest_shard_counts_before_the_sum_and_host_memory_last() -> None:
    split = candidate(ROWS, 1.0, 4, rows=4)
    found = candidates([split, whole(2.0, 1)], [whole(1.0, 5), whole(2.0, 1)])
    assert greedily(found)[1] == [0, 3]  # 5 at once is more than 16 in four
    found = candidates([whole(1.0, 5), whole(2.0, 1)], [whole(1.0, 5, host=1), whole(2.0, 1)])
    assert greedily(found)[1] == [0, 3]


def test_of_tables_that_take_the_same_the_first_goes_on() -> None:
    found = candidates([whole(1.0, 5), whole(2.0, 1)], [whole(1.0, 5), whole(2.0, 1)])
    assert greedily(found)[1] == [1, 2]


def test_the_second_greedy_goes_by_the_sum_of_all_shards() -> None:
    # split: 3 a shard, 12 in all; whole: 5
    split = candidate(ROWS, 3.0, 7, rows=4)
    found = candidates([split, whole(5.0, 9)])
    assert greedily(found)[:2] == [[0], [1]]
    assert greedily(found)[NUM_GREEDY] == [1]


def test_at_last_one_type_for_all_tables_that_have_it() -> None:
    split, other = candidate(ROWS, 3.0, 7, rows=4), candidate(ROWS, 2.0, 7, rows=4)
    found = candidates([whole(9.0, 1), split], [other, whole(1.0, 1), whole(0.5, 1)])
    assert tried(found)[-2:] == [[0, 4], [1, 2]]  # the cheapest of each table
    assert tried(candidates([whole(1.0, 1)], [other]))[-1] == [0, 1]  # no type that all have
