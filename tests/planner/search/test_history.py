import pytest

from planner.search.history import SearchHistory
from planner.search.search import Search
from sharders.problem.sharding_problem import Progress


def test_gains_that_count_are_noted_and_everything_is_told_on() -> None:
    now, told = [10.0], []
    search = Search(
        clock=lambda: now[0], began=8.0, watch=lambda _, progress: told.append(progress.best)
    )
    history = SearchHistory.of(search)
    for best in (4.0, 3.9999, 3.0, 5.0):  # 0.0025% is no gain
        now[0] += 1.0
        history.watch("annealing", Progress(evaluated=1, best=best))
    now[0] = 20.0
    points = [(point.time, point.modelled.seconds) for point in history.ended()]
    assert points == [(3.0, 4.0), (5.0, 3.0), (12.0, 3.0)]
    assert told == [4.0, 3.9999, 3.0, 5.0]


def test_a_search_that_told_nothing_has_no_history() -> None:
    assert SearchHistory.of(Search()).ended() == ()


def test_a_plan_has_its_search(planned_history: list[dict[str, float]]) -> None:
    times = [point["time_s"] for point in planned_history]
    steps = [point["modelled_step_time_s"] for point in planned_history]
    assert times == sorted(times)
    assert steps == sorted(steps, reverse=True)


@pytest.fixture
def planned_history() -> list[dict[str, float]]:
    import planner
    from planner.examples import example_workload

    planned = planner.plan(example_workload(6), gpus=2, baseline="none", time_limit=0.2)
    history: list[dict[str, float]] = planned.to_dict()["history"]
    assert len(history) >= 2
    return history
