"""Drawn problems are always the same, of every kind; results are kept run by run."""

import json
from math import inf
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

from bench.kept import read
from bench.known_plans import choices_of, plan_of, read_plans, step_today, write_plans
from bench.population import HELD_OUT, POPULATION, TUNING, Nature, PopulationInstance
from bench.search_population import (
    BEST,
    RESULTS,
    known_runs,
    note_best,
    percentile,
    sample,
    seed_ratios,
    step_at,
    table,
    write_run,
)
from costmodel.domain.plan import ComputeKernel
from planner.files.json_text import dump_json
from sharders.greedy.one_pass import Naive
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import Budget


def run(instance: str, step: float, *, seed: int = 0, seconds: float = 10.0) -> dict[str, Any]:
    trace = [[0.2, 4 * step], [2.0, 1.5 * step], [9.0, step]]
    return {
        "instance": instance, "sharder": "auto", "seconds": seconds, "seed": seed,
        "commit": "c", "step_s": step, "trace": trace,
    }  # fmt: skip


def test_a_problem_is_drawn_from_its_name_alone() -> None:
    first, again = (PopulationInstance("tuning-5").problem() for _ in range(2))
    assert first.workload == again.workload
    assert first.topology == again.topology
    assert PopulationInstance("tuning-6").problem().workload != first.workload


def test_what_is_judged_by_is_not_what_is_tuned_by() -> None:
    assert len(TUNING) >= 60
    assert len(HELD_OUT) == 30
    assert len(POPULATION) == len({instance.name for instance in POPULATION.values()})


@pytest.mark.parametrize("nature", list(Nature))
def test_problems_of_every_nature_are_what_they_are_called(nature: Nature) -> None:
    posed = PopulationInstance("one", nature, 30, "h100-sxm", 2).problem()
    check_room(posed.groundwork)
    tables = posed.workload.tables
    if nature is Nature.TIERS:
        assert all(ComputeKernel.FUSED_UVM in table.compute_kernels for table in tables)
    elif nature is Nature.CONSTRAINED:
        assert any(table.sharding_types for table in tables)
    elif nature is Nature.SHARED:
        assert max(table.num_features for table in tables) == 12
    elif nature is Nature.UNEVEN:
        assert max(t.pooling_factor for t in tables) > 5 * median(t.pooling_factor for t in tables)


def test_steps_at_a_time_are_those_of_plans_found_before() -> None:
    known = run("a", 2.0)
    assert step_at(known, 0.1) == float("inf")
    assert step_at(known, 3.0) == 3.0
    assert step_at(known, 10.0) == 2.0


def test_steps_are_compared_with_the_best_known() -> None:
    best = {"a": {"step_s": 2.0}, "b": {"step_s": 1.0}}
    runs = [run("a", 2.0), run("a", 2.2, seed=1), run("b", 1.1)]
    ratios = seed_ratios(runs, best, 10.0)
    assert ratios["a"] == pytest.approx([1.0, 1.1])
    assert ratios["b"] == pytest.approx([1.1])
    assert seed_ratios(runs, best, 60.0) == {}
    assert seed_ratios([run("c", inf)], {"c": {"step_s": inf}}, 10.0) == {}
    assert percentile([3.0, 1.0, 2.0], 0.9) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_the_table_is_of_every_sharders_last_commit_on_held_out_instances() -> None:
    best = {"held-out-1": {"step_s": 2.0}, "tuning-1": {"step_s": 1.0}}
    old = {**run("held-out-1", 9.0), "commit": "old"}
    other = {**run("held-out-1", 3.0), "commit": "old", "sharder": "beam"}
    runs = [old, other, run("held-out-1", 2.2), run("tuning-1", 9.0)]
    lines = table(runs, best).splitlines()
    assert lines[2].startswith("| auto | 1 | 1 | 1 | 340.00% |")  # the plan of 0.2 s, 4 x 2.2
    assert lines[4].startswith("| auto | 10 | 1 | 1 | 10.00% |")
    assert lines[4].endswith("| c |")
    assert lines[5].startswith("| beam | 10 | 1 | 1 | 50.00% |")
    assert lines[5].endswith("| old |")


def test_the_best_plan_known_is_only_ever_replaced_by_a_better_one(tmp_path: Path) -> None:
    files, nothing = (tmp_path / "best.json", tmp_path / "plans.json.gz"), (None, inf)
    plans = {step: [["row_wise", "fused", step]] for step in (2.0, 1.5, 1.8)}
    for step, plan in plans.items():  # two runs end after others that began when they did
        note_best(run("a", step), plan, nothing, *files)
    assert (read(files[0])["a"]["step_s"], read_plans(files[1])["a"]) == (1.5, plans[1.5])
    note_best(run("a", 1.8), plans[1.8], (plans[1.5], 1.6), *files)  # today's model times it so
    assert (read(files[0])["a"]["step_s"], read_plans(files[1])["a"]) == (1.6, plans[1.5])
    note_best(run("a", 1.8), plans[1.8], (plans[1.5], inf), *files)  # and finds that it lacks room
    assert (read(files[0])["a"]["step_s"], read_plans(files[1])["a"]) == (1.8, plans[1.8])


def test_a_plan_kept_is_the_plan_and_takes_its_step_by_the_model_of_today(tmp_path: Path) -> None:
    for name in ("tuning-19", "tuning-3"):  # some tables fixed to ranks; host memory and caches
        problem = PopulationInstance(name).problem()
        plan = Naive().shard(problem, Budget(), Random(0)).plan
        write_plans({"a": choices_of(problem, plan)}, tmp_path / "plans.json.gz")
        kept = read_plans(tmp_path / "plans.json.gz")["a"]
        assert plan_of(problem, kept) == plan
        assert step_today(problem, kept) == problem.objective.step_time(plan)
        full = [["data_parallel", "dense", None]] * len(kept)
        assert step_today(problem, full) == step_today(problem, None) == float("inf")


def test_what_is_kept_of_the_best_can_be_written_again() -> None:
    assert json.loads(dump_json(read(BEST))) == read(BEST)


def test_runs_are_kept_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for seed in (0, 1):
        write_run(run("a", 2.0, seed=seed), path)
    assert [each["seed"] for each in known_runs(path)] == [0, 1]


def test_committed_runs_are_of_instances_that_there_are() -> None:
    assert {each["instance"] for each in known_runs(RESULTS)} <= set(POPULATION)


def test_a_sample_is_spread_over_all() -> None:
    assert sample([str(n) for n in range(10)], 3) == ["0", "3", "6"]
    assert sample(["a", "b"], None) == ["a", "b"]
