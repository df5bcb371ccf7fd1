"""Uncertainty on screen and in --json where sharders and plans are compared."""

from pathlib import Path

import pytest
from command_runs import Command


def test_compare_sharders(run: Command, directory: Path) -> None:
    del directory
    flags = ("tables.yaml", "--gpus", "2", "--sharder", "naive", "--sharder", "random")
    text = run("compare", *flags).out
    assert "P(fastest)" in text
    assert "random beats naive with" in text or "naive beats random with" in text
    chances = [
        result["uncertainty"]["probability_fastest"]
        for result in run("compare", *flags, "--json").data["results"]
    ]
    assert sum(chances) == pytest.approx(1.0)


@pytest.mark.slow
def test_compare_plans(run: Command, planned: Path) -> None:
    data = run("compare", "naive.json", str(planned), "--json").data
    assert 0.0 <= data["probability_new_is_faster"] <= 1.0
    back = run("compare", str(planned), "naive.json", "--json").data
    total = data["probability_new_is_faster"] + back["probability_new_is_faster"]
    assert total == pytest.approx(1.0)
