"""A search that runs interpreted says so, to those who read no screen, too."""

import warnings

import pytest

import planner
from bench.documented import ROOT
from planner.environment.compiled import REMEDY, InterpretedSearchWarning

TABLES = ROOT / "examples" / "tables.yaml"
SEARCH = {"gpus": 2, "sharder": "naive", "baseline": None}


def test_python_is_warned_of_an_interpreted_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.verbs.planning.interpreted_modules", lambda: ("any",))
    with pytest.warns(InterpretedSearchWarning, match=r"setup\.py build_ext"):
        planned = planner.plan(TABLES, **SEARCH)  # type: ignore[arg-type]
    assert REMEDY in planned.report.notes[-1]


def test_nobody_is_warned_of_a_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.verbs.planning.interpreted_modules", tuple)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planner.plan(TABLES, **SEARCH)  # type: ignore[arg-type]
