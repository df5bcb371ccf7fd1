"""Steps of plans that have every type and group, one plan after another, are the simulator's."""

import pytest
from plans import mixed
from timelines import simulated

from costmodel.domain.workload import Pipeline
from costmodel.engine.objective import Objective
from costmodel.step.synthesis import step_operations


@pytest.mark.parametrize("pipeline", [each for each in Pipeline if each is not Pipeline.DLRM])
def test_plans_take_what_is_simulated_one_after_another(pipeline: Pipeline) -> None:
    work, ranks, (one, other) = mixed(pipeline)
    objective = Objective(work, ranks)
    for placed in (one, other, one):
        expected = simulated(step_operations(work, ranks, placed)).step_time
        assert objective.step_time(placed) == pytest.approx(expected, rel=1e-12)
