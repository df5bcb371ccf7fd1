from pathlib import Path

import pytest
from machines import machine, topology

from bench.cpu_plans import balanced, study_plans, work
from bench.cpu_study import WORKLOADS, workload
from costmodel.domain.hardware import Device
from costmodel.domain.plan import ShardingType
from costmodel.domain.validity import check_plan

TWO_CORES = topology(2, hardware=machine(device=Device.CPU))


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_a_dozen_plans_that_are_valid(name: str) -> None:
    made = workload(name)
    plans = study_plans(made, TWO_CORES)
    assert len(plans) >= 12
    for plan in plans.values():
        check_plan(made, TWO_CORES, plan)


@pytest.mark.parametrize("name", WORKLOADS)
def test_plans_are_of_all_kinds(name: str) -> None:
    plans = study_plans(workload(name), TWO_CORES)
    kinds = {table.sharding_type for plan in plans.values() for table in plan.tables}
    assert kinds == {
        ShardingType.DATA_PARALLEL,
        ShardingType.TABLE_WISE,
        ShardingType.ROW_WISE,
        ShardingType.COLUMN_WISE,
    }


def test_balanced_ranks_differ_by_less_than_the_heaviest_table() -> None:
    tables = workload("embedding").tables
    homes = balanced(tables)
    busy = [sum(work(t) for t in tables if homes[t.name] == rank) for rank in (0, 1)]
    assert abs(busy[0] - busy[1]) <= max(map(work, tables))


def test_the_same_workload_gets_the_same_plans() -> None:
    made = workload("dense")
    assert study_plans(made, TWO_CORES) == study_plans(made, TWO_CORES)


def test_workload_files_say_that_they_are_made_up() -> None:
    for name in WORKLOADS:
        path = Path(__file__).parents[2] / "bench" / "workloads" / "cpu" / f"{name}.yaml"
        assert "Made up" in path.read_text(encoding="utf-8")
