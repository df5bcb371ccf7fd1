"""All tables of a kind get one sharding type, and the better one of several."""

from dataclasses import replace
from math import inf

import pytest

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pooling
from costmodel.step.cuts import TYPES
from planner.examples import example_problem, example_workload
from sharders.annealing.kind_types import KindTypes
from sharders.annealing.type_options import TypeOptions
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.tuning import NEUTRAL
from sharders.problem.sharding_problem import ShardingProblem


def problem() -> ShardingProblem:
    """Return a problem of three kinds of tables on two nodes; unpooled ones are few."""
    made = example_workload(24, seed=3)
    tables = tuple(
        replace(
            table,
            weighted=number % 3 == 0,
            pooling=Pooling.NONE if number % 12 == 1 else Pooling.SUM,
            data_type=DataType.FP32,
        )
        for number, table in enumerate(made.tables)
    )
    workload = replace(made, tables=tables, local_batch_size=64)
    return example_problem(workload, world_size=16, num_nodes=2)


def types_by_kind(posed: ShardingProblem, engine: Engine, plan: Choices) -> list[set[ShardingType]]:
    """Return the sharding types that the tables of every kind have."""
    types: dict[object, set[ShardingType]] = {}
    for table, option in zip(posed.workload.tables, plan.option, strict=True):
        own = types.setdefault((table.weighted, table.pooling), set())
        own.add(TYPES[engine.search.tables.kind[option]])
    return list(types.values())


def test_descents_end_where_no_kind_is_better_off_with_another_type() -> None:
    posed = problem()
    engine = Engine(posed)
    kinds = KindTypes(engine, TypeOptions(engine))
    first = kinds.first()
    found = [plan for plan in kinds.descents() if plan is not None]
    assert found
    assert min(time for time, _ in found) <= first[0] < inf
    for time, plan in found:
        types = types_by_kind(posed, engine, plan)
        assert len(types) == 3
        assert all(len(own) == 1 for own in types)
        assert time == pytest.approx(posed.objective.step_time(engine.plan_of(plan)), rel=1e-9)
    assert kinds.evaluated < 2 * 7**3  # hardly any plan is made twice


def test_kinds_that_cannot_have_a_type_get_another_one() -> None:
    posed = problem()
    engine = Engine(posed)
    kinds = KindTypes(engine, TypeOptions(engine))
    _, plan = kinds.first()
    assert all(len(own) == 1 for own in types_by_kind(posed, engine, plan))


def test_few_launches_are_worth_more_than_what_suits_each_table() -> None:
    """With small batches every kind has one type; single tables would rather have their own."""
    posed = problem()
    engine = Engine(posed)
    best = min(time for time, _ in filter(None, KindTypes(engine, TypeOptions(engine)).descents()))
    usual = engine.fill(NEUTRAL)
    assert best < usual
