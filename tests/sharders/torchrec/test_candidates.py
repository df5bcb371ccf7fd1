from made_candidates import candidate, candidates, whole

from costmodel.domain.plan import ShardingType


def test_candidates_that_tables_share_have_one_number() -> None:
    shared, own = whole(1.0, 5), whole(2.0, 6, host=7)
    found = candidates([shared], [own, shared])
    assert found.found == [shared, own]
    assert found.of_table == [[0], [1, 0]]


def test_all_shards_of_a_candidate_are_added_up() -> None:
    split = candidate(ShardingType.GRID_SHARD, 0.5, 3, blocks=2, rows=4, host=2)
    found = candidates([split, whole(1.0, 5)])
    assert found.load.tolist() == [4.0, 1.0]
    assert found.hbm.tolist() == [24, 5]
    assert found.host.tolist() == [16, 0]
