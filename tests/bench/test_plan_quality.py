from pathlib import Path

import pytest

from bench.draw_workloads import DATA
from bench.plan_quality import (
    INSTANCES,
    Instance,
    JobPart,
    bound,
    close_after,
    is_done,
    medians,
    merged,
    provenance,
    read,
    updated,
)
from costmodel.memory.rank_memory import usable_bytes, whole_table_bytes

needs_data = pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not there")


@pytest.mark.slow
@needs_data
def test_an_instance_is_always_the_same() -> None:
    assert Instance(5, 2).problem().workload == Instance(5, 2).problem().workload


@pytest.mark.slow
@needs_data
def test_tight_memory_is_as_tight_as_it_says() -> None:
    problem = INSTANCES["100x8"].problem()
    workload, topology = problem.workload, problem.topology
    needed = sum(whole_table_bytes(workload, topology, table) for table in workload.tables)
    assert needed / (8 * usable_bytes(workload, topology)) == pytest.approx(0.9)


@pytest.mark.slow
@needs_data
def test_bounds_are_worth_printing() -> None:
    assert bound(Instance(5, 2))["bound_s"] > 1e-4


def test_the_first_plan_within_a_percent_counts() -> None:
    row = {"trace": [(0.1, 5.0), (0.7, 3.02), (2.0, 3.0)]}
    assert close_after(row, 3.0) == 0.7
    assert close_after(row, 2.0) is None


def test_runs_done_again_replace_those_before() -> None:
    old = {
        "runs": [
            {"sharder": "a", "seconds": 1.0, "seed": 0},
            {"sharder": "b", "seconds": 1.0, "seed": 0},
        ]
    }
    new = {"sharder": "b", "seconds": 1.0, "seed": 0, "step_s": 2.0}
    record = merged({**old, "bound_s": 1.0}, new)
    assert record == {"runs": [old["runs"][0], new], "bound_s": 1.0}


def test_a_bench_goes_on_where_it_was_broken_off() -> None:
    commit = provenance()["commit"]
    record = {
        "runs": [
            {"sharder": "a", "seconds": 1.0, "seed": 0, "commit": commit},
            {"sharder": "b", "seconds": 1.0, "seed": 0, "commit": "0000000"},
        ]
    }
    first, second = ({"sharder": name, "seconds": 1.0, "seed": 0} for name in "ab")
    assert is_done(record, first, "none")
    assert is_done(record, second, "none")
    assert not is_done(record, {**first, "seconds": 10.0}, "none")
    assert not is_done(record, {**first, "seed": 1}, "none")
    assert is_done(record, first, "stale")
    assert not is_done(record, second, "stale")
    assert not is_done(record, first, "all")


def test_sharders_are_compared_by_the_median_of_their_seeds() -> None:
    runs = [
        {"sharder": "a", "seconds": 1.0, "seed": seed, "step_s": step}
        for seed, step in enumerate([3.0, 1.0, 2.0])
    ]
    others = [
        {"sharder": "a", "seconds": 9.0, "step_s": 0.5},
        {"sharder": "fails mostly", "seconds": 1.0, "step_s": 0.5},
        *({"sharder": "fails mostly", "seconds": 1.0, "seed": seed} for seed in (1, 2)),
    ]
    assert medians([*runs, *others], 1.0) == {"a": 2.0}


def test_parts_share_all_jobs() -> None:
    parts = [JobPart.parse("1/2"), JobPart.parse("2/2")]
    assert [[part.has(index) for part in parts].count(True) for index in range(5)] == [1] * 5


def test_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    updated(path, lambda results: results.update(a=1))
    assert updated(path, lambda results: results.update(b=2)) == {"a": 1, "b": 2}
    assert read(path) == {"a": 1, "b": 2}
