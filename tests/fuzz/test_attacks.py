"""Hostile files of somebody who knows what reads them get nowhere."""

from pathlib import Path

import pytest

from bench.robustness.attack_list import ATTACKS
from bench.robustness.attacks import WITHSTOOD, Attack, outcome

TORCH = ("torchrec", "TorchScript", "TorchRec", "without an archive")
"""Attacks on what imports torch, which takes 5 CPU seconds for each: tested as functions elsewhere
(tests/planner/torchrec), and every night here."""
EVERY_TIME = ("code", "bounds")
"""What of the threat model is attacked for every commit; the rest every night, as each attack is a
process of its own, and fuzzing and tests of limits look at the same code."""


def marked(name: str) -> object:
    seldom = ATTACKS[name].point not in EVERY_TIME or any(word in name for word in TORCH)
    return pytest.param(name, marks=pytest.mark.nightly if seldom else pytest.mark.slow)


@pytest.mark.parametrize("name", [marked(name) for name in ATTACKS])
def test_an_attack_gets_nowhere(name: str) -> None:
    if "parquet" in name:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    if any(word in name for word in TORCH):
        pytest.importorskip("torchrec", reason="torchrec is not installed")
    assert outcome(ATTACKS[name]) == WITHSTOOD


def code_that_runs(folder: Path) -> tuple[str, ...]:
    (folder / "RAN").touch()
    return ("--version",)


@pytest.mark.parametrize(
    ("attack", "came"),
    [
        (Attack("code", code_that_runs), "ran what the file says"),
        (Attack("code", lambda _: ("--version",), hidden="planner"), "showed another file"),
        (Attack("parsers", lambda _: ("--version",)), WITHSTOOD),
        (Attack("limits", lambda _: ("--version",), most_time=0), "ran for 0 CPU seconds or more"),
    ],
)
def test_what_an_attack_does_is_seen(attack: Attack, came: str) -> None:
    assert outcome(attack) == came
