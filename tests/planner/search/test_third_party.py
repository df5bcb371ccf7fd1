"""A package of its own, found by its entry point: examples/own_sharder, installed without pip."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from planner.search.plugins import load_sharder, sharder_names
from planner.testing import SharderContract
from sharders.problem.sharding_problem import Sharder

SOURCE = Path(__file__).parents[3] / "examples" / "own_sharder"
TABLES = """
tables:
  - {name: a, num_embeddings: 100000, embedding_dim: 64, pooling_factor: 20}
  - {name: b, num_embeddings: 5000, embedding_dim: 32}
"""


def install(target: Path) -> None:
    """Do what an installer does with a pure package: its modules, and its metadata beside them."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = project["name"].replace("-", "_")
    shutil.copytree(SOURCE / module, target / module, ignore=shutil.ignore_patterns("__pycache__"))
    info = target / f"{module}-{project['version']}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    info.joinpath("entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    install(directory)
    return directory


@pytest.fixture(autouse=True)
def _installed(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(target))


class TestHeaviestFirst(SharderContract):
    def make_sharder(self) -> Sharder:
        return load_sharder("heaviest_first")


def test_it_is_listed_after_the_built_in_ones() -> None:
    assert "heaviest_first" in sharder_names()


def test_the_command_line_knows_it_by_name(target: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables.yaml"
    tables.write_text(TABLES, encoding="utf-8")
    command = ["plan", str(tables), "--gpus", "2", "--sharder", "heaviest_first", "--json"]
    paths = os.pathsep.join([str(target), str(SOURCE.parents[1])])
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-m", "planner", *command],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sharder"] == "heaviest_first"
