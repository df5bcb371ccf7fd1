"""Every example runs, as a user runs it, in an empty folder; pages run some, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.documented import ROOT, blocks

SHOWN = {"plan_by_api.py": "ms a step", "read_timeline.py": "waiting for peers"}
"""What scripts are about, and print."""
ON_PAGES = {
    **dict.fromkeys(
        ("torchrec_dry_run.py", "torchrec_estimator.py", "torchrec_planner.py"),
        "docs/how-to/torchrec.md",
    ),
    "plan_groups.py": "docs/how-to/many-nodes.md",
}
"""Scripts that the commands of a page run (``tests/docs``)."""
NOTEBOOK = "what_would_help.ipynb"


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603 - our own interpreter and files
        [sys.executable, *command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_and_shows_what_it_is_about(name: str, tmp_path: Path) -> None:
    assert SHOWN[name] in run(tmp_path, str(ROOT / "examples" / name))


@pytest.mark.nightly
def test_the_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("altair", reason="the extra `page` is not installed")
    for name in (NOTEBOOK, "tables.yaml"):
        tmp_path.joinpath(name).write_bytes((ROOT / "examples" / name).read_bytes())
    run(tmp_path, "-c", "from nbclient.cli import main; main()", NOTEBOOK, "--output", "ran.ipynb")
    ran = nbformat.read(tmp_path / "ran.ipynb", as_version=4)
    code = [cell for cell in ran.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert any("image/png" in output.get("data", {}) for output in code[-1].outputs)
    shown = [output.get("data", {}) for cell in code for output in cell.outputs]
    assert any("<table>" in data.get("text/html", "") for data in shown)
    assert any("altair-viz" in data.get("text/html", "") for data in shown)


def test_no_script_is_left_out() -> None:
    assert {*SHOWN, *ON_PAGES} == {path.name for path in (ROOT / "examples").glob("*.py")}
    for name, page in ON_PAGES.items():
        runs = [block.body for block in blocks((ROOT / page).read_text("utf-8"))]
        assert any(f"python {name}" in body for body in runs)


def test_the_notebook_is_kept_without_what_it_printed() -> None:
    nbformat = pytest.importorskip("nbformat")
    kept = nbformat.read(ROOT / "examples" / NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in kept.cells)
