from math import inf

import pytest

from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.decision.judging import narrow_blocks
from planner.examples import example_problem
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem


def tables(width: int, *, ranks: tuple[int, ...] = ()) -> tuple[EmbeddingTable, ...]:
    return tuple(
        EmbeddingTable(
            name=name, num_embeddings=10**6, embedding_dim=width, pooling_factor=8, ranks=ranks
        )
        for name in ("a", "b")
    )


def forever() -> float:
    return inf


def test_narrow_blocks_are_weighed_against_twice_as_wide_ones_of_all_tables() -> None:
    workload = Workload(tables=tables(64), local_batch_size=512)
    problem = example_problem(workload, world_size=4)

    def cut(num_blocks: int) -> float:
        return problem.objective.step_time(plan_of(problem, num_blocks))

    narrow = narrow_blocks(problem, plan_of(problem, 4), forever)
    assert narrow is not None
    assert narrow.tables == ("a", "b")
    assert narrow.longer == pytest.approx(cut(2) / cut(4) - 1, rel=1e-9)
    assert narrow_blocks(problem, plan_of(problem, 2), forever) is None
    assert narrow_blocks(problem, plan_of(problem, 4), lambda: 0.0) is None


def test_blocks_that_the_user_placed_have_no_wider_ones() -> None:
    workload = Workload(tables=tables(16, ranks=(0, 1)), local_batch_size=512)
    problem = example_problem(workload, world_size=2)
    narrow = narrow_blocks(problem, plan_of(problem, 2), forever)
    assert narrow is not None
    assert narrow.longer is None


def plan_of(problem: ShardingProblem, num_blocks: int) -> ShardingPlan:
    option = TableOption(sharding_type=ShardingType.COLUMN_WISE, num_column_shards=num_blocks)
    ranks = tuple(range(num_blocks))
    every = problem.workload.tables
    return make_plan(
        problem.topology,
        [make_sharding(table, problem.topology, option, ranks) for table in every],
    )
