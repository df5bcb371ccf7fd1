"""The greedy keeps to memory, weights decide what it splits, and tuned it is no worse."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DataType, EmbeddingTable, Pooling, Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.engine.search_engine import Engine
from sharders.greedy.tuning import NEUTRAL, drawn
from sharders.problem.sharding_problem import ShardingProblem

PROBLEM = example_problem(example_workload(30, seed=3), world_size=8)


@given(cases(), st.integers(0, 1000))
@settings(max_examples=25)
def test_plans_are_valid_and_timed_as_the_objective_times_them(
    case: tuple[Workload, Topology, ShardingPlan], seed: int
) -> None:
    workload, topology, _ = case
    objective = Objective(workload, topology)
    engine = Engine(ShardingProblem.of(workload, topology, objective=objective))
    step_time = engine.fill(dict(drawn(Random(seed))))
    if step_time < inf:
        plan = engine.plan_of(engine.present())
        check_plan(workload, topology, plan)
        check_memory(workload, topology, plan)
        assert step_time == pytest.approx(objective.step_time(plan), rel=1e-9)


def test_weights_decide_which_types_are_used() -> None:
    engine = Engine(PROBLEM)
    for kind in (ShardingType.ROW_WISE, ShardingType.COLUMN_WISE):
        weights = {f"weight {each.value}": -1.5 if each is kind else 1.5 for each in ShardingType}
        engine.fill({**NEUTRAL, **weights, "split_above": 0.02})
        used = [table.sharding_type for table in engine.plan_of(engine.present()).tables]
        assert used.count(kind) > len(used) / 2


@pytest.mark.parametrize("fill", [0.5, 0.9, 0.95])
def test_tables_have_the_options_preferred_where_there_is_room(fill: float) -> None:
    problem = example_problem(example_workload(30, seed=3), world_size=8, fill=fill)
    engine = Engine(problem, every_option=True)
    begins = np.asarray(engine.search.tables.options)[:-1]
    of_type = np.asarray(engine.search.tables.kind) == list(ShardingType).index(
        ShardingType.DATA_PARALLEL
    )
    replica = np.array([first + int(np.argmax(of_type[first:])) for first in begins])
    time = engine.fill(NEUTRAL, replica)
    assert time < inf
    plan = engine.plan_of(engine.present())
    check_memory(problem.workload, problem.topology, plan)
    assert time == pytest.approx(problem.objective.step_time(plan), rel=1e-9)
    preferred = sum(table.sharding_type is ShardingType.DATA_PARALLEL for table in plan.tables)
    assert preferred < len(plan.tables)  # replicas of all have no room
    if fill > 0.9:  # nor has any one, once the others are placed by size
        return
    engine.fill(NEUTRAL)
    without = engine.plan_of(engine.present())
    assert preferred > sum(
        table.sharding_type is ShardingType.DATA_PARALLEL for table in without.tables
    )


def test_tables_that_must_be_on_certain_ranks_find_room_before_others_take_it() -> None:
    # every rank has room for two tables, and the last one is the least loaded
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=10_000_000, embedding_dim=64, pooling_factor=8 - i,
            sharding_types=(ShardingType.TABLE_WISE,), ranks=(0,) if i > 5 else (),
        )
        for i in range(8)
    )  # fmt: skip
    problem = example_problem(Workload(tables=tables), world_size=4, fill=0.9)
    engine = Engine(problem)
    assert engine.fill(dict(NEUTRAL)) < inf
    plan = engine.plan_of(engine.present())
    assert [plan.table(name).ranks for name in ("t6", "t7")] == [(0,), (0,)]


def test_what_all_ranks_hold_is_placed_before_others_fill_them() -> None:
    # the large table fits on a rank whole, but not beside the replica
    allowed = (
        frozenset({ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE}),
        frozenset({ShardingType.DATA_PARALLEL}),
    )
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=rows, embedding_dim=64, pooling_factor=rows / 1e5,
            sharding_types=tuple(kinds),
        )
        for i, (rows, kinds) in enumerate(zip((20_000_000, 1_000_000), allowed, strict=True))
    )  # fmt: skip
    workload = Workload(tables=tables, local_batch_size=16_384)
    problem = example_problem(workload, world_size=4, fill=0.262)
    engine = Engine(problem, every_option=True)
    assert engine.fill({**NEUTRAL, "split_above": 100.0}) < inf
    plan = engine.plan_of(engine.present())
    check_memory(problem.workload, problem.topology, plan)
    assert plan.table("t0").sharding_type is ShardingType.COLUMN_WISE


def test_what_ranks_send_is_balanced_besides_what_they_look_up() -> None:
    # three tables of long bags keep three of four ranks busy; the last one alone would get most of
    # the twelve wide ones, and all ranks wait for what it sends
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=100_000, embedding_dim=dim, pooling_factor=bag,
            sharding_types=(ShardingType.TABLE_WISE,),
        )
        for i, (dim, bag) in enumerate([(16, 300.0)] * 3 + [(256, 1.0)] * 12)
    )  # fmt: skip
    engine = Engine(example_problem(Workload(tables=tables), world_size=4, fill=0.2))
    assert engine.fill(dict(NEUTRAL)) < inf
    plan = engine.plan_of(engine.present())
    wide = [plan.table(f"t{i}").ranks[0] for i in range(3, 15)]
    assert max(map(wide.count, range(4))) < 7


def of_kinds(num_kinds: int, kind: ShardingType, topology: Mapping[str, int]) -> ShardingProblem:
    """Return a problem of tables of so many kinds, which all have one sharding type."""
    natures = list(product((False, True), (DataType.FP32, DataType.FP16)))
    made = example_workload(24, seed=3)
    tables = tuple(
        replace(
            table,
            sharding_types=(kind,),
            pooling=Pooling.SUM,
            weighted=natures[number % num_kinds][0],
            data_type=natures[number % num_kinds][1],
        )
        for number, table in enumerate(made.tables)
    )
    return example_problem(replace(made, tables=tables), fill=0.1, **topology)


def kinds_on_ranks(problem: ShardingProblem, plan: ShardingPlan) -> list[int]:
    """Return of how many kinds each rank has tables."""
    kind = {table.name: (table.weighted, table.data_type) for table in problem.workload.tables}
    ranks = range(problem.topology.world_size)
    return [len({kind[each.table] for each in plan.tables if rank in each.ranks}) for rank in ranks]


@pytest.mark.parametrize("kind", [ShardingType.TABLE_WISE, ShardingType.TABLE_ROW_WISE])
@pytest.mark.parametrize("num_kinds", [2, 3, 4])
def test_a_rank_has_as_few_lookup_kernels_as_there_can_be(
    kind: ShardingType, num_kinds: int
) -> None:
    problem = of_kinds(num_kinds, kind, {"world_size": 8, "num_nodes": 4})
    engine = Engine(problem)
    assert engine.fill({**NEUTRAL, "apart": 1.0}) < inf
    plan = engine.plan_of(engine.present())
    assert set(kinds_on_ranks(problem, plan)) == {1}
    check_memory(problem.workload, problem.topology, plan)


def test_ranks_that_the_user_gives_to_some_tables_have_no_other_kernels() -> None:
    problem = of_kinds(4, ShardingType.TABLE_WISE, {"world_size": 8})
    given = {0: 5, 4: 6, 8: 7}  # all of one kind, which has other tables, too
    tables = tuple(
        replace(table, ranks=(given[number],)) if number in given else table
        for number, table in enumerate(problem.workload.tables)
    )
    workload = replace(problem.workload, tables=tables)
    posed = example_problem(workload, fill=0.1, world_size=8)
    engine = Engine(posed)
    assert engine.fill({**NEUTRAL, "apart": 1.0}) < inf
    assert set(kinds_on_ranks(posed, engine.plan_of(engine.present()))) == {1}


def test_shards_within_a_node_leave_some_of_its_ranks_to_other_kernels() -> None:
    made = example_workload(24, seed=3)
    types = ShardingType.TABLE_COLUMN_WISE, ShardingType.TABLE_WISE
    tables = tuple(
        replace(table, sharding_types=(types[number % 4 > 0],), weighted=False, pooling=Pooling.SUM)
        for number, table in enumerate(made.tables)
    )
    problem = example_problem(replace(made, tables=tables), fill=0.1, world_size=8)
    engine = Engine(problem)
    assert engine.fill({**NEUTRAL, "apart": 1.0}) < inf
    plan = engine.plan_of(engine.present())
    on_ranks = [
        {each.sharding_type for each in plan.tables if rank in each.ranks} for rank in range(8)
    ]
    assert set(map(len, on_ranks)) == {1}
    assert set().union(*on_ranks) == set(types)


def test_kernels_share_ranks_where_there_are_more_of_them() -> None:
    problem = of_kinds(3, ShardingType.TABLE_WISE, {"world_size": 2})
    engine = Engine(problem)
    assert engine.fill({**NEUTRAL, "apart": 1.0}) < inf
    kinds = kinds_on_ranks(problem, engine.plan_of(engine.present()))
    assert max(kinds) == 2
    assert sum(kinds) >= 3


@pytest.mark.parametrize("seed", range(3))
def test_replicas_of_small_tables_have_room_where_memory_is_nearly_full(seed: int) -> None:
    # they take least, so they would come last, and the fullest rank has no room for them by then
    problem = example_problem(example_workload(80, seed=seed), world_size=8, fill=0.86)
    engine, tables = Engine(problem, every_option=True), problem.workload.tables
    kind, begins = np.asarray(engine.search.tables.kind), engine.search.tables.options
    by_size = sorted(range(80), key=lambda t: tables[t].num_embeddings * tables[t].embedding_dim)
    of_type = [ShardingType.TABLE_WISE] * 80
    for table in by_size[:30]:
        of_type[table] = ShardingType.DATA_PARALLEL
    preferred = np.array([
        begins[t] + list(kind[begins[t] :]).index(list(ShardingType).index(own))
        for t, own in enumerate(of_type)
    ])
    assert engine.fill(NEUTRAL, preferred) < inf
    plan = engine.plan_of(engine.present())
    replicas = [tables[number].name for number in by_size[:30]]
    assert all(plan.table(name).sharding_type is ShardingType.DATA_PARALLEL for name in replicas)
    check_memory(problem.workload, problem.topology, plan)
