"""What a sweep of 200 points by every backend has shown."""

import json

from bench.sweep_backends import NUM_POINTS, OUT, table


def test_no_point_was_lost_with_a_worker_and_none_planned_twice() -> None:
    kept = json.loads(OUT.read_text())
    assert kept["points"] == NUM_POINTS == 200
    assert {"loky, two processes", "dask, one of two killed"} <= set(kept["rows"])
    for row in kept["rows"].values():
        assert (row["code"], row["done"], row["twice"]) == (0, NUM_POINTS, 0)
        assert row["plan_files"] == NUM_POINTS
    assert table(kept).count("200 of 200") == len(kept["rows"])
