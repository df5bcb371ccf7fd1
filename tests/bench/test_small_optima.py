"""The optimum of problems so small that all plans are timed."""

import json
from itertools import product

from bench.small_optima import (
    INSTANCES,
    RANKS,
    RESULTS,
    SAME,
    Small,
    optimum,
    table,
)
from costmodel.bounds.lower_bound import step_time_bound
from sharders.problem.options import make_plan, make_sharding


def test_names_of_alike_ranks_keep_nodes_together() -> None:
    assert len(set(SAME)) == 8
    for names in SAME:
        assert sorted(names) == list(range(RANKS))
        assert names[0] // 2 == names[1] // 2


def test_plans_alike_are_timed_once_and_none_is_forgotten() -> None:
    problem = Small(pooling_factors=(40, 7), embedding_dims=(64, 128)).problem()
    best, timed = optimum(problem)
    tables, topology = problem.workload.tables, problem.topology
    every = [
        [
            make_sharding(each, topology, option, ranks)
            for option in problem.options[each.name]
            for ranks in {0: [()], 1: [(rank,) for rank in range(RANKS)]}[option.num_ranks]
            if not option.sharding_type.within_node or ranks[0] % 2 == 0
        ]
        for each in tables
    ]
    times = [problem.objective.step_time(make_plan(topology, pair)) for pair in product(*every)]
    # of 49 pairs: row_wise twice; with a node or a rank 2 each way; and by whether they share
    # a rank or node: ranks 3, nodes 2, a rank and a node 2 each way
    assert len(times) == 49
    assert timed == 1 + 4 + 3 + 2 + 4
    assert best == min(times)
    assert step_time_bound(problem.workload, topology) <= best


def test_what_is_kept_lies_between_bound_and_plan() -> None:
    kept = json.loads(RESULTS.read_text())
    assert set(kept["rows"]) == set(INSTANCES)
    for row in kept["rows"].values():
        assert row["bound_s"] <= row["optimum_s"] <= row["ours_s"] * (1 + 1e-9)
    assert table(kept).count("%") == 2 * len(INSTANCES)
