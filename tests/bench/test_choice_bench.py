"""The bench of choices: its results are what it says of them."""

import json

import numpy as np
import pytest

from bench.choice import GPUS, RESULTS, mean_regrets, regrets
from planner.examples import example_problem, example_workload
from sharders.greedy.one_pass import LookupGreedy, Naive
from sharders.problem.sharding_problem import Budget


def test_regret_is_against_the_best_known_plan_of_every_draw() -> None:
    problem = example_problem(example_workload(6), world_size=2)
    rng = None
    naive, greedy = (
        sharder.shard(problem, Budget(), rng).plan  # type: ignore[arg-type]
        for sharder in (Naive(), LookupGreedy())
    )
    alone = regrets(problem, {"ours": naive}, (naive,))
    assert alone["ours"] == alone["best_expected"] == {"mean": 0.0, "p95": 0.0}
    both = regrets(problem, {"ours": naive, "point_optimal": greedy}, (naive, greedy))
    assert min(both["ours"]["mean"], both["point_optimal"]["mean"]) == both["best_expected"]["mean"]
    assert all(each["mean"] >= 0 for each in both.values())


def test_committed_results_are_of_these_workloads() -> None:
    records = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert list(records) == list(GPUS)
    means = mean_regrets(records)
    assert means["ours"] <= means["point_optimal"]
    assert means["ours"] == pytest.approx(
        np.mean([record["regret"]["ours"]["mean"] for record in records.values()]), abs=1e-4
    )
