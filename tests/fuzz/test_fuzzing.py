"""Whatever files hold, and whatever is typed: a result, or an error in words, and soon."""

import os
from pathlib import Path

import pytest

from bench.robustness.attack_files import CORPUS
from bench.robustness.fuzzing import fuzz
from bench.robustness.parsers import PARSERS, attempt

CRASHES = Path(__file__).parent / "crashes"
"""Inputs that ended in tracebacks, hangs, segmentation faults, or ran what they held."""
NEEDED = {
    "torchrec plan": "torchrec", "measurements": "torch", "ids": "pyarrow", "pairs": "torchrec",
    "columns of logs": "pyarrow", "texts of logs": "pyarrow",
}  # fmt: skip
SELDOM = {"pairs"}
"""Each input is several commands, and torch is imported first."""
FEW, MANY = 25, 500
"""Inputs of each parser: in every run, and in CI, where those of a parser are one process's."""
WHOLE_COMMANDS = {"pairs", "requests", "system errors"}
"""Each input is a command or a server: CI tries a tenth as many, `bench.robustness` thousands."""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("PLANNER_")]:
        monkeypatch.delenv(name)


def needed(name: str) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")


@pytest.mark.parametrize("name", [name for name in PARSERS if name not in SELDOM])
def test_some_mutated_inputs(name: str) -> None:
    needed(name)
    score = fuzz(name, FEW)
    assert (score.tried, dict(score.crashes), score.hangs) == (FEW, {}, 0), score.seeds


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_many_mutated_inputs(name: str) -> None:
    needed(name)
    many = MANY // 10 if name in WHOLE_COMMANDS else MANY
    score = fuzz(name, many, first=FEW)
    assert (score.tried, dict(score.crashes), score.hangs) == (many, {}, 0), score.seeds


@pytest.mark.parametrize(
    "path",
    sorted(path for path in CRASHES.rglob("*") if path.is_file()),
    ids=lambda path: path.name,
)
def test_what_once_crashed(path: Path) -> None:
    name = path.parent.name.replace("_", " ")
    needed(name)
    assert attempt(PARSERS[name], path.read_bytes(), path.name) is None


@pytest.mark.parametrize("name", PARSERS)
def test_the_corpus_is_there(name: str) -> None:
    for file in PARSERS[name].corpus:
        assert (CORPUS / (f"{file}.json" if file == "kineto" else file)).stat().st_size > 0
