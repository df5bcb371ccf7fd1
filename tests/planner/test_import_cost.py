import subprocess
import sys
from pathlib import Path

import pytest

import planner

HEAVY = {"numpy", "rich", "yaml", "pydantic", "torch", "scipy"}


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def command(arguments: list[str]) -> str:
    """Return the code of a command that succeeds."""
    return f"""
from planner.cli import main
try:
    main({arguments})
except SystemExit as done:
    assert done.code == 0, done.code
"""


def test_importing_the_package_is_free() -> None:
    assert not loaded_by("import planner; planner.__version__") & HEAVY


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["plan", "--help"], []])
def test_asking_for_the_version_or_help_is_cheap(arguments: list[str]) -> None:
    assert not loaded_by(command(arguments)) & HEAVY


def test_planning_needs_no_scipy_nor_what_only_other_sharders_use(tmp_path: Path) -> None:
    workload = tmp_path / "one.yaml"
    workload.write_text("tables: [{name: a, num_embeddings: 1000, embedding_dim: 64}]")
    plan = ["plan", str(workload), "--gpus", "2", "--sharder", "lp", "-o", "-"]
    unneeded = {"torch", "scipy", "sklearn", "optuna", "pandas", "matplotlib"}
    assert not loaded_by(command(plan)) & unneeded


def test_every_public_name_can_be_loaded() -> None:
    for name in planner.__all__:
        assert getattr(planner, name) is not None
    assert set(planner.__all__) <= set(dir(planner))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="`plam`"):
        planner.plam  # noqa: B018
