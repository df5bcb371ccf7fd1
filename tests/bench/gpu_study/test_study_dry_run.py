"""The whole study on a CPU, with next to no time: every function that measures is walked."""

import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
from study_records import FAMILIES

for package in ("fbgemm_gpu", "sklearn", "torchrec"):
    pytest.importorskip(package)
pytestmark = pytest.mark.nightly  # more than a minute of processes that measure

from bench.gpu_study.__main__ import main  # noqa: E402
from bench.gpu_study.points import STUDY_KINDS, StudyFamily  # noqa: E402
from planner.calibration.records import read_measurements  # noqa: E402
from planner.files.profiles import load_profile  # noqa: E402


def test_a_study_measures_every_family_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*arguments: str) -> str:
        command = ("gpu_study", "--device", "cpu", "-o", str(folder), "--minutes", "0", *arguments)
        monkeypatch.setattr(sys, "argv", list(command))
        main()
        return capsys.readouterr().out

    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # in processes that measure
    folder = tmp_path / "study"
    assert "Models on groups held out" in start()
    found = read_measurements(folder / "measurements.jsonl", STUDY_KINDS)
    assert found is not None
    assert {record.point.family for record in found.records} >= {*FAMILIES, StudyFamily.STEP}
    assert [failure.reason for failure in found.failures if failure.point.family == "step"] == []
    results = json.loads((folder / "study.json").read_text())
    assert all(row["blind"] for row in results["steps"])
    assert load_profile(folder / "profile.yaml").device.value == "cpu"
    together = read_measurements(folder / "collectives.jsonl")
    assert len(os.sched_getaffinity(0)) == 1 or together is not None

    with tarfile.open(folder / "study.tar.xz") as packed:
        assert {"measurements.jsonl", "predictions.jsonl", "profile.yaml"} <= {*packed.getnames()}

    before = (folder / "measurements.jsonl").read_bytes()
    start("--only", "kernels")
    assert (folder / "measurements.jsonl").read_bytes() == before  # nothing is measured again
