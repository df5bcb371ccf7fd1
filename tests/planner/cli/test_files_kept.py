"""What a command reads it does not write over, however it was named."""

from pathlib import Path

import numpy as np
import pytest
from command_runs import Command

from planner.files.plans import load_plan_file
from planner.files.profiles import dump_profile, load_profile

QUICK = ("--gpus", "2", "--sharder", "naive", "--baseline", "none")


@pytest.fixture
def profile(directory: Path) -> Path:
    path = directory / "mine.yaml"
    path.write_text(dump_profile(load_profile("h100-sxm")))
    return path


def test_recorded_ids_stay(run: Command, directory: Path) -> None:
    np.savez(directory / "ids.npz", indices=np.arange(40), offsets=np.arange(0, 41, 4))
    recorded = (directory / "ids.npz").read_bytes()
    (directory / "link.yaml").symlink_to("ids.npz")
    for name in ("ids.npz", "./ids.npz", "link.yaml"):
        done = run("inspect", "ids.npz", "-o", name)
        assert done.code == 2
        assert "would overwrite what was recorded, `ids.npz`" in done.err
    assert (directory / "ids.npz").read_bytes() == recorded


@pytest.mark.parametrize("named_by", ["PLANNER_HARDWARE", "planner.toml"])
@pytest.mark.parametrize(
    "command", [("plan", "tables.yaml", "-o"), ("sweep", "tables.yaml", "--csv")]
)
def test_a_profile_that_settings_name_stays(
    run: Command,
    profile: Path,
    monkeypatch: pytest.MonkeyPatch,
    named_by: str,
    command: tuple[str, ...],
) -> None:
    if named_by == "planner.toml":
        Path(named_by).write_text('hardware = "mine.yaml"')
    else:
        monkeypatch.setenv(named_by, "mine.yaml")
    text = profile.read_text()
    quick = QUICK if command[0] == "plan" else QUICK[:4]
    done = run(*command, "./mine.yaml", *quick)
    assert done.code == 2
    assert f"which {named_by} names, too, and would overwrite it" in done.err
    assert profile.read_text() == text
    assert run(*command, "other", *quick).code == 0


def test_a_sweep_does_not_write_over_its_own_file(run: Command) -> None:
    grid = ("sweep", "tables.yaml", *QUICK[:4], "-o", "kept")
    assert run(*grid).code == 0
    text = Path("kept/sweep.json").read_text()
    done = run(*grid, "--csv", "kept/sweep.json")
    assert done.code == 2
    assert "'--csv' names `kept/sweep.json`, which -o names, too" in done.err
    assert Path("kept/sweep.json").read_text() == text


def test_what_is_wrong_with_a_plan_names_its_file(run: Command) -> None:
    assert run("plan", "tables.yaml", *QUICK, "-o", "good.json").code == 0
    good = Path("good.json").read_text()

    def said(old: str, new: str) -> str:
        assert old in good
        Path("bad.json").write_text(good.replace(old, new, 1))
        done = run("compare", "good.json", "bad.json")
        assert done.code in {3, 4}
        return done.err.splitlines()[0]

    name = '"hardware": "' + load_plan_file("good.json").hardware + '"'
    assert said(name, '"hardware": "nonesuch"').startswith("error: bad.json: unknown hardware")
    assert said('"num_columns": 32', '"num_columns": 16').startswith("error: bad.json")
    assert said('"schema_version": 2', '"schema_version": "2"').startswith(
        'error: schema_version is "2", and this planner reads 1 and 2'
    )
    Path("bad.json").write_text(good.replace("5000000", "5000000000").replace("5_000_000", ""))
    done = run("simulate", "bad.json")
    assert done.code == 4
    assert done.err.startswith("error: bad.json: the plan does not fit: ")
    assert done.err.splitlines()[-1] == "  hint: plan again"


def test_more_gpus_in_a_node_than_the_machine_has_are_told(run: Command) -> None:
    assert run("plan", "tables.yaml", *QUICK, "-o", "good.json").code == 0
    text = Path("good.json").read_text()
    for name in ("world_size", "local_world_size"):
        text = text.replace(f'"{name}": 2', f'"{name}": 16')
    Path("wide.json").write_text(text)
    done = run("simulate", "wide.json")
    assert done.code == 0
    assert "a node of this plan has 16 GPUs, and one of " in done.out + done.err
