"""The whole study on a CPU, with next to no time: every function that measures is walked."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from study_records import FAMILIES

for package in ("fbgemm_gpu", "sklearn", "torchrec"):
    pytest.importorskip(package)
pytestmark = pytest.mark.slow  # processes that measure

from bench.gpu_study.points import STUDY_KINDS, StudyFamily  # noqa: E402
from planner.calibration.records import read_measurements  # noqa: E402
from planner.files.profiles import load_profile  # noqa: E402

ROOT = Path(__file__).parents[3]


def start(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "bench.gpu_study", "--device", "cpu", "-o", str(folder)]
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False, timeout=1500,
    )  # fmt: skip
    logs = [path.read_text()[-2000:] for path in folder.glob("*.log")]
    assert done.returncode == 0, (done.stderr, logs)
    return done.stdout


def test_a_study_measures_every_family_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    text = start(folder, "--minutes", "0.3")
    assert "Models on groups held out" in text
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
    start(folder, "--minutes", "0", "--only", "kernels", "--only", "judge")
    assert (folder / "measurements.jsonl").read_bytes() == before  # nothing is measured again
