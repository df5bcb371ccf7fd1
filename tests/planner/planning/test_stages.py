"""A time limit holds for all stages, by whatever clock."""

from math import inf

import pytest

import planner
from costmodel.base.units import Seconds
from planner.examples import example_workload
from planner.planning.search import Attempt, Search
from planner.planning.stages import PlanningStage, Stages
from sharders.problem.sharding_problem import ShardingProblem


class Ticking:
    """A clock that goes on by so much whenever it is looked at."""

    def __init__(self, tick: Seconds) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> Seconds:
        self.now += self.tick
        return self.now


def test_what_was_spent_before_counts(problem: ShardingProblem) -> None:
    search = Search(time_limit=10.0, began=0.0, clock=lambda: 6.0)
    assert Stages(problem, search).searching().time_limit == pytest.approx(0.75 * 4.0)
    late = Search(time_limit=10.0, began=0.0, clock=lambda: 60.0)
    assert Stages(problem, late).searching().time_limit == 0.0


def test_a_stage_may_not_take_what_the_limit_does_not_leave(problem: ShardingProblem) -> None:
    search = Search(time_limit=10.0, began=0.0, clock=lambda: 9.0)
    stages = Stages(problem, search)
    found = [Attempt(sharder="naive", plan=object(), step_time=1.0)]  # type: ignore[arg-type]
    stages.begin(PlanningStage.CHOICE, found)
    assert stages.time_left() == pytest.approx(0.5)  # half of what is left
    stages.begin(PlanningStage.BOUND, found)
    assert stages.time_left() == pytest.approx(0.7)


def test_what_is_counted_in_plans_has_all_the_time(problem: ShardingProblem) -> None:
    stages = Stages(problem, Search(max_plans=10, began=0.0, clock=lambda: 9.0))
    found = [Attempt(sharder="naive", plan=object(), step_time=1.0)]  # type: ignore[arg-type]
    stages.begin(PlanningStage.CHOICE, found)
    assert stages.time_left() == inf


def test_the_progress_line_names_the_stages_after_the_search() -> None:
    told: list[str] = []
    planner.plan(
        example_workload(4),
        gpus=2,
        max_plans=50,
        baseline="none",
        watch=lambda name, _: told.append(name),
    )
    assert list(dict.fromkeys(told))[-4:] == [stage.value for stage in PlanningStage]


@pytest.mark.parametrize("tick", [0.05, 0.2])
def test_all_stages_end_soon_after_the_limit(tick: Seconds) -> None:
    clock = Ticking(tick)
    planner.plan(example_workload(6), gpus=2, baseline="none", clock=clock, time_limit=2.0)
    # a stage past the limit has 0.2 s, and looks at the clock a few times more
    assert clock.now < 1.1 * 2.0 + 1.0 + 20 * tick
