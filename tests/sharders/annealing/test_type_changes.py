"""All tables of a sharding type get another one, or the cheapest of those that are left."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pooling
from costmodel.step.cuts import KINDS
from planner.examples import example_problem, example_workload
from sharders.annealing.programs import better_filled
from sharders.annealing.type_changes import TypeChanges
from sharders.annealing.type_options import TypeOptions
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.problem.sharding_problem import ShardingProblem

USED = [
    ShardingType.TABLE_WISE,
    ShardingType.COLUMN_WISE,
    ShardingType.ROW_WISE,
    ShardingType.TABLE_ROW_WISE,
]


def problem(*only: tuple[ShardingType, ...], weighted: bool = False) -> ShardingProblem:
    """Return a problem of small batches on two nodes; the first tables allow only some types."""
    made = example_workload(24, seed=3)
    tables = tuple(
        replace(
            table,
            num_embeddings=min(table.num_embeddings, 100_000),
            weighted=weighted and number % 2 == 0,
            pooling=Pooling.SUM,
            data_type=DataType.FP32,
            sharding_types=only[number] if number < len(only) else table.sharding_types,
        )
        for number, table in enumerate(made.tables)
    )
    workload = replace(made, tables=tables, local_batch_size=64)
    return example_problem(workload, world_size=16, num_nodes=2)


def of_every_type(engine: Engine, options: TypeOptions) -> Choices:
    """Return a plan whose tables have four sharding types in turn, where they allow them."""
    wanted = [KINDS[USED[number % len(USED)]] for number in range(options.numbers.shape[1])]
    numbers = options.numbers[wanted, np.arange(len(wanted))]
    any_type = options.numbers.max(axis=0)
    return better_filled(engine, np.where(numbers >= 0, numbers, any_type))[1]


def types(engine: Engine, plan: Choices) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Return the sharding type of every table, by its place in ``TYPES``."""
    return np.asarray(engine.search.tables.kind)[np.asarray(plan.option)]


def test_where_launches_decide_a_descent_leaves_few_types() -> None:
    posed = problem()
    engine = Engine(posed)
    options = TypeOptions(engine)
    plan = of_every_type(engine, options)
    before = posed.objective.step_time(engine.plan_of(plan))
    assert len(set(types(engine, plan).tolist())) == len(USED)
    found = TypeChanges(engine, options).descend(plan, lambda: False)
    assert [time for time, _ in found] == sorted(time for time, _ in found)
    assert found[0][0] < before
    assert len(set(types(engine, found[0][1]).tolist())) < len(USED) - 1
    for time, made in found:
        assert time == pytest.approx(posed.objective.step_time(engine.plan_of(made)), rel=1e-9)


def test_all_tables_of_a_type_change_together() -> None:
    engine = Engine(problem())
    options = TypeOptions(engine)
    plan = of_every_type(engine, options)
    before, alone = types(engine, plan), set[int]()
    for _, made in TypeChanges(engine, options).around(plan, lambda: False):
        after = types(engine, made)
        left = set(before[before != after].tolist())
        if len(left) == 1:  # or others found no room on their kernels' ranks
            assert not (after[np.isin(before, list(left))] == list(left)).any()
            alone |= left
    assert alone == set(before.tolist())


def test_kinds_of_tables_change_by_themselves_too() -> None:
    posed = problem(weighted=True)
    engine = Engine(posed)
    options = TypeOptions(engine)
    plan = of_every_type(engine, options)
    before = types(engine, plan)
    weighted = np.array([table.weighted for table in posed.workload.tables])
    changed = [
        before != types(engine, made)
        for _, made in TypeChanges(engine, options).around(plan, lambda: False)
    ]
    assert any(not some[weighted].any() for some in changed)
    assert any(not some[~weighted].any() for some in changed)
    assert any(some[weighted].any() and some[~weighted].any() for some in changed)


def test_tables_that_allow_no_other_type_keep_theirs() -> None:
    row_wise, column_wise = (ShardingType.ROW_WISE,), (ShardingType.COLUMN_WISE,)
    engine = Engine(problem(row_wise, column_wise))
    options = TypeOptions(engine)
    found = TypeChanges(engine, options).descend(of_every_type(engine, options), lambda: False)
    wanted = [KINDS[ShardingType.ROW_WISE], KINDS[ShardingType.COLUMN_WISE]]
    assert found
    assert all(types(engine, plan)[:2].tolist() == wanted for _, plan in found)


def test_nothing_is_looked_at_once_the_search_is_over() -> None:
    engine = Engine(problem())
    options = TypeOptions(engine)
    changes = TypeChanges(engine, options)
    assert changes.descend(of_every_type(engine, options), lambda: True) == []
    assert changes.evaluated == 0


def test_a_descent_ends_between_two_plans_and_keeps_those_it_has() -> None:
    """A plan of thousands of tables takes long: a search may be over before all around are made."""
    engine = Engine(problem())
    options = TypeOptions(engine)
    changes = TypeChanges(engine, options)
    plan = of_every_type(engine, options)
    found = changes.descend(plan, lambda: changes.evaluated >= 6)
    assert changes.evaluated == 6
    assert 1 <= len(found) <= 3
