"""Compiled code is used where it is there, and made in the background where it is not."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner import compiling
from planner.testing import example_problem, example_workload

LARGE = example_problem(example_workload(60, seed=0), world_size=4)
SMALL = example_problem(example_workload(4, seed=0), world_size=2)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """Forget what this machine has compiled, and note processes instead of starting them."""
    calls: list[Any] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(compiling.VARIABLE, compiling.BACKGROUND)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: calls.append(command))
    compiling._marker.cache_clear()
    yield calls
    compiling._marker.cache_clear()


def test_the_first_search_has_it_compiled_and_does_not_wait(started: list[Any]) -> None:
    assert not compiling.is_compiled(LARGE)
    assert not compiling.is_compiled(LARGE)
    assert len(started) == 1


def test_later_searches_use_it(started: list[Any]) -> None:
    compiling._marker().parent.mkdir(parents=True)
    compiling._marker().touch()
    assert compiling.is_compiled(LARGE)
    assert not started


def test_small_problems_do_without(started: list[Any]) -> None:
    assert not compiling.is_compiled(SMALL)
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


def test_what_was_compiled_of_another_version_is_forgotten(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # numba itself sees changes in a function's own file, not in those of the functions it calls
    source, kept = tmp_path / "state.py", tmp_path / "__pycache__"
    kept.mkdir()
    for name in ("state.keep-1.py311.nbi", "state.keep-1.py311.1.nbc", "state.cpython-311.pyc"):
        (kept / name).touch()
    monkeypatch.setattr(compiling, "_sources", lambda: [source])
    compiling._forget_older()
    assert [each.name for each in kept.iterdir()] == ["state.cpython-311.pyc"]
    assert not started
