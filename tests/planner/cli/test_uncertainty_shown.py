"""Uncertainty on screen and in --json, on every command that prints a step time."""

from pathlib import Path

import pytest
from command_runs import Command


@pytest.mark.slow
def test_plan(run: Command, directory: Path) -> None:
    del directory
    flags = ("tables.yaml", "--gpus", "2", "--time-limit", "1s", "--baseline", "none")
    text = run("plan", *flags, "-o", "out.json").out
    assert " ms, 90%)" in text
    data = run("plan", *flags, "--json").data
    low, high = data["step_time_interval_s"]
    sure = data["uncertainty"]
    assert low < data["step_time_s"] < high
    assert sure["num_candidates"] >= 1
    assert sure["optimism"] >= 0


@pytest.mark.slow
def test_plan_beside_its_baseline(run: Command, directory: Path) -> None:
    del directory
    flags = ("tables.yaml", "--gpus", "2", "--max-plans", "100", "--baseline", "naive")
    baseline = run("plan", *flags, "--json").data["baseline"]
    assert 0.0 <= baseline["probability_beaten"] <= 1.0


@pytest.mark.slow
def test_simulate_and_explain(run: Command, planned: Path) -> None:
    for command in (("simulate",), ("explain", "--time-limit", "1s")):
        assert " ms, 90%)" in run(*command, str(planned)).out
        data = run(*command, str(planned), "--json").data
        low, high = data["step_time_interval_s"]
        assert low < data["step_time_s"] < high
        assert data["uncertainty"]["variance_shares"]


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
