"""A program timed with given durations: with its own it is the simulator, to rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import cases
from timelines import simulated

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.engine.given import GivenStep
from costmodel.step.synthesis import step_operations

Case = tuple[Workload, Topology, ShardingPlan]
SETTINGS = settings(max_examples=20)


def timed(case: Case, *factors: float) -> list[float]:
    """Return step times with all durations times some factors."""
    written = step_operations(*case)
    durations = {
        index: np.array(factors)[:, None] * op.seconds for index, op in enumerate(written.ops)
    }
    return list(GivenStep.of(written, case[1]).step_times(durations))


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_its_own_durations_give_the_simulated_step(case: Case) -> None:
    step_time = simulated(step_operations(*case)).step_time
    assert timed(case, 1.0) == pytest.approx([step_time], rel=1e-12)


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_variants_are_timed_each_by_itself(case: Case) -> None:
    once, twice = timed(case, 1.0, 2.0)
    assert timed(case, 2.0) == pytest.approx([twice])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("costmodel.engine.given.MOST_AT_ONCE", 1)
        assert timed(case, 1.0, 2.0) == [once, twice]
    assert once <= twice <= 2.0 * once * (1 + 1e-12)
