"""The command on a few points: alone, on two gloo ranks, interrupted and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from costmodel.domain.hardware import Device
from planner.calibration.records import read_measurements
from planner.files.profiles import load_profile

pytest.importorskip("torch")
pytest.importorskip("fbgemm_gpu")
pytestmark = pytest.mark.slow  # processes that measure

WORKER = Path(__file__).with_name("calibration_worker.py")
ROOT = WORKER.parents[3]


def start(folder: Path, *arguments: str, place: Sequence[str] = ()) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    environment |= dict(pair.split("=") for pair in place)
    return subprocess.Popen(  # noqa: S603 - our own interpreter and file
        [sys.executable, str(WORKER), "calibrate", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)  # 20 s of work, on a busy machine
    return process.returncode, out, err


def test_one_process_is_interrupted_goes_on_and_does_not_overwrite(tmp_path: Path) -> None:
    process = start(tmp_path, "-o", "mine.yaml", "--slowly")
    deadline = time.monotonic() + 300  # a minute is too little on a busy machine
    while not (tmp_path / "reached").exists() and time.monotonic() < deadline:
        assert process.poll() is None, finish(process)
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130, err
    assert "goes on from there" in err
    before = read_measurements(tmp_path / "mine.measurements.jsonl")
    assert before is not None
    assert len(before.records) == 19  # 8 streams, 8 products, 3 pieces of host work

    code, out, err = finish(start(tmp_path, "-o", "mine.yaml", "--json"))
    assert code == 0, err
    assert json.loads(out)["measured_now"] == 9
    profile = load_profile(tmp_path / "mine.yaml")
    assert profile.device is Device.CPU
    assert profile.name == "mine"
    assert (tmp_path / "mine.yaml").read_text().startswith("# Measured by `planner calibrate` on 1")

    code, _, err = finish(start(tmp_path, "-o", "mine.yaml"))
    assert code == 3
    assert "--force" in err


def test_two_ranks_share_the_points_and_meet_for_collectives(tmp_path: Path) -> None:
    port = f"MASTER_PORT={29_500 + os.getpid() % 400}"
    common = ("MASTER_ADDR=localhost", port, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2")
    ranks = [
        start(tmp_path, "-o", "two.yaml", place=(*common, f"RANK={rank}", f"LOCAL_RANK={rank}"))
        for rank in (0, 1)
    ]
    for code, out, err in map(finish, ranks):
        assert code == 0, err
        if out:
            assert "uneven all_to_all" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "two.measurements.jsonl",
        "two.yaml",
    ]
    profile = load_profile(tmp_path / "two.yaml")
    assert {curve.num_ranks for curve in profile.curves} == {2}
    assert len(profile.curves) == 4
    assert profile.gpus_per_node == 2
