"""The bench of choices: its workloads are what it draws, its results what it says of them."""

import json

import numpy as np
import pytest

from bench.choice import FOLDER, MODELS, RESULTS, drawn, mean_regrets, regrets, text_of
from planner.examples import example_problem, example_workload
from planner.files.workload import load_workload
from sharders.greedy.one_pass import LookupGreedy, Naive
from sharders.problem.sharding_problem import Budget


@pytest.mark.parametrize("name", MODELS)
def test_workloads_are_what_is_drawn(name: str) -> None:
    file = FOLDER / f"{name}.yaml"
    assert file.read_text(encoding="utf-8") == text_of(name)
    assert load_workload(file) == drawn(name)


def test_workloads_are_small_and_middle_ones() -> None:
    assert len(MODELS) == 10
    assert {model.num_tables for model in MODELS.values()} >= {5, 100}
    assert {model.local_batch_size for model in MODELS.values()} >= {256, 16384}
    assert max(model.gpus for model in MODELS.values()) <= 8


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
    assert list(records) == list(MODELS)
    means = mean_regrets(records)
    assert means["ours"] <= means["point_optimal"]
    assert means["ours"] == pytest.approx(
        np.mean([record["regret"]["ours"]["mean"] for record in records.values()]), abs=1e-4
    )
