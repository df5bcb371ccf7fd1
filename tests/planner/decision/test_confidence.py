"""Odds between plans, from the profile's errors."""

import pytest
from machines import topology
from plans import plan, table, workload

import planner
from costmodel.domain.plan import ShardingType
from planner.decision.confidence import confidences, probability_faster

WORK, RANKS = workload(table("a"), table("b")), topology(2)
WHOLE = ShardingType.TABLE_WISE
APART = plan(WORK, RANKS, {"a": (WHOLE, (0,)), "b": (WHOLE, (1,))})
TOGETHER = plan(WORK, RANKS, {"a": (WHOLE, (0,)), "b": (WHOLE, (0,))})


def test_the_chances_of_all_plans_add_up() -> None:
    first, second = confidences(WORK, RANKS, (APART, TOGETHER))
    assert first.probability_fastest + second.probability_fastest == pytest.approx(1.0)
    assert first.probability_beaten == 0.5
    assert second.probability_beaten == pytest.approx(first.probability_fastest)


def test_two_plans_are_compared_under_the_same_errors() -> None:
    first, second = (WORK, RANKS, APART), (WORK, RANKS, TOGETHER)
    odds = probability_faster(first, second)
    assert odds + probability_faster(second, first) == pytest.approx(1.0)
    assert odds == confidences(WORK, RANKS, (APART, TOGETHER))[1].probability_beaten
    assert probability_faster(first, first) == 0.5


def test_the_python_interface_has_it() -> None:
    best = planner.plan(WORK, gpus=2, sharder="cost_greedy", baseline="none")
    sure = best.report.confidence
    assert sure is not None
    assert best.report.interval == sure.interval
    assert sure.interval[0] < sure.step_time < sure.interval[1]
    assert sum(sure.causes.values()) < 1.2
