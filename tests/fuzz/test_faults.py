"""Signals at random moments, full disks, two writers: what must hold after each."""

import os
from pathlib import Path

import pytest
from needed import needs_proc

from bench.robustness.faults import FAULTS, survived
from planner.files.disk import write_text

QUICK = {"disk full while a plan is written"}
NIGHTLY = {
    "SIGTERM of plan --jobs 2, at 5 moments",
    "SIGTERM of compare, at 3 moments",
    "kill -9 of calibrate, at 4 moments",
    "kill -9 of compare, at 3 moments",
    "kill -9 of validate, at 2 moments",
    "SIGTERM of validate, at 2 moments",
    "SIGTERM of calibrate, at 2 moments",
    "disk full while measurements are written",
}
"""They take a minute, or keep what others keep that are tried for every commit."""
TRAINS = ("calibrate", "validate", "journal")


def marked(name: str) -> object:
    if name in QUICK:
        return name
    return pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY else pytest.mark.slow)


@needs_proc
@pytest.mark.parametrize("name", [marked(name) for name in FAULTS])
def test_a_fault_is_survived(name: str) -> None:
    if any(word in name for word in TRAINS):
        pytest.importorskip("torchrec", reason="torchrec is not installed")
    assert survived(name) == "yes"


def test_content_is_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), fsync(file)))
    monkeypatch.setattr(
        Path, "replace", lambda path, target: (done.append("replace"), replace(path, target))
    )
    write_text(tmp_path / "plan.json", "{}")
    assert done == ["fsync", "replace"]
