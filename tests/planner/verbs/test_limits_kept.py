"""A time limit is kept: by the proof that nothing fits, and by the bound that is worked on last."""

import time
from dataclasses import replace
from itertools import count

import pytest

import planner
from costmodel.base.errors import InfeasibleError
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.plan import ShardingType
from planner.examples import example_problem, example_workload
from sharders.problem.sharding_problem import ShardingProblem

pytestmark = pytest.mark.slow


def sized(num_tables: int, rows: int, *types: ShardingType) -> planner.Workload:
    workload = example_workload(num_tables)
    return replace(
        workload,
        tables=tuple(
            replace(table, num_embeddings=rows, embedding_dim=128, sharding_types=types)
            for table in workload.tables
        ),
    )


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        (sized(800, 10**7), "the tables need"),  # 48 s of CPU time when all sharders tried
        (sized(9, 80_000_000, ShardingType.TABLE_WISE), "at least 9 GPUs"),
    ],
)
def test_that_nothing_fits_is_soon_clear(workload: planner.Workload, says: str) -> None:
    start = time.process_time()
    with pytest.raises(InfeasibleError, match=says):
        planner.plan(workload, gpus=8, baseline="none", time_limit=0.2)
    assert time.process_time() - start < 10


def bound(problem: ShardingProblem, time: float) -> float:
    """Return the bound that is found where every look at the clock finds it 1 s later."""
    clock = count()
    return step_time_bound(problem.workload, problem.topology, lambda: time - next(clock))


def test_the_bound_stops_when_told() -> None:
    large = replace(sized(6, 10**6), local_batch_size=2**15)  # bound by lookups, not by the host
    problem = example_problem(large, world_size=4)
    bounds = [bound(problem, time) for time in (0, 10, 30, 100)]
    assert 0 < bounds[0] < bounds[1] < bounds[2] < bounds[3]


def test_what_is_counted_in_plans_is_not_cut_short() -> None:
    planned = planner.plan(example_workload(4), gpus=2, baseline="none", max_plans=200)
    assert planned.report.confidence is not None
    assert planned.report.confidence.num_candidates > 1
