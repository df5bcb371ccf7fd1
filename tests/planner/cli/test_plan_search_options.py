from pathlib import Path

import pytest
from command_runs import Command


@pytest.mark.slow
def test_jobs_plan_as_well_as_one(run: Command) -> None:
    arguments = ("plan", "tables.yaml", "--gpus", "2", "--json", "--sharder", "annealing")
    alone, both = (run(*arguments, "--time-limit", "10s", *more) for more in ((), ("--jobs", "2")))
    assert both.code == 0
    assert both.data["step_time_s"] <= alone.data["step_time_s"] * (1 + 1e-9)


def test_a_storage_is_for_optuna(run: Command) -> None:
    done = run("plan", "tables.yaml", "--gpus", "2", "--storage", "sqlite:///study.db")
    assert done.code == 2
    assert "--storage goes with --sharder optuna" in done.err


@pytest.mark.slow
def test_what_is_no_storage_is_bad_input(run: Command) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    arguments = ("plan", "tables.yaml", "--gpus", "2", "--sharder", "optuna", "--storage")
    done = run(*arguments, "nonsense", "--time-limit", "10s")
    assert done.code == 3
    assert "cannot keep an Optuna study there" in done.err


@pytest.mark.slow
def test_a_study_is_kept(run: Command, directory: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    arguments = ("plan", "tables.yaml", "--gpus", "2", "--sharder", "optuna", "--time-limit", "3s")
    assert run(*arguments, "--storage", "journal://study.log").code == 0
    assert (directory / "study.log").exists()


@pytest.mark.slow
def test_ilp_tells_how_far_it_got_with_its_own_objective(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_TIME_LIMIT", "10s")
    done = run("plan", "tables.yaml", "--gpus", "2", "--json", "--sharder", "ilp")
    own = done.data["own_objective"]
    assert own["bound_s"] <= own["value_s"] * (1 + 1e-9)
    assert own["gap"] <= 0.01
    planned = run("plan", "tables.yaml", "--gpus", "2", "--sharder", "ilp")
    assert "gap of its own objective 0." in planned.err
    compared = run("compare", "tables.yaml", "--gpus", "2", "--sharder", "ilp")
    assert "ilp's own objective, which is not quite the step time" in compared.out


def test_headroom_is_asked_for_by_flag_or_environment(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("plan", "tables.yaml", "--gpus", "2", "--json", "--sharder", "naive")
    assert run(*arguments).data["headroom"] == 0.1
    assert run(*arguments, "--headroom", "25%").data["headroom"] == 0.25
    monkeypatch.setenv("PLANNER_HEADROOM", "0.3")
    assert run(*arguments).data["headroom"] == 0.3
    done = run(*arguments, "--headroom", "100%")
    assert done.code == 2
    assert "headroom must be below 100%" in done.data["error"]["message"]
