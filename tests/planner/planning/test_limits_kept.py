"""A time limit is kept: by the proof that nothing fits, and by the bound that is worked on last."""

import time
from dataclasses import replace

import pytest

import planner
from costmodel.base.errors import InfeasibleError
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.plan import ShardingType
from planner.examples import example_problem, example_workload


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
        (sized(9, 80_000_000, ShardingType.TABLE_WISE), "is free on one GPU"),
    ],
)
def test_that_nothing_fits_is_soon_clear(workload: planner.Workload, says: str) -> None:
    start = time.process_time()
    with pytest.raises(InfeasibleError, match=says):
        planner.plan(workload, gpus=8, baseline="none", time_limit=0.2)
    assert time.process_time() - start < 10


def test_the_bound_stops_when_told() -> None:
    problem = example_problem(example_workload(10), world_size=16)
    full = step_time_bound(problem.workload, problem.topology)
    early = step_time_bound(problem.workload, problem.topology, lambda: True)
    assert 0 < early <= full * (1 + 1e-9)
