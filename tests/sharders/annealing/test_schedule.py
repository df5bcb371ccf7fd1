"""More time never gives a worse plan: limits only say where a search ends."""

from itertools import pairwise
from random import Random

import pytest

from planner.examples import example_problem, example_workload
from sharders.annealing.schedule import AnnealingSearch
from sharders.annealing.sharder import Annealing
from sharders.engine.params import AnnealingParams
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.problem.sharding_problem import Budget, Progress, SearchStatus, ShardingProblem

PLANS = (50, 400, 3000, 10_000)


def problem() -> ShardingProblem:
    return example_problem(example_workload(40, seed=3), world_size=16, num_nodes=2)


def test_a_run_is_the_same_however_many_moves_are_drawn_at_a_time() -> None:
    posed, ends = problem(), []
    schedule = 1e-3, 1e-5, 5000.0
    for at_once in (5000, 1000, 70):
        search = AnnealingSearch(Engine(posed), Budget(), Random(0), AnnealingParams())
        start = next(search.sets.at_once()).plans[0][1]
        engine = search.engine
        engine.start(start, 7)
        while engine.run.moves < 5000:
            engine.anneal(min(at_once, 5000 - engine.run.moves), schedule)
        ends.append((engine.run.best_time, engine.run.penalised_time, choices(engine.present())))
    assert ends[0] == ends[1] == ends[2]


def choices(present: Choices) -> tuple[list[int], list[list[int]]]:
    return list(present.option), [list(row) for row in present.ranks]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_longer_search_finds_first_what_a_shorter_one_finds(seed: int) -> None:
    posed, seen = problem(), []
    for plans in PLANS:
        found: list[float] = []

        def report(progress: Progress, found: list[float] = found) -> None:
            found.append(progress.best)

        budget = Budget(max_evaluations=plans, report=report)
        result = Annealing().shard(posed, budget, Random(seed))
        assert result.status is SearchStatus.LIMIT
        seen.append((found, result.step_time))
    for (shorter, step), (longer, later) in pairwise(seen):
        assert longer[: len(shorter) - 1] == shorter[:-1]
        assert later <= step * (1 + 1e-9)
    assert seen[-1][1] < seen[0][1]


def test_only_types_that_are_offered_are_drawn() -> None:
    posed = problem()
    engine = Engine(posed)
    search = AnnealingSearch(engine, Budget(), Random(0), AnnealingParams())
    types = 0b0001010  # table_wise and column_wise
    start = search.sets.start_of(types, float("inf"))[1]
    assert start is not None
    engine.offer(types)
    engine.start(start.plans[0][1], 3)
    run = engine.anneal(5000, (1.0, 1.0, 1.0))
    assert run.decided > 1000
    allowed = [
        any(types >> int(kind) & 1 for kind in engine.search.tables.kind[first:last])
        for first, last in zip(
            engine.search.tables.options[:-1], engine.search.tables.options[1:], strict=True
        )
    ]
    kinds = [int(engine.search.tables.kind[option]) for option in engine.present().option]
    assert all(types >> kind & 1 for kind, some in zip(kinds, allowed, strict=True) if some)
    assert len(set(kinds)) > 1
