import pytest

from bench.draw_workloads import DATA
from bench.plan_quality import INSTANCES, Instance, bound, close_after, merged
from costmodel.memory import usable_bytes, whole_table_bytes

needs_data = pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not there")


@needs_data
def test_an_instance_is_always_the_same() -> None:
    assert Instance(5, 2).problem().workload == Instance(5, 2).problem().workload


@needs_data
def test_tight_memory_is_as_tight_as_it_says() -> None:
    problem = INSTANCES["100x8"].problem()
    workload, topology = problem.workload, problem.topology
    needed = sum(whole_table_bytes(workload, topology, table) for table in workload.tables)
    assert needed / (8 * usable_bytes(workload, topology)) == pytest.approx(0.9)


@needs_data
def test_bounds_are_worth_printing() -> None:
    assert bound(Instance(5, 2))["bound_s"] > 1e-4


def test_the_first_plan_within_a_percent_counts() -> None:
    row = {"trace": [(0.1, 5.0), (0.7, 3.02), (2.0, 3.0)]}
    assert close_after(row, 3.0) == 0.7
    assert close_after(row, 2.0) is None


def test_runs_done_again_replace_those_before() -> None:
    old = {"runs": [{"sharder": "a", "seconds": 1.0}, {"sharder": "b", "seconds": 1.0}]}
    new = {"runs": [{"sharder": "b", "seconds": 1.0, "step_s": 2.0}], "bound_s": 1.0}
    record = merged(old, new)
    assert record["runs"] == [old["runs"][0], new["runs"][0]]
    assert record["bound_s"] == 1.0
