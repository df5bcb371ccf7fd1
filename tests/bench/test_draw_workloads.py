import pytest
from needed import needs_data

from bench.draw_workloads import (
    HEAVY_POOLING_FACTOR,
    NUM_HEAVY_TASKS,
    WORKLOADS,
    workload_files,
)
from costmodel.base.units import GIB
from planner.files.workload_reading import load_workload

HEAVY = [f"heavy_{number:02}" for number in range(NUM_HEAVY_TASKS)]


@pytest.mark.slow
@needs_data
def test_committed_files_are_what_the_script_writes() -> None:
    written = dict(workload_files())
    assert {path.name for path in WORKLOADS.glob("*.yaml")} == set(written)
    for name, text in written.items():
        assert (WORKLOADS / name).read_text(encoding="utf-8") == text, name


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
        assert min(table.pooling_factor for table in workload.tables) >= HEAVY_POOLING_FACTOR


def test_heavy_tasks_differ() -> None:
    drawn = {
        frozenset(table.name for table in load_workload(WORKLOADS / f"{name}.yaml").tables)
        for name in HEAVY
    }
    assert len(drawn) == NUM_HEAVY_TASKS
