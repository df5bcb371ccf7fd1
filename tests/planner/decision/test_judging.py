"""What a choice is weighed against, and what would turn it."""

from dataclasses import replace

import pytest

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from planner import plan
from planner.decision import judging
from planner.decision.choice import SIMPLE, simple_plan
from planner.decision.judging import cut_small, explained_rival
from planner.examples import example_problem
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem


@pytest.fixture
def problem() -> ShardingProblem:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=10**6, embedding_dim=64, pooling_factor=2 + i)
        for i in range(6)
    )
    return example_problem(Workload(tables=tables, local_batch_size=2048), world_size=2)


def test_the_simple_plan_is_the_faster_one_and_always_the_same(problem: ShardingProblem) -> None:
    first, second = simple_plan(problem), simple_plan(problem)
    assert first is not None
    assert second is not None
    assert first.plan == second.plan
    assert first.sharder in SIMPLE


def test_a_plan_is_as_good_as_itself(problem: ShardingProblem) -> None:
    simple = simple_plan(problem)
    assert simple is not None
    rival = explained_rival(problem.workload, problem.topology, simple.found)
    assert rival is not None
    if rival.plan == simple.plan:
        assert (rival.longer, rival.probability_slower) == (0.0, 0.5)
    assert rival.is_as_good == (rival.longer <= 0.01)


def test_a_planner_that_is_not_done_in_time_is_no_rival(
    problem: ShardingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "RIVAL_TIME", -1.0)
    simple = simple_plan(problem)
    assert simple is not None
    rival = explained_rival(problem.workload, problem.topology, simple.found)
    assert rival is not None
    assert rival.sharder == simple.sharder


@pytest.mark.parametrize("seed", [0, 1])
def test_the_rival_does_not_depend_on_the_seed(problem: ShardingProblem, seed: int) -> None:
    hardware = problem.topology.hardware
    made = plan(problem.workload, gpus=2, hardware=hardware, seed=seed, max_plans=60)
    assert made.report.verdict is not None
    assert made.report.verdict.rival is not None
    again = explained_rival(made.workload, made.topology, made.plan)
    assert again is not None
    assert again.plan == made.report.verdict.rival.plan


def test_small_tables_that_are_cut_are_weighed_against_whole_ones() -> None:
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=100, embedding_dim=64, pooling_factor=2)
        for i in range(3)
    )
    problem = example_problem(Workload(tables=tables, local_batch_size=256), world_size=2)
    rows, whole = (
        make_plan(
            problem.topology,
            [make_sharding(each, problem.topology, TableOption(sharding_type=kind), ranks)
             for each in tables],
        )
        for kind, ranks in ((ShardingType.ROW_WISE, ()), (ShardingType.TABLE_WISE, (0,)))
    )  # fmt: skip
    assert cut_small(problem, whole) is None
    found = cut_small(problem, rows)
    assert found is not None
    assert found.tables == ("t0", "t1", "t2")
    assert found.longer is not None
    alone = example_problem(problem.workload, world_size=2, num_nodes=2)  # nodes of one rank
    kind = TableOption(sharding_type=ShardingType.TABLE_ROW_WISE)
    made = [make_sharding(each, alone.topology, kind, (0,)) for each in tables]
    assert cut_small(alone, make_plan(alone.topology, made)) is None
    strict = replace(tables[0], sharding_types=(ShardingType.ROW_WISE,))
    bound = ShardingProblem.of(
        replace(problem.workload, tables=(strict, *tables[1:])), problem.topology
    )
    fixed = cut_small(bound, rows)
    assert fixed is not None
    assert fixed.longer is None
