from dataclasses import replace
from pathlib import Path

import pytest

import planner
from costmodel.base.errors import InputError
from planner.examples import example_workload
from planner.files.plan_keeping import check_same_workload
from planner.files.workload_text import dump_workload


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    workload = replace(example_workload(4), name="first")
    planner.plan(workload, gpus=2, sharder="naive", baseline="none").save(path)
    return path


def test_where_there_is_no_plan_nothing_is_overwritten(tmp_path: Path) -> None:
    assert check_same_workload(tmp_path / "plan.json", "no such workload") == "no such workload"


def test_a_plan_of_the_same_workload_is_overwritten(kept: Path, tmp_path: Path) -> None:
    same = replace(example_workload(9), name="first")
    assert check_same_workload(kept, same) is same
    unnamed = example_workload(8)  # half of its tables are in the plan
    assert check_same_workload(kept, unnamed) is unnamed
    file = tmp_path / "tables.yaml"
    file.write_text(dump_workload(unnamed), encoding="utf-8")
    assert check_same_workload(kept, str(file)) == str(file)


def test_a_plan_of_another_workload_is_kept(kept: Path) -> None:
    with pytest.raises(InputError, match="another workload, `first` with 4 tables"):
        check_same_workload(kept, replace(example_workload(4), name="second"))
    with pytest.raises(InputError, match="not overwritten unasked"):
        check_same_workload(kept, example_workload(9))


def test_what_is_no_plan_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="no plan that can be read"):
        check_same_workload(path, example_workload(4))
