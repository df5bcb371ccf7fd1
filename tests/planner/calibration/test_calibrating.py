"""The command on a few points: alone, on two gloo ranks, interrupted and resumed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.forked_python import python_command
from costmodel.domain.hardware import Device
from planner.calibration.records import read_measurements
from planner.files.profiles import load_profile
from planner.validation.launch import RANK_ENVIRONMENT

pytest.importorskip("torch")
pytest.importorskip("fbgemm_gpu")
pytestmark = pytest.mark.slow  # processes that measure

WORKER = Path(__file__).with_name("calibration_worker.py")
ROOT = WORKER.parents[3]


def start(
    folder: Path,
    *arguments: str,
    place: Sequence[str] = (),
    command: Sequence[str] = (str(WORKER),),
    anew: bool = False,
) -> subprocess.Popen[str]:
    """Start a rank; ``anew``: one that must first start itself again, to keep tensors' memory."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    environment |= {} if anew else RANK_ENVIRONMENT
    environment |= dict(pair.split("=") for pair in place)
    return subprocess.Popen(  # noqa: S603 - our own interpreter and file
        [*python_command(), *command, "calibrate", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)  # 20 s of work, where memory is slow 300
    return process.returncode, out, err


def test_one_process_is_interrupted_goes_on_and_does_not_overwrite(tmp_path: Path) -> None:
    process = start(tmp_path, "-o", "mine.yaml", "--slowly", anew=True)
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
    assert len(before.records) == 22  # 8 streams, 3 operators, 8 products, 3 pieces of host

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


def two_ranks(folder: Path, *arguments: str, **more: Sequence[str]) -> list[subprocess.Popen[str]]:
    port = f"MASTER_PORT={29_500 + os.getpid() % 400}"
    common = ("MASTER_ADDR=localhost", port, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2")
    return [
        start(folder, *arguments, place=(*common, f"RANK={rank}", f"LOCAL_RANK={rank}"), **more)
        for rank in (0, 1)
    ]


def test_two_ranks_share_the_points_and_meet_for_collectives(tmp_path: Path) -> None:
    ranks = two_ranks(tmp_path, "-o", "two.yaml")
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


@pytest.mark.nightly
def test_the_full_grid_makes_a_profile_whenever_the_time_is_up_and_goes_on(tmp_path: Path) -> None:
    command = ("-o", "full.yaml", "--device", "cpu", "--grid", "full", "--minutes", "0", "--json")
    for code, _, err in map(finish, two_ranks(tmp_path, *command, command=("-m", "planner"))):
        assert code == 0, err
    profile = load_profile(tmp_path / "full.yaml")
    assert len(profile.curves) == 4
    assert all(family.num_points for family in profile.families.values())
    again = two_ranks(tmp_path, *command, "--force", command=("-m", "planner"))
    for code, out, err in map(finish, again):
        assert code == 0, err
        assert not out or json.loads(out)["measured_now"] == 0
