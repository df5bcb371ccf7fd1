"""Compiled code is used where it is there, and made in the background where it is not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner import compiling
from planner.examples import example_problem, example_workload

LARGE = example_problem(example_workload(60, seed=0), world_size=4)
SMALL = example_problem(example_workload(4, seed=0), world_size=2)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """Forget what this machine has compiled, and note processes instead of starting them."""
    calls: list[Any] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(compiling.VARIABLE, compiling.BACKGROUND)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: calls.append(command))
    monkeypatch.setattr(compiling, "load", lambda: calls.append("loaded"))
    compiling.directory.cache_clear()
    yield calls
    compiling.directory.cache_clear()


def test_the_first_search_has_it_compiled_and_does_not_wait(started: list[Any]) -> None:
    assert not compiling.is_compiled(LARGE)
    assert not compiling.is_compiled(LARGE)
    assert len(started) == 1


def test_later_searches_use_it(started: list[Any]) -> None:
    compiling._marker().parent.mkdir(parents=True)
    compiling._marker().touch()
    assert compiling.is_compiled(LARGE)
    assert started == ["loaded"]


def test_small_problems_do_without(started: list[Any]) -> None:
    assert not compiling.is_compiled(SMALL)
    assert not started


def test_more_ranks_than_it_can_number_do_without(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MOST_RANKS", 3)
    assert not compiling.is_compiled(LARGE)
    assert not started


def test_it_can_be_switched_off(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiling.VARIABLE, compiling.OFF)
    assert not compiling.is_compiled(LARGE)
    assert not started


def test_waiting_compiles_at_once(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bool] = []
    monkeypatch.setenv(compiling.VARIABLE, compiling.WAIT)
    monkeypatch.setattr(compiling, "compile_now", lambda: done.append(True))
    assert compiling.is_compiled(LARGE)
    assert done == [True]
    assert not started


def test_nothing_is_started_where_nothing_can_be_noted(started: list[Any], tmp_path: Path) -> None:
    (tmp_path / "planner").write_text("a file, not a folder")
    assert not compiling.is_compiled(LARGE)
    assert not started


def test_what_was_compiled_of_the_oldest_versions_is_forgotten(
    started: list[Any], tmp_path: Path
) -> None:
    for age in range(compiling.VERSIONS + 2):
        made = tmp_path / "planner" / f"{compiling.PREFIX}{age}"
        made.mkdir(parents=True)
        (made / "core.nbc").touch()
        os.utime(made, (1e9 - age, 1e9 - age))
    compiling._forget_oldest()
    left = {each.name for each in (tmp_path / "planner").iterdir()}
    assert left == {f"{compiling.PREFIX}{age}" for age in range(compiling.VERSIONS)}
    assert not started


def test_each_environment_and_each_version_keeps_its_own(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = {compiling.directory()}
    monkeypatch.setattr(sys, "prefix", "another environment")
    compiling.directory.cache_clear()
    seen.add(compiling.directory())
    source = tmp_path / "state.py"
    monkeypatch.setattr(compiling, "_sources", lambda: [source])
    for text in ("one", "another"):
        source.write_text(text)
        compiling.directory.cache_clear()
        seen.add(compiling.directory())
    assert len(seen) == 4
    assert not started


def test_only_what_the_search_compiles_is_kept_there(tmp_path: Path) -> None:
    script = f"""
import os
os.environ["XDG_CACHE_HOME"] = {str(tmp_path)!r}
from numba.core import config
from planner import compiling
compiling.directory().mkdir(parents=True)
compiling.load()
from costmodel.execution.native import curve_seconds
curve_seconds(1.0, *2 * (__import__("numpy").arange(2.0),))
assert config.CACHE_DIR != str(compiling.directory())
print(*(each.name.split(".")[0] for each in compiling.directory().rglob("*.nbc")))
"""
    done = subprocess.run(  # noqa: S603 -- our own script
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["collectives"]


def test_a_search_finds_the_same_plan_without_numba_as_with_it() -> None:
    script = """
import sys
from random import Random
from planner import compiling
from planner.examples import example_problem, example_workload
from sharders.annealing import Annealing
from sharders.native.engine import ENTRIES
from sharders.problem import Budget

def found():
    problem = example_problem(example_workload(20, seed=2), world_size=4)
    budget = Budget(max_evaluations=2000, compiled=lambda: True)
    return Annealing().shard(problem, budget, Random(3))

compiling.load()
without = found()
assert "numba" not in sys.modules
compiling._keep()
for entry in ENTRIES:
    entry.code = None
assert found() == without
"""
    subprocess.run([sys.executable, "-m", "planner.compiling"], check=True)
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603
