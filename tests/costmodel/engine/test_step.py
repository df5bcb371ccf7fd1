"""Steps of plans that have every type and group, one plan after another, are the simulator's."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from plans import mixed
from timelines import simulated

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Pipeline, Workload
from costmodel.engine.objective import Objective
from costmodel.step.synthesis import step_operations


def check(work: Workload, ranks: Topology, plans: Iterable[ShardingPlan]) -> None:
    objective = Objective(work, ranks)
    for placed in plans:
        expected = simulated(step_operations(work, ranks, placed)).step_time
        assert objective.step_time(placed) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pipeline", [each for each in Pipeline if each is not Pipeline.DLRM])
def test_plans_take_what_is_simulated_one_after_another(pipeline: Pipeline) -> None:
    work, ranks, (one, other) = mixed(pipeline)
    check(work, ranks, (one, other, one))


def test_batches_between_two_updates_that_are_like_one_another_are_not_all_timed() -> None:
    work, ranks, (one, _) = mixed(Pipeline.SPARSE_DIST)
    check(replace(work, gradient_accumulation_steps=6), ranks, [one])
