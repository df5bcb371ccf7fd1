import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from study_records import CPU, GPU, first_points, records
from test_study_grid import FACTS, MACHINE

pytest.importorskip("sklearn")

from bench.gpu_study import blind
from bench.gpu_study.grid import StepTarget, step_points
from bench.gpu_study.results import geomean_error
from bench.gpu_study.study import GpuStudy, judge, part_deadlines, write_predictions
from bench.gpu_study.supervise import MACHINE as MACHINE_FILE
from bench.gpu_study.supervise import MEASUREMENTS
from bench.gpu_study.tables import study_text
from costmodel.base.errors import InputError
from costmodel.base.units import GB
from planner.calibration.records import Failure, MeasurementJournal, Record
from planner.files.profiles import load_profile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of a simple machine: the first round, two steps, one failure."""
    kind: str = request.param
    made: Path = tmp_path_factory.mktemp(kind)
    target, machine = (CPU, replace(MACHINE, num_sms=1)) if kind == "cpu" else (GPU, MACHINE)
    (made / MACHINE_FILE).write_text(json.dumps(asdict(machine)))
    journal = MeasurementJournal(made / MEASUREMENTS, {**FACTS, "device": kind, "python": "3.12"})
    points = first_points(target)
    for record in records(points, noise=0.03):
        journal.append(record)
    journal.append(Failure(point=points[-1], reason="RuntimeError: no such kernel"))
    write_predictions(study(made, kind))
    one, two, *_ = step_points(StepTarget(on_cpu=kind == "cpu", memory_bytes=machine.memory_bytes))
    predicted = blind.prediction_of(one, made / blind.FILE)
    assert predicted is not None
    seconds = {"step": predicted.step / 1.1, "synchronized": predicted.step}
    facts = {"stages": {"optimizer": 1e-3}, "allocated_bytes": 1 * GB, "reserved_bytes": 2 * GB}
    for point, digest in ((one, predicted.sha256), (two, None)):
        journal.append(Record(point=point, seconds=seconds, facts={**facts, "prediction": digest}))
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """What the study's judge says of it."""
    return judge(folder)


def study(folder: Path, kind: str, **more: object) -> GpuStudy:
    return GpuStudy(folder=folder, kind=kind, minutes=10, num_ranks=1, **more)  # type: ignore[arg-type]


def test_a_blind_steps_error_counts_and_one_without_the_hash_does_not(
    found: dict[str, Any],
) -> None:
    assert [row["blind"] for row in found["steps"]] == [True, False]
    assert found["steps"][0]["error"] == pytest.approx(0.1)
    assert found["step_error"] == pytest.approx(0.1)
    assert geomean_error([]) is None


def test_every_family_is_judged_or_says_that_groups_are_too_few(
    found: dict[str, Any],
) -> None:
    rows = found["families"]
    assert {
        "embedding",
        "stream",
        "operator",
        "typed operator",
        "layer",
        "optimizer",
        "interaction",
    } <= set(rows)
    assert rows["stream"]["models"]["roofline"]["errors"]["mape"] < 0.1
    assert all(row["better"] in row["models"] for row in rows.values() if row["models"])


def test_the_tables_have_what_was_found(found: dict[str, Any]) -> None:
    text = study_text(found | {"notes": ["one rank"]})
    assert "| dlrm |" in text
    assert "+10.0%" in text
    assert "no such kernel" in text
    assert "one rank" in text


def test_the_profile_is_written_once_and_loads(folder: Path) -> None:
    profile = load_profile(folder / "profile.yaml")
    assert profile.name == folder.name
    before = (folder / "profile.yaml").read_bytes()
    write_predictions(study(folder, profile.device.value))
    assert (folder / "profile.yaml").read_bytes() == before


def test_nothing_measured_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing"):
        judge(tmp_path)


def test_parts_share_the_minutes() -> None:
    # collectives left out, kernels have 5 of 9 parts of ten minutes
    whole = part_deadlines(study(Path(), "cpu", parts=("kernels", "steps", "judge")), 100.0)
    assert whole == pytest.approx({"kernels": 100 + 600 * 5 / 9, "steps": 100 + 600})
    alone = part_deadlines(study(Path(), "cpu", parts=("steps",)), 0.0)
    assert alone == pytest.approx({"steps": 600.0})
