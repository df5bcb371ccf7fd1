"""The walk in planner/README.md is the one that the command takes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.documented import ROOT

STATION = re.compile(r"^\d+\. `([^`]+\.py)`: `([\w.]+)` ", re.MULTILINE)
TRACER = """
import inspect, json, sys
root, out, *arguments = sys.argv[1:]
calls = {}

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # functions, not classes' bodies
        path = code.co_filename
        if path.startswith(root):
            calls.setdefault((path.removeprefix(root + "/"), code.co_qualname))

sys.setprofile(note)
from planner.cli import main
try:
    main(arguments)
except SystemExit as done:
    code = done.code
sys.setprofile(None)
with open(out, "w") as file:
    json.dump(list(calls), file)
sys.exit(code)
"""
"""Runs the command, and writes which functions it called, in the order of their first calls."""


def stations() -> list[tuple[str, str]]:
    text = (ROOT / "planner" / "README.md").read_text(encoding="utf-8")
    walk = text.partition("<!-- begin walk -->")[2].partition("<!-- end walk -->")[0]
    found = [(path, function) for path, function in STATION.findall(walk)]
    assert len(found) == len(walk.strip().splitlines())
    return found


def test_the_walk_is_short_and_its_files_exist() -> None:
    walk = stations()
    assert 10 <= len(walk) <= 15
    assert len({path for path, _ in walk}) == len(walk)
    assert all((ROOT / path).is_file() for path, _ in walk)


@pytest.mark.slow
def test_the_command_takes_the_walk(tmp_path: Path) -> None:
    tables = ROOT / "examples" / "tables.yaml"
    command = ["plan", str(tables), "--gpus", "4", "--max-plans", "20", "--quiet"]
    command += ["--baseline", "none", "-o", str(tmp_path / "plan.json")]
    seen = tmp_path / "calls.json"
    subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", TRACER, str(ROOT), str(seen), *command],
        check=True, capture_output=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    walk = stations()
    calls = [tuple(call) for call in json.loads(seen.read_text(encoding="utf-8"))]
    assert [call for call in calls if call in set(walk)] == walk
