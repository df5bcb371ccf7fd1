"""Where shards go: two hosts of two ranks."""

from math import inf

import numpy as np
import pytest
from made_candidates import candidate, candidates, whole

from costmodel.domain.plan import ShardingType
from sharders.torchrec.attempts import Memory
from sharders.torchrec.costs import RankCounts
from sharders.torchrec.partitioner import Partitioner
from sharders.torchrec.search_space import Candidate

FOUR = RankCounts(world_size=4, local_world_size=2)


def placed(
    *tables: Candidate, hbm: int = 100, host: int = 100, best: float = inf
) -> tuple[float, list[list[int]]]:
    """Return the rating of tables with one candidate each, and where they are."""
    found = candidates(*([table] for table in tables))
    partitioner = Partitioner(found, FOUR, Memory(hbm=hbm, host=host))
    chosen = np.array([number for (number,) in found.of_table])
    rating = partitioner.rating(chosen, best)
    return rating, [list(partitioner.places.get(table, ())) for table in range(len(tables))]


def test_what_takes_most_comes_first_and_goes_where_least_is() -> None:
    # by storage: the third, the first, the second; ties go to the first rank of each host
    rating, places = placed(whole(1.0, 5), whole(4.0, 3), whole(2.0, 9))
    assert places == [[2], [1], [0]]
    assert rating == 4.0


def test_a_rank_that_costs_less_takes_the_next_one() -> None:
    tables = [whole(cost, size) for cost, size in ((4.0, 9), (1.0, 8), (3.0, 7), (2.0, 6))]
    rating, places = placed(*tables, whole(2.0, 5))
    assert places == [[0], [2], [1], [3], [2]]
    assert rating == 4.0


def test_full_ranks_are_passed_over() -> None:
    tables = [whole(1.0, 60), whole(3.0, 50), whole(3.0, 50), whole(3.0, 50)]
    assert placed(*tables, whole(1.0, 45))[1][-1] == [2]  # rank 0 costs least, and has 40 left
    assert placed(whole(1.0, 101)) == (inf, [[]])


def test_host_memory_is_counted_by_rank() -> None:
    rating, places = placed(whole(1.0, 5, host=60), whole(0.1, 4, host=60), host=60)
    assert (rating, places) == (1.0, [[0], [2]])
    assert placed(whole(1.0, 5, host=61), host=60)[0] == inf


def test_uniform_shards_are_on_all_ranks_before_any_other() -> None:
    replica = candidate(ShardingType.DATA_PARALLEL, 1.0, 10, blocks=4)
    rows = candidate(ShardingType.ROW_WISE, 0.5, 20, rows=4)
    rating, places = placed(whole(2.0, 70), replica, rows)
    assert (rating, places) == (3.5, [[0], [], []])
    assert placed(whole(2.0, 71), replica, rows)[0] == inf
    assert placed(candidate(ShardingType.ROW_WISE, 0.5, 101, rows=4))[0] == inf


def test_column_blocks_go_where_least_is_one_by_one() -> None:
    columns = candidate(ShardingType.COLUMN_WISE, 1.0, 10, blocks=5)
    assert placed(columns) == (2.0, [[0, 2, 1, 3, 0]])


def test_rows_of_a_host_go_to_the_one_that_costs_least() -> None:
    rows = candidate(ShardingType.TABLE_ROW_WISE, 1.0, 10, rows=2)
    assert placed(whole(3.0, 50), rows) == (3.0, [[0], [2]])


def test_rows_of_a_host_go_to_another_where_a_rank_has_no_room() -> None:
    # rank 0, of the host that costs less, has 15 left, rank 2 has 20
    rows = candidate(ShardingType.TABLE_ROW_WISE, 1.0, 18, rows=2)
    tables = whole(1.0, 55), whole(2.0, 50), rows
    assert placed(*tables, hbm=70) == (3.0, [[0], [2], [2]])
    assert placed(*tables, hbm=67)[0] == inf


def test_ranks_compete_again_after_a_host_was_filled() -> None:
    rows = candidate(ShardingType.TABLE_ROW_WISE, 2.0, 30, rows=2)
    rating, places = placed(whole(1.0, 90), rows, whole(1.5, 9), whole(1.0, 8), whole(0.2, 7))
    # ranks 2 and 3 have the rows; 1, 0 and 1 follow
    assert places == [[0], [2], [1], [0], [1]]
    assert rating == 2.0


def test_columns_within_a_host() -> None:
    columns = candidate(ShardingType.TABLE_COLUMN_WISE, 1.0, 30, blocks=3)
    assert placed(whole(5.0, 95), columns) == (5.0, [[0], [2, 3, 2]])


def test_a_host_without_room_for_all_blocks_is_left_as_it_was() -> None:
    # 30 are left on ranks 0 and 1, but for two blocks of 10; then rank 0 still costs 1, with room
    # for 14
    columns = candidate(ShardingType.TABLE_COLUMN_WISE, 1.0, 10, blocks=3)
    tables = whole(1.0, 85), whole(6.0, 85), whole(1.0, 85), columns, whole(0.5, 14)
    assert placed(*tables) == (6.0, [[0], [2], [1], [3, 3, 3], [0]])


def test_a_grid_is_on_as_many_hosts_as_it_has_blocks() -> None:
    grid = candidate(ShardingType.GRID_SHARD, 1.0, 10, blocks=2, rows=2)
    assert placed(whole(3.0, 50), grid) == (4.0, [[0], [2, 0]])


def test_a_grid_of_more_blocks_than_hosts_has_several_on_one() -> None:
    # it takes 60, and comes first: 2 a rank on the first host, 1 on the second
    grid = candidate(ShardingType.GRID_SHARD, 1.0, 10, blocks=3, rows=2)
    assert placed(whole(3.0, 50), grid) == (4.0, [[2], [0, 2, 0]])


def test_a_grid_takes_the_next_hosts_where_it_must() -> None:
    grid = candidate(ShardingType.GRID_SHARD, 1.0, 20, rows=2)
    assert placed(whole(1.0, 90), whole(3.0, 70), grid) == (4.0, [[0], [2], [2]])
    assert placed(whole(1.0, 90), whole(3.0, 81), grid)[0] == inf


@pytest.mark.parametrize("best", [1.4, 3.9])
def test_what_cannot_be_better_is_given_up(best: float) -> None:
    # 1.5 on the mean, 4 on the slowest rank
    tables = whole(4.0, 9), whole(2.0, 8)
    assert placed(*tables, best=best)[0] == inf
    assert placed(*tables, best=4.1)[0] == 4.0
