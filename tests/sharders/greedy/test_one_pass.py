from collections.abc import Sequence
from dataclasses import replace
from random import Random as RandomState

import pytest
from load_objective import LoadObjective

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.inputs.distribution import Zipf
from planner.examples import example_hardware
from sharders.greedy.one_pass import (
    LookupGreedy,
    Naive,
    NormLookupGreedy,
    Random,
    SizeGreedy,
    SizeLookupGreedy,
)
from sharders.problem.sharding_problem import Budget, Progress, Sharder, ShardingProblem


def table(name: str, rows: int, dim: int = 16, pooling_factor: float = 1) -> EmbeddingTable:
    return EmbeddingTable(
        name=name, num_embeddings=rows, embedding_dim=dim, pooling_factor=pooling_factor
    )


def problem_of(tables: Sequence[EmbeddingTable]) -> ShardingProblem:
    workload = Workload(tables=tuple(tables), local_batch_size=64)
    topology = Topology(hardware=example_hardware(), world_size=2, local_world_size=2)
    return ShardingProblem.of(workload, topology, objective=LoadObjective(workload))


def plan_of(sharder: Sharder, tables: Sequence[EmbeddingTable], seed: int = 0) -> ShardingPlan:
    return sharder.shard(problem_of(tables), Budget(), RandomState(seed)).plan


def ranks(sharder: Sharder, *tables: EmbeddingTable, seed: int = 0) -> str:
    plan = plan_of(sharder, tables, seed)
    return " ".join(str(sharding.ranks[0]) for sharding in plan.tables)


def test_naive_is_round_robin() -> None:
    assert ranks(Naive(), *(table(str(index), 100) for index in range(5))) == "0 1 0 1 0"


def test_random_depends_on_the_seed_only() -> None:
    tables = [table(str(index), 100) for index in range(30)]
    assert ranks(Random(), *tables) == ranks(Random(), *tables)
    assert ranks(Random(), *tables) != ranks(Random(), *tables, seed=1)


def test_size_greedy_balances_bytes() -> None:
    # 50 alone; 30, then 20, then 10 reach 60 on the other rank only after 50 <= 50
    tables = (table("a", 30), table("b", 50), table("c", 20), table("d", 10))
    assert ranks(SizeGreedy(), *tables) == "1 0 1 0"


def test_lookup_greedy_ignores_rows() -> None:
    tables = (table("a", 10**6), table("b", 10, pooling_factor=9), table("c", 10**6))
    assert ranks(LookupGreedy(), *tables) == "1 0 1"


def test_size_lookup_greedy_weighs_lookups_by_the_digits_of_the_rows() -> None:
    # L D log10 E: 16 x (3 x 6 = 18, 4 x 2 = 8, 4 x 2 = 8); by lookups alone a would be last
    tables = (
        table("a", 10**6, pooling_factor=3),
        *(table(name, 100, pooling_factor=4) for name in "bc"),
    )
    assert ranks(SizeLookupGreedy(), *tables) == "0 1 1"
    assert ranks(LookupGreedy(), *tables) == "0 1 0"


def test_norm_lookup_greedy_counts_distinct_rows() -> None:
    # a and b are read ten times as often as c, but have only ten rows each to fetch
    tables = (
        table("a", 10, pooling_factor=10),
        table("b", 10, pooling_factor=10),
        table("c", 10**6),
    )
    assert ranks(NormLookupGreedy(), *tables) == "1 1 0"


@pytest.mark.parametrize(
    ("pooling_factor", "other_dim", "expected"), [(1, 64, "0 1"), (4, 128, "0 1"), (1, 128, "1 0")]
)
def test_norm_lookup_greedy_counts_the_ids_of_all_ranks(
    pooling_factor: float, other_dim: int, expected: str
) -> None:
    """128 samples: 16 columns of 128 or 512 rows beside 64 or 128 of 29.6 rows.

    Those of 32 samples hit 32 and 19.9 rows.
    """
    uniform = Zipf(exponent=0.0)
    tables = (
        replace(table("a", 10**9, pooling_factor=pooling_factor), inputs=uniform),
        replace(table("b", 30, dim=other_dim), inputs=uniform),
    )
    assert ranks(NormLookupGreedy(), *tables) == expected


def test_one_plan_is_looked_at_and_reported() -> None:
    seen: list[Progress] = []
    problem = problem_of([table("a", 10)])
    result = Naive().shard(problem, Budget(report=seen.append), RandomState(0))
    assert seen == [Progress(evaluated=1, best=result.step_time)]


@pytest.mark.parametrize("sharder", [SizeGreedy(), LookupGreedy(), SizeLookupGreedy()])
def test_equal_tables_are_spread_evenly(sharder: Sharder) -> None:
    placed = ranks(sharder, *(table(str(index), 100) for index in range(8)))
    assert placed.count("0") == placed.count("1")
