from pathlib import Path

import pytest
from command_runs import Command


def test_a_file_to_write_is_needed(run: Command) -> None:
    assert run("calibrate").code == 2
    assert run("calibrate", "-o", "-").code == 2
    assert run("calibrate", "--grid", "huge", "-o", "mine.yaml").code == 2
    for minutes in ("-1", "nan", "inf", "ten"):
        assert run("calibrate", "--minutes", minutes, "-o", "mine.yaml").code == 2


def test_a_profile_is_not_overwritten_by_accident(run: Command, directory: Path) -> None:
    (directory / "mine.yaml").write_text("precious")
    done = run("calibrate", "-o", "mine.yaml")
    assert done.code == 3
    assert "this file exists" in done.err
    assert "--force" in done.err
    assert (directory / "mine.yaml").read_text() == "precious"


def test_nothing_is_measured_that_could_not_be_written(run: Command) -> None:
    assert run("calibrate", "-o", "no/such/folder/mine.yaml").code == 3


def test_missing_packages_are_named(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "planner.environment.extras.find_spec", lambda name: None if name == "torch" else name
    )
    done = run("calibrate", "-o", "mine.yaml")
    assert done.code == 5
    assert "torch" in done.err


def test_a_cpu_takes_nothing_from_a_gpus_profile(run: Command) -> None:
    pytest.importorskip("fbgemm_gpu")
    flags = ("--device", "cpu", "--minutes", "0", "--hardware", "h100-sxm")
    done = run("calibrate", "-o", "mine.yaml", *flags)
    assert done.code == 3
    assert "`h100-sxm` is a profile of a GPU" in done.err


def test_what_a_cpu_cannot_do_is_refused(run: Command, directory: Path) -> None:
    pytest.importorskip("fbgemm_gpu")
    done = run("calibrate", "-o", "mine.yaml", "--device", "cpu", "--optimizer", "adam")
    assert done.code == 3
    assert "adam" in done.err
    assert not (directory / "mine.measurements.jsonl").exists()
