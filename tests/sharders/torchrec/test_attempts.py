"""What TorchRec's planner is told, how often it may propose, and what is made of its plan."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.examples import example_problem, example_workload
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem
from sharders.torchrec.attempts import (
    MEMORY_SHARES,
    Counter,
    Memory,
    first_that_fits,
    with_fixed_tables,
)

WHOLE = TableOption(sharding_type=ShardingType.TABLE_WISE)


def apart(problem: ShardingProblem, ranks: Sequence[int]) -> ShardingPlan:
    """Return the plan of whole tables on these ranks."""
    tables = problem.workload.tables
    return make_plan(
        problem.topology,
        [
            make_sharding(table, problem.topology, WHOLE, (rank,))
            for table, rank in zip(tables, ranks, strict=True)
        ],
    )


def two_that_fill_a_rank_each() -> ShardingProblem:
    tables = [EmbeddingTable(name=n, num_embeddings=10**6, embedding_dim=64) for n in "ab"]
    return example_problem(Workload(tables=tuple(tables)), world_size=2, fill=0.9)


def test_a_spent_budget_leaves_one_proposal_for_each_attempt() -> None:
    counter = Counter(Budget(max_evaluations=8))
    assert [counter.may_propose() for _ in range(6)] == [True] * 4 + [False] * 2
    assert counter.spent
    counter.fresh, counter.reserve = True, 3
    assert [counter.may_propose() for _ in range(2)] == [True, False]
    assert counter.proposed == 5


def test_memory_is_that_of_the_rank_with_least() -> None:
    problem = two_that_fill_a_rank_each()
    topology = replace(problem.topology, withheld_bytes=(0.0, 1e6))
    less = ShardingProblem.of(problem.workload, topology)
    memory = Memory.of(less, 0.5)
    assert memory.hbm == int(min(less.rooms) / 2) < int(max(less.rooms) / 2)
    assert memory.host == int(less.host_capacity / 2)


def test_a_plan_that_does_not_fit_is_asked_for_again_with_less_memory() -> None:
    problem, told = two_that_fill_a_rank_each(), []

    def planned(memory: Memory, counter: Counter) -> ShardingPlan:
        counter.may_propose()
        told.append(memory.hbm / min(problem.rooms))
        return apart(problem, (0, 0) if len(told) < 3 else (0, 1))

    found = first_that_fits(problem, Budget(), planned)
    assert told == pytest.approx(MEMORY_SHARES[:3])
    assert found.plan == apart(problem, (0, 1))
    assert (found.evaluated, found.status) == (3, SearchStatus.CONVERGED)


def test_where_no_plan_is_found_less_memory_is_not_tried() -> None:
    problem, told = two_that_fill_a_rank_each(), []

    def refused(memory: Memory, counter: Counter) -> str:
        del counter
        told.append(memory.hbm / min(problem.rooms))
        return "no room"

    with pytest.raises(InfeasibleError, match="finds no plan: no room"):
        first_that_fits(problem, Budget(), refused)
    assert told == pytest.approx([1.0, 1.15, 1.4])


def test_tables_are_moved_to_the_ranks_where_they_are_to_be() -> None:
    workload = example_workload(3)
    first, *others = workload.tables
    fixed = replace(workload, tables=(replace(first, ranks=(1,)), *others))
    problem = example_problem(fixed, world_size=2)
    assert with_fixed_tables(problem, apart(problem, (0, 0, 1))) == apart(problem, (1, 0, 1))
