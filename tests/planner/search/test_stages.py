"""A time limit holds for all stages, by whatever clock."""

from dataclasses import replace
from math import inf

import pytest

import planner
from costmodel.base.units import Seconds
from planner.examples import example_workload
from planner.search.search import Attempt, Search
from planner.search.stages import EARLY_SHARE, OPTION_TIME, PASSES, PlanningStage, Stages
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
    assert 0.0 < Stages(problem, search).searching().time_limit < 4.0
    late = Search(time_limit=10.0, began=0.0, clock=lambda: 60.0)
    assert Stages(problem, late).searching().time_limit == 0.0


def attempted(seconds: Seconds) -> list[Attempt]:
    return [Attempt(sharder="naive", plan=object(), step_time=1.0, first_plan=seconds)]  # type: ignore[arg-type]


def test_a_bound_that_meets_the_best_plan_is_not_worked_on_any_further(
    problem: ShardingProblem,
) -> None:
    def bound_where_the_best_takes(step_time: Seconds) -> Seconds:
        stages = Stages(problem, Search(time_limit=inf, clock=lambda: 0.0))
        stages.begin(PlanningStage.BOUND, [replace(attempted(1.0)[0], step_time=step_time)])
        return stages.bound()

    greatest = bound_where_the_best_takes(1.0)
    assert bound_where_the_best_takes(greatest / 2) < greatest


def test_the_search_ends_the_sooner_the_longer_its_first_plan_took(
    problem: ShardingProblem,
) -> None:
    searching = Stages(problem, Search(time_limit=10.0, began=0.0, clock=lambda: 2.0)).searching()
    assert searching.deadline(0.0) == 10.0
    assert searching.deadline(1.5) == pytest.approx(10.0 - PASSES * 1.5)


def test_without_time_for_a_choice_the_step_is_still_the_expected_one(
    problem: ShardingProblem,
) -> None:
    ticks = Ticking(0.4)
    late = planner.plan(problem.workload, gpus=2, baseline="naive", clock=ticks, time_limit=0.01)
    low, high = late.report.interval
    assert 0 < low < late.report.step_time < high
    assert late.report.baseline is not None
    assert late.report.speedup == late.report.baseline.step_time / late.report.step_time
    assert any("no time was left for choosing" in note for note in late.report.notes)


def test_what_is_counted_in_plans_has_all_the_time(problem: ShardingProblem) -> None:
    stages = Stages(problem, Search(max_plans=10, began=0.0, clock=lambda: 9.0))
    found = [Attempt(sharder="naive", plan=object(), step_time=1.0)]  # type: ignore[arg-type]
    stages.begin(PlanningStage.CHOICE, found)
    assert stages.time_left() == inf


@pytest.mark.parametrize(("batches", "begun"), [(1, True), (10, False)])
def test_a_bound_of_many_batches_does_not_begin_before_the_search_with_little_time(
    problem: ShardingProblem, batches: int, *, begun: bool
) -> None:
    workload = replace(problem.workload, gradient_accumulation_steps=batches)
    accumulated = ShardingProblem.of(workload, problem.topology)
    stages = Stages(accumulated, Search(time_limit=4.0, began=0.0, clock=lambda: 0.0))
    assert (stages.searching().enough > 0) is begun


@pytest.mark.parametrize(("gone", "begun"), [(0.0, True), (0.5, True), (0.9, False)])
def test_a_bound_begins_before_the_search_although_choosing_a_group_took_half(
    problem: ShardingProblem, gone: float, *, begun: bool
) -> None:
    limit = 1.2 * OPTION_TIME * problem.num_options / EARLY_SHARE
    stages = Stages(problem, Search(time_limit=limit, began=0.0, clock=lambda: gone * limit))
    assert (stages.searching().enough > 0) is begun


def test_a_bound_before_the_search_looks_at_the_clock(problem: ShardingProblem) -> None:
    clock = Ticking(1.0)
    limit = 100.0
    Stages(problem, Search(time_limit=limit, began=0.0, clock=clock)).searching()
    in_time = clock.now
    slow = Ticking(20.0)
    Stages(problem, Search(time_limit=limit, began=0.0, clock=slow)).searching()
    assert slow.now / slow.tick < in_time / clock.tick


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
    # a stage past the limit has 0.2 s, and looks at the clock a few times more; so does the search
    assert clock.now < 1.1 * 2.0 + 1.0 + 30 * tick
