import json
from pathlib import Path

import pytest

from bench.gpu_study.blind import (
    FILE,
    append_predictions,
    file_hash,
    predict_step,
    prediction_of,
    read_predictions,
)
from bench.gpu_study.grid import StepTarget, step_points
from bench.gpu_study.models import MODELS, step_file, step_workload
from bench.gpu_study.points import StepPoint
from costmodel.base.errors import InputError
from costmodel.base.units import GB, GIB
from planner.files.profiles import load_profile
from planner.validation.checks import check_workload

POINT, OTHER, *_ = step_points(StepTarget(on_cpu=False, memory_bytes=40 * GIB))
H100 = load_profile("h100-sxm")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / FILE
    append_predictions(made, [predict_step(point, H100, "abc") for point in (POINT, OTHER)])
    return made


def test_a_prediction_has_time_stages_and_memory_and_is_found_again(path: Path) -> None:
    found = prediction_of(POINT, path)
    assert found is not None
    assert found.step > 0
    assert sum(found.stages.values()) > 0
    assert {"lookup_forward", "dense_backward", "optimizer"} <= set(found.stages)
    assert found.allocated_bytes >= 0.9 * POINT.table_bytes
    assert prediction_of(StepPoint(**{**_fields(POINT), "local_batch_size": 1}), path) is None


def test_the_first_prediction_stays(path: Path) -> None:
    before = path.read_text()
    append_predictions(path, [predict_step(POINT, load_profile("v100-nvlink"), "later")])
    assert path.read_text() == before


@pytest.mark.parametrize("change", ["changed", "left out"])
def test_a_prediction_that_was_tampered_with_is_noticed(path: Path, change: str) -> None:
    first, second = path.read_text().splitlines()
    if change == "changed":
        data = json.loads(first)
        first = json.dumps({**data, "step": data["step"] * 1.1})
        path.write_text(f"{first}\n{second}\n")
    else:
        path.write_text(f"{second}\n")
    with pytest.raises(InputError):
        read_predictions(path)


def test_no_file_has_no_predictions(tmp_path: Path) -> None:
    assert read_predictions(tmp_path / FILE) == []


def test_two_files_differ_by_their_hash(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    assert file_hash(tmp_path / "one") != file_hash(tmp_path / "two")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("on_cpu", [False, True])
def test_every_model_can_be_trained_and_fits(model: str, on_cpu: bool) -> None:  # noqa: FBT001
    point = StepPoint(model=model, local_batch_size=128, world_size=2, table_bytes=int(GB))
    workload = step_workload(point, on_cpu=on_cpu)
    check_workload(workload, model)
    states = [workload.optimizer.state_bytes_per_row(t.embedding_dim) for t in workload.tables]
    size = sum(
        table.num_embeddings * (table.row_bytes + state)
        for table, state in zip(workload.tables, states, strict=True)
    )
    assert size <= GB
    assert workload.local_batch_size == 128
    ranks = {shard.rank for t in step_file(point, on_cpu=on_cpu).plan.tables for shard in t.shards}
    assert ranks == {0, 1}


def test_a_cpu_is_predicted_by_phase() -> None:
    point = StepPoint(model="wide", local_batch_size=64, world_size=1, table_bytes=int(GB))
    found = predict_step(point, load_profile("cpu-gloo"), "abc")
    assert found.stages["lookup"] > 0


def _fields(point: StepPoint) -> dict[str, object]:
    return {name: getattr(point, name) for name in point.__slots__}
