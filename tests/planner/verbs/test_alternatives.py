from dataclasses import replace
from math import inf

import pytest

import planner
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Pooling, Workload
from costmodel.engine.objective import Objective
from planner.decision.narrow import on_ranks
from planner.examples import example_hardware, example_workload
from planner.verbs.alternatives import (
    ELSEWHERE,
    Alternatives,
    alternatives,
    best_change,
)
from planner.verbs.diff import with_table


@pytest.fixture(scope="module")
def planned() -> planner.Planned:
    return planner.plan(
        example_workload(6),
        gpus=2,
        hardware=example_hardware(),
        sharder="lookup_greedy",
        baseline="none",
    )


def test_a_step_is_what_the_objective_says_of_the_changed_plan(planned: planner.Planned) -> None:
    objective = Objective(planned.workload, planned.topology)
    others = alternatives(planned)
    assert set(others) == {table.name for table in planned.workload.tables}
    moved = [s for s in planned.plan.tables if s.sharding_type == "table_wise"]
    sharding = moved[0]
    kind, other = sharding.sharding_type, (1 - sharding.ranks[0],)
    elsewhere = on_ranks(planned.workload, planned.plan, sharding, other, kind)
    expected = objective.step_time(with_table(planned.plan, elsewhere))
    now = objective.step_time(planned.plan)
    assert others[sharding.table].ratios[ELSEWHERE] == pytest.approx(expected / now, rel=1e-9)


def test_the_best_change_is_the_shortest_step_that_fits() -> None:
    others = Alternatives(ratios={"row_wise": 1.1, "data_parallel": inf}, fixed=False)
    assert best_change(others) == pytest.approx(0.1)
    assert best_change(Alternatives(ratios={"row_wise": inf}, fixed=False)) is None


def test_other_ways_of_the_same_type_are_told_from_the_present_one() -> None:
    table = EmbeddingTable(
        name="a", num_embeddings=1_000_000, embedding_dim=128, pooling_factor=20, min_shard_dim=32,
        sharding_types=(ShardingType.COLUMN_WISE,),
    )  # fmt: skip
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM)
    hosted = EmbeddingTable(
        name="b", num_embeddings=1_000_000, embedding_dim=128, compute_kernels=kernels,
        sharding_types=(ShardingType.ROW_WISE,),
    )  # fmt: skip
    made = planner.plan(
        Workload(tables=(table, hosted), local_batch_size=4096),
        gpus=4, hardware="h200-sxm", sharder="naive", baseline="none",
    )  # fmt: skip
    ways = {name: set(others.ratios) for name, others in alternatives(made).items()}
    (blocks,) = {2, 4} - {len(made.plan.table("a").shards)}
    assert ways["a"] - {ELSEWHERE} == {f"column_wise in {blocks} blocks"}
    (other,) = set(kernels) - {made.plan.table("b").compute_kernel}
    assert ways["b"] == {f"row_wise by {other}"}


def test_elsewhere_is_the_best_of_the_other_ranks() -> None:
    # the emptiest rank has an unpooled table alone: another kernel there costs more than its load
    pooled = [
        EmbeddingTable(name=f"p{n}", num_embeddings=1_000_000, embedding_dim=64, pooling_factor=20)
        for n in range(3)
    ]
    unpooled = EmbeddingTable(
        name="u", num_embeddings=1_000_000, embedding_dim=16, pooling=Pooling.NONE, pooling_factor=2
    )
    made = planner.plan(
        Workload(tables=(*pooled, unpooled), local_batch_size=4096),
        gpus=3, hardware="h200-sxm", sharder="naive", baseline="none",
    )  # fmt: skip
    plan, kind = made.plan, ShardingType.TABLE_WISE
    for table, rank in {"p0": 0, "p1": 1, "p2": 0, "u": 2}.items():
        sharding = next(each for each in plan.tables if each.table == table)
        plan = with_table(plan, on_ranks(made.workload, plan, sharding, (rank,), kind))
    own = next(each for each in plan.tables if each.table == "p0")
    objective = Objective(made.workload, made.topology)
    steps = [
        objective.step_time(with_table(plan, on_ranks(made.workload, plan, own, (rank,), kind)))
        for rank in (1, 2)
    ]
    assert steps[0] < steps[1]
    found = alternatives(replace(made, plan=plan))["p0"].ratios[ELSEWHERE]
    assert found == pytest.approx(steps[0] / objective.step_time(plan), rel=1e-9)
