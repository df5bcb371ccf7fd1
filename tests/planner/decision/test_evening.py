"""Plans of evener memory, found with less room."""

import pytest
from plans import placed

from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import memory_per_rank
from planner.decision.evening import ROOM, evened
from planner.examples import example_problem
from sharders.problem.sharding_problem import ShardingProblem

ROWS = (400_000, 200_000, 200_000, 200_000, 200_000, 200_000, 100_000, 100_000)


@pytest.fixture
def problem() -> ShardingProblem:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=rows, embedding_dim=64, pooling_factor=2)
        for i, rows in enumerate(ROWS)
    )
    return example_problem(Workload(tables=tables, local_batch_size=256), world_size=4)


def skew(problem: ShardingProblem, plan: ShardingPlan) -> float:
    held = [each.tables for each in memory_per_rank(problem.workload, problem.topology, plan)]
    return max(held) * len(held) / sum(held)


def test_a_full_rank_is_relieved(problem: ShardingProblem) -> None:
    heap = placed(problem, 0, 0, 0, 1, 1, 2, 3, 3)
    assert skew(problem, heap) == pytest.approx(2, rel=0.05)  # 800 of 400 thousand rows
    end = evened(problem, heap)
    assert skew(problem, end) <= ROOM
    assert problem.objective.step_time(end) <= 1.01 * problem.objective.step_time(heap)


def test_an_even_plan_stays_as_it_is(problem: ShardingProblem) -> None:
    even = placed(problem, 0, 1, 1, 2, 2, 3, 3, 3)
    assert skew(problem, even) <= ROOM
    assert evened(problem, even) is even


def test_a_table_that_fills_a_rank_has_room(problem: ShardingProblem) -> None:
    workload = Workload(tables=problem.workload.tables[:2], local_batch_size=256)
    alone = ShardingProblem.of(workload, problem.topology)
    apart = placed(alone, 0, 1)
    assert skew(alone, apart) > 2  # whole, it can be no evener
    assert evened(alone, apart) is apart
