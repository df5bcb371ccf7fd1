"""The committed coverages hold what the project claims, and are those of today's models."""

import json
from math import hypot, log
from pathlib import Path
from typing import Any

import pytest
from needed import needs_data

from bench.coverage import (
    RESULTS,
    JudgedStep,
    left_out,
    on_cores,
    own_sigma,
    published,
    structure_sigma,
    within,
)
from bench.cpu_plans import study_plans
from bench.cpu_study import workload
from costmodel.domain.hardware import Topology
from costmodel.engine.objective import Objective
from costmodel.uncertainty.error_model import NORMAL_90, STRUCTURE, STRUCTURE_ON_CORES
from planner.files.plans import table_data
from planner.files.profiles import load_profile


@pytest.fixture(scope="module")
def kept() -> Any:  # noqa: ANN401 - JSON
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def step(error: float, sigma: float = 0.0, **groups: str) -> JudgedStep:
    return JudgedStep(name="", groups=groups, measured=1.0, predicted=1.0, error=error, sigma=sigma)


def test_kernels_alone_are_not_enough_for_whole_steps(kept: Any) -> None:  # noqa: ANN401
    tests = kept["steps"]["tests"]
    assert tests["kernels alone"]["held"] <= tests["kernels, and the other steps"]["held"]
    assert tests["kernels alone"]["coverage"] < 0.9
    # 10 of 12: one inside or outside is 8 percent
    assert tests["kernels, and the other steps"]["held"] >= 10


def test_intervals_hold_on_whole_steps(kept: Any) -> None:  # noqa: ANN401
    # every step with a structure that others gave: published ones, and those of CPU runs, whose
    # kernels explain nearly all: other workloads say that nothing is to be added, and 71% are held.
    # It was 81% while a cross network lacked kernels: its phases were too short by 7 to 8%, and the
    # optimizer, too long by half, made up for them
    (whole,) = kept["whole_steps"]["tests"].values()
    assert whole["points"] > 50
    assert 0.7 <= whole["coverage"] <= 0.95
    for test in ("kernels, and the other workloads", "as shipped"):
        assert kept["cpu_runs"]["tests"][test]["coverage"] >= 0.7
    for by in ("frameworks", "GPUs"):
        assert kept["steps"]["tests"][f"kernels, and those of other {by}"]["held"] >= 10


def test_the_model_s_constants_are_the_measured_ones(kept: Any) -> None:  # noqa: ANN401
    few = 1.796 / NORMAL_90  # Student's t of eleven others
    assert pytest.approx(kept["steps"]["structure_sigma"] * few, abs=0.02) == STRUCTURE.shared
    few = 2.353 / NORMAL_90  # of three workloads
    cores = STRUCTURE_ON_CORES.shared
    assert pytest.approx(kept["cpu_runs"]["structure_sigma"] * few, abs=0.02) == cores
    assert pytest.approx(kept["cpu_runs"]["own_sigma"], abs=0.02) == STRUCTURE_ON_CORES.own


@needs_data
def test_the_committed_steps_are_today_s(kept: Any) -> None:  # noqa: ANN401
    rows = kept["steps"]["rows"]
    for now, then in zip(published(), rows, strict=True):
        assert now.error == pytest.approx(then["log_error"], abs=0.05)
        assert now.sigma == pytest.approx(then["kernel_sigma"], abs=0.03)


def test_structure_is_what_kernels_do_not_explain() -> None:
    assert structure_sigma([step(0.5, 0.3), step(-0.5, 0.3)]) == pytest.approx(0.4)
    assert structure_sigma([step(0.1, 0.3)]) == 0.0
    assert hypot(0.4, 0.3) == pytest.approx(0.5)


def test_a_step_is_tested_without_itself_and_its_group() -> None:
    # the only step with a large error is outside what the others say, whatever its own error
    steps = [step(0.01, gpu="a"), step(-0.01, gpu="a"), step(0.9, gpu="b")]
    assert left_out(steps)[2] is False
    assert left_out(steps, "gpu") == [True, True, False]
    assert not any(within(steps, 0.0))


def test_steps_on_cores_are_tested_by_other_workloads() -> None:
    # off by 10% and 12%: each interval is as wide as the other workload's error
    runs = [step(0.1, workload="a"), step(0.1, workload="a"), step(0.12, workload="b")]
    assert structure_sigma(runs) == pytest.approx(((0.01 + 0.01 + 0.0144) / 3) ** 0.5)
    assert left_out(runs, "workload") == [True] * 3


def test_what_plans_of_a_workload_differ_by_is_their_own() -> None:
    # off by 10% and -10%: differences of two errors have twice the variance of one
    assert own_sigma([0.2**2]) == pytest.approx(0.2 / 2**0.5)


def made_up_study(topology: Topology, factor: float) -> dict[str, Any]:
    """Return a study whose steps take a factor of their prediction, without noise."""
    made = workload("dense")
    plans = study_plans(made, topology)
    record = {}
    for name, plan in plans.items():
        seconds = factor * Objective(made, topology).step_time(plan)
        block = {"wall": [seconds] * 3, "cpu": [seconds] * 3, "foreign": 0.0}
        rank = {"blocks": [block] * 4, "phases": {}}
        tables = [table_data(table) for table in plan.tables]
        record[name] = {"tables": tables, "torchrec_score_s": 1.0, "ranks": [rank, rank]}
    return {"machine": {}, "workloads": {"dense": record}}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 9.0])
def test_a_study_is_read_and_sampled(tmp_path: Path, factor: float) -> None:
    profile = load_profile("v100-nvlink")
    topology = Topology(hardware=profile, world_size=2, local_world_size=2)
    results = tmp_path / "study.json"
    results.write_text(json.dumps(made_up_study(topology, factor)), encoding="utf-8")
    steps, differences = on_cores(results, "v100-nvlink")
    assert len(differences) == len(steps) * (len(steps) - 1) / 2 > 1
    # the mean of the samples is a little above the prediction: the slowest rank sets the pace
    assert all(each.error == pytest.approx(log(factor), abs=0.1) for each in steps)
    assert within(steps, hypot(*STRUCTURE)) == [factor == 1.0] * len(steps)
