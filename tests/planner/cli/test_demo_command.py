"""``planner demo``: every command of the tour runs, and leaves what it says."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.files.workload_reading import load_workload

pytestmark = pytest.mark.slow


def test_the_tour_leaves_a_model_a_plan_a_trace_and_no_page_without_the_library(
    run: Callable, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    done = run("demo", "-o", "tour")
    assert done.code == 0
    assert "There will be no page: a page needs `vl-convert-python`" in done.out
    steps = [line for line in done.out.splitlines() if line.startswith("$ planner ")]
    assert [step.split()[2] for step in steps] == ["plan", "explain", "simulate"]
    assert "step time" in done.out
    tour = directory / "tour"
    assert {path.name for path in tour.iterdir()} == {"tables.yaml", "plan.json", "trace.json"}
    assert len(load_workload(tour / "tables.yaml").tables) == 5
    assert json.loads((tour / "trace.json").read_text())["traceEvents"]
