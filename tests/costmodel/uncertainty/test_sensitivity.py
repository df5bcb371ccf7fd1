import numpy as np
import pytest
from machines import topology
from plans import plan, table, workload

from costmodel.domain.plan import ShardingType
from costmodel.engine.objective import Objective
from costmodel.uncertainty.error_model import Cause
from costmodel.uncertainty.sensitivity import FACTORS, PlanStep, crossing

WORK, RANKS = workload(table("a"), table("b")), topology(2)
WHOLE = ShardingType.TABLE_WISE
APART = plan(WORK, RANKS, {"a": (WHOLE, (0,)), "b": (WHOLE, (1,))})


@pytest.mark.parametrize("where", [0.3, 0.7, 1.5, 3.9])
def test_lines_cross_where_they_do(where: float) -> None:
    # 2 f is as long as f and so much more
    assert crossing(2 * FACTORS, FACTORS + where) == pytest.approx(where)
    assert crossing(FACTORS + where, 2 * FACTORS) == pytest.approx(where)


def test_lines_that_are_apart_do_not_cross() -> None:
    assert crossing(FACTORS, FACTORS + 1) is None
    assert crossing(FACTORS, FACTORS) is None


def test_plans_that_are_equal_until_something_grows_or_shrinks() -> None:
    # something else takes 2 in any case, or what is scaled no more than a half
    assert crossing(np.maximum(FACTORS, 2.0), np.full(len(FACTORS), 2.0)) == pytest.approx(2.0)
    assert crossing(np.minimum(FACTORS, 0.5), np.full(len(FACTORS), 0.5)) == pytest.approx(0.5)


def test_nothing_scaled_is_the_step_as_predicted() -> None:
    step = PlanStep.of(WORK, RANKS, APART)
    predicted = Objective(WORK, RANKS).step_time(APART)
    assert step.times((), np.ones(1))[0] == pytest.approx(predicted)
    assert step.times((Cause.HOST,), np.ones(1))[0] == pytest.approx(predicted)


def test_more_of_anything_is_never_faster() -> None:
    step = PlanStep.of(WORK, RANKS, APART)
    assert (np.diff(step.times((Cause.HOST,))) >= 0).all()
    assert step.times(tuple(Cause)).tolist() == pytest.approx(
        (step.times(tuple(Cause), np.ones(1))[0] * FACTORS).tolist(), rel=0.05
    )


def test_what_is_in_no_step_changes_none() -> None:
    alone = topology(1)
    step = PlanStep.of(WORK, alone, plan(WORK, alone, {"a": (WHOLE, (0,)), "b": (WHOLE, (0,))}))
    times = step.times((Cause.ALL_TO_ALL,))
    assert times.shape == FACTORS.shape
    assert np.ptp(times) == 0
