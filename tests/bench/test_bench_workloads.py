"""That the workloads that results are of are what they are said to be."""

import pytest

from bench.plan_quality import WORKLOADS
from costmodel.base.units import GIB
from planner.files.workload_reading import load_workload

HEAVY = [f"heavy_{number:02}" for number in range(10)]


def test_the_mlperf_model_is_the_published_one() -> None:
    workload = load_workload(WORKLOADS / "dlrm_mlperf.yaml")
    assert len(workload.tables) == 26
    assert {table.embedding_dim for table in workload.tables} == {128}
    # 187.8 M rows of 512 bytes
    assert workload.weight_bytes == pytest.approx(187_767_399 * 512)


def test_dcnv2_looks_up_214_rows_per_sample() -> None:
    workload = load_workload(WORKLOADS / "dlrm_dcnv2.yaml")
    assert sum(table.pooling_factor for table in workload.tables) == 214


@pytest.mark.parametrize("name", [*HEAVY, "light_00"])
def test_a_task_is_drawn_as_in_the_paper(name: str) -> None:
    workload = load_workload(WORKLOADS / f"{name}.yaml")
    assert len(workload.tables) == 4 * 13
    assert workload.local_batch_size * 4 == 4096
    assert workload.weight_bytes <= 0.8 * 4 * 16 * GIB
    if name in HEAVY:
        assert min(table.pooling_factor for table in workload.tables) >= 20


def test_heavy_tasks_differ() -> None:
    drawn = {
        frozenset(table.name for table in load_workload(WORKLOADS / f"{name}.yaml").tables)
        for name in HEAVY
    }
    assert len(drawn) == len(HEAVY)


def test_the_open_tables_have_the_datasets_sums() -> None:
    tables = load_workload(WORKLOADS / "open_856.yaml").tables
    assert len(tables) == 856
    # 468 M lookups of 65,536 samples in tables_2021.csv
    assert sum(table.pooling_factor for table in tables) == pytest.approx(7142, rel=1e-3)
