"""Processes that die, hang, or fail before they begin."""

import json
import sys
import time
from pathlib import Path

import pytest
from study_records import records

from bench.gpu_study.points import STUDY_KINDS, TypedOperatorPoint
from bench.gpu_study.supervise import ATTEMPT, MEASUREMENTS, Supervisor, WorkerFailedError
from costmodel.domain.workload import DataType
from planner.calibration.points import point_data
from planner.calibration.records import MeasurementJournal, read_measurements

POINT = TypedOperatorPoint(operator="relu", num_elements=16, data_type=DataType.FP32)
OTHER = TypedOperatorPoint(operator="relu", num_elements=32, data_type=DataType.FP32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    MeasurementJournal(tmp_path / MEASUREMENTS, {"device": "cpu"}).append(records([OTHER])[0])
    return tmp_path


def command(folder: Path, first: str, later: str = "pass") -> list[str]:
    """A process that begins a point and does something; the next does something else."""
    attempt = {"family": POINT.family, "point": point_data(POINT), "since": time.time()}
    code = f"""
import os, sys, time
from pathlib import Path
folder = Path({str(folder)!r})
if (folder / "later").exists():
    {later}
else:
    (folder / "later").touch()
    (folder / {ATTEMPT!r}).write_text({json.dumps(attempt)!r})
    {first}
"""
    return [sys.executable, "-c", code]


def supervisor(folder: Path, patience: float = 600.0) -> Supervisor:
    return Supervisor(folder=folder, kind="cuda", deadline=0.0, patience=patience)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("os.kill(os.getpid(), 11)", "exit code -11: it said nothing"),
        ("sys.exit('an illegal memory access')", "exit code 1: an illegal memory access"),
    ],
)
def test_a_point_that_ends_its_process_costs_itself(folder: Path, first: str, reason: str) -> None:
    assert supervisor(folder).run("kernels", command(folder, first)) == 2
    found = read_measurements(folder / MEASUREMENTS, STUDY_KINDS)
    assert found is not None
    assert [(each.point, each.reason) for each in found.failures] == [(POINT, reason)]
    assert len(found.records) == 1


def test_a_point_that_never_ends_is_ended(folder: Path) -> None:
    assert supervisor(folder, 0.5).run("kernels", command(folder, "time.sleep(600)")) == 2
    found = read_measurements(folder / MEASUREMENTS, STUDY_KINDS)
    assert found is not None
    assert [each.reason for each in found.failures] == ["took too long"]


def test_a_process_that_never_begins_is_an_error(folder: Path) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('no module named torch')"]
    with pytest.raises(WorkerFailedError, match="no module named torch"):
        supervisor(folder).run("kernels", broken)
