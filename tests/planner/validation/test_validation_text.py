from dataclasses import replace

import pytest

from costmodel.base.units import MS
from costmodel.domain.hardware import Device
from planner.calibration.points import Family
from planner.validation.job import Job
from planner.validation.judge import Outcome, judge
from planner.validation.phases import Phase, StepPrediction
from planner.validation.validate import Validation
from planner.validation.validation_text import validation_data, validation_text


def plan(name: str, predicted: float, measured: float, foreign: float = 0.0) -> Outcome:
    phases = dict.fromkeys(Phase, 0.0) | {Phase.LOOKUP: predicted * MS}
    return Outcome(
        name=name,
        prediction=StepPrediction(
            step_time=predicted * MS,
            interval=(0.93 * predicted * MS, 1.07 * predicted * MS),
            busy=(predicted * MS, 1 * MS),
            phases=(phases, phases),
        ),
        rounds=tuple((measured + shift) * MS for shift in (-0.2, 0.0, 0.2)),
        foreign=(foreign,) * 3,
        cpu=(measured * MS, 1 * MS),
        phases=({"lookup": measured * MS, "optimizer": 0.5 * MS}, {}),
    )


def validation(*outcomes: Outcome) -> Validation:
    job = Job(num_plans=len(outcomes), world_size=2, local_world_size=2, device="cpu", repeats=3)
    return Validation(
        outcomes=outcomes,
        verdict=judge(outcomes),
        hardware="mine",
        device=Device.CPU,
        job=job,
    )


def text(*outcomes: Outcome) -> list[str]:
    return [line.plain for line in validation_text(validation(*outcomes), 100)]


REPORT = """\
2 plans · 2 × cpu · 3 rounds of 4 steps · mine

  Plan   Step time       90% interval   Measured         ±   Within    Error   Others
  good    22.00 ms   20.46 - 23.54 ms   20.00 ms   0.10 ms   no       +10.0%       0%
  bad     38.00 ms   35.34 - 40.66 ms   40.00 ms   0.10 ms   yes       -5.0%       0%

  error      8% (geometric mean); of processor time 4%
  rank       Kendall's tau 1.00 over 1 pair; 1.00 over the 1 that noise can tell apart
  pick       good: the fastest (success: within 10% counts)
"""
GOOD, BAD = plan("good", 22.0, 20.0), plan("bad", 38.0, 40.0)


def test_the_report() -> None:
    # off by factors of 1.1 and 40/38: 7.6% in the geometric mean
    assert text(GOOD, BAD)[:9] == REPORT.splitlines()


def test_the_machine_s_speed_is_told_from_the_model_s_error() -> None:
    slower = replace(
        validation(GOOD, BAD),
        slowdowns={Family.GEMM: 1.1, Family.COLLECTIVE: 0.95},
        slowdown=1.025,
        at_speed=(plan("good", 20.0, 20.0), plan("bad", 40.0, 40.0)),
    )
    lines = [line.plain for line in validation_text(slower, 100)]
    assert lines[9:11] == [
        "  machine    products +10%, collectives -5% against the calibration",
        "             +2% in the median; at that speed: error 0%, of processor time 0%",
    ]
    data = validation_data(slower)
    assert data["machine_slowdown"] == {"gemm": 1.1, "collective": 0.95}
    assert data["median_machine_slowdown"] == 1.025
    assert data["geomean_error_at_that_speed"] == pytest.approx(0.0)
    assert validation_data(validation(GOOD))["geomean_error_at_that_speed"] is None


def test_phases_of_the_slowest_rank_are_shown_beside_each_other() -> None:
    lines = text(GOOD, BAD)
    start = lines.index("  good: the slowest rank's thread by phase")
    assert lines[start + 1 : start + 4] == [
        "    Phase       Predicted   Measured ¹",
        "    lookup       22.00 ms     20.00 ms   ¹ profiler attached, 20.5 ms in all",
        "    optimizer     0.00 ms      0.50 ms",
    ]


def test_a_wrong_pick_says_how_much_was_lost() -> None:
    lines = text(plan("picked", 10.0, 40.0), plan("other", 20.0, 32.0))
    assert (
        "  pick       picked: 25% slower than other, the fastest (failure: within 10% counts)"
        in (lines)
    )


def test_a_loaded_machine_is_told() -> None:
    assert text(plan("p", 1.0, 1.0, foreign=0.3))[-1] == (
        "  other processes had more than 5% of a busy rank's core: measure again on an idle machine"
    )


def test_the_same_as_data() -> None:
    data = validation_data(validation(GOOD, BAD))
    assert data["picked"] == data["fastest"] == "good"
    assert data["plans"][0]["phases"][0]["measured_s"]["lookup"] == 20 * MS
    assert data["success"]
