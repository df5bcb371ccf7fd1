"""The search times moves exactly, keeps to memory, and does the same interpreted."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import machine, topology
from numpy.typing import NDArray
from shard_sizes import table_shard_bytes
from strategies import cases, fixed_cases
from table_options import table_options

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.engine.objective import Objective
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.traffic import MAXIMA, NUM_TRAFFIC
from costmodel.memory.rank_memory import check_memory
from costmodel.step.template import RANK_FEATURES
from planner.environment.compiled import MODULES, interpreted_modules
from planner.examples import example_problem, example_workload
from sharders.annealing.schedule import AnnealingSearch
from sharders.annealing.sharder import Annealing
from sharders.engine.params import MoveParams
from sharders.engine.problem_arrays import offered
from sharders.engine.search_engine import Engine
from sharders.engine.search_state import NO_EXCESS
from sharders.engine.tables import ON_RANKS, Move
from sharders.greedy.cost_greedy import CostGreedy
from sharders.greedy.one_pass import SizeGreedy
from sharders.greedy.tuning import NEUTRAL
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem

Case = tuple[Workload, Topology, ShardingPlan]
REPLICATED_OR_WHOLE = ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE


def engine_for(case: Case) -> Engine:
    """Return an engine that may use the plan; cases whose problem has no such options are left."""
    workload, topology, plan = case
    objective = Objective(workload, topology)
    problem = ShardingProblem.of(workload, topology, objective=objective)
    assume(offered(problem, [plan]))
    return Engine(problem, [plan])


def plans_of_every_option(workload: Workload, machines: Topology) -> Iterator[ShardingPlan]:
    """Yield plans of all combinations of options, each on the first ranks."""
    tables = workload.tables
    for chosen in product(*(table_options(workload, machines, table) for table in tables)):
        yield make_plan(machines, [
            make_sharding(table, machines, option, range(option.num_ranks))
            for table, option in zip(tables, chosen, strict=True)
        ])  # fmt: skip


@pytest.mark.slow
@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=60)
def test_plans_are_timed_as_the_objective_times_them(case: Case, seed: int) -> None:
    (workload, topology, plan), engine = case, engine_for(case)
    objective = engine.problem.objective
    assert engine.start(engine.choices_of(plan), seed) == pytest.approx(
        objective.step_time(plan), rel=1e-12
    )
    assert engine.plan_of(engine.best_since()) == plan
    anywhere = (1e3, 1e3, 1.0)  # so hot that every move is made
    choices, times = [], []
    for _ in range(3):
        run = engine.anneal(20, anywhere)
        present = engine.present()
        choices.append((np.array(present.option), np.array(present.ranks)))
        now = engine.plan_of(engine.present())
        check_plan(workload, topology, now)
        check_memory(workload, topology, now)
        times.append(float(engine.present_time()))
        assert times[-1] == pytest.approx(objective.step_time(now), rel=1e-9)
        best = engine.plan_of(engine.best_since())
        assert run.best_time == pytest.approx(objective.step_time(best), rel=1e-9)
    options, ranks = (np.array(numbers) for numbers in zip(*choices, strict=True))
    assert engine.step_times(options, ranks) == pytest.approx(times, rel=1e-9)


@pytest.mark.parametrize("rows", [100, 20_000])
def test_replicas_of_several_types_come_and_go_as_the_objective_has_them(rows: int) -> None:
    # small gradients wait in a bucket, large ones are sent as they come; plans lack some of them
    kinds = product((DataType.FP32, DataType.FP16), (Pooling.SUM, Pooling.MEAN))
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=rows, embedding_dim=64, data_type=data_type,
            pooling=pooling, sharding_types=(ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE),
        )
        for i, (data_type, pooling) in enumerate(kinds)
    )  # fmt: skip
    case = Workload(tables=tables, dense=DenseModel(bottom_mlp=(8,), top_mlp=(1,))), topology(4)
    problem = ShardingProblem.of(*case)
    engine = Engine(problem)
    for plan in plans_of_every_option(*case):
        engine.start(engine.choices_of(plan), 0)
        engine.anneal(2, (1e3, 1e3, 1.0))  # so hot that every move is made
        moved = engine.plan_of(engine.present())
        assert engine.present_time() == pytest.approx(Objective(*case).step_time(moved), rel=1e-12)


def test_moves_among_more_kernels_than_an_integer_has_bits_are_timed_as_whole_plans_are() -> None:
    optimizers = tuple(Optimizer)[:2]
    kinds = product((DataType.FP32, DataType.FP16), (Pooling.SUM, Pooling.MEAN), optimizers)
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=20_000, embedding_dim=64, pooling_factor=40,
            data_type=data_type, pooling=pooling, optimizer=optimizer,
        )
        for i, (data_type, pooling, optimizer) in enumerate(kinds)
    )  # fmt: skip
    dense = DenseModel(bottom_mlp=(8,), top_mlp=(1,))
    case = Workload(tables=tables, dense=dense), topology(4, local_world_size=2)
    objective = Objective(*case)
    problem = ShardingProblem.of(*case, objective=objective)
    engine, random = Engine(problem), Random(0)
    assert len(engine.arrays.columns.kernels) > 32
    engine.fill(NEUTRAL)
    for _ in range(3):
        engine.start(engine.present(), random.getrandbits(31))
        engine.anneal(50, (1e3, 1e3, 1.0))  # so hot that every move is made
        moved = np.array(engine.search.plan.numbers)
        engine.rebuild()
        assert np.asarray(engine.search.plan.numbers) == pytest.approx(moved, rel=1e-6)
        plan = engine.plan_of(engine.present())
        assert engine.present_time() == pytest.approx(objective.step_time(plan), rel=1e-9)


def test_no_shard_larger_than_a_rank_is_tried() -> None:
    problem = example_problem(example_workload(30, seed=4), world_size=16, num_nodes=2, fill=0.8)
    large = problem.groundwork.arrays.largest_bytes > problem.capacity
    assert large.any()
    assert not large[Engine(problem).arrays.kept].any()
    assert large[Engine(problem, every_option=True).arrays.kept].any()


def test_groups_without_stashed_tables_are_timed_as_such_whatever_other_plans_have() -> None:
    kinds = ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE, ShardingType.ROW_WISE
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=100_000, embedding_dim=64, sharding_types=kinds,
            stash_weights=i == 0,
        )
        for i in range(3)
    )  # fmt: skip
    case = Workload(tables=tables, dense=DenseModel(bottom_mlp=(8,), top_mlp=(1,))), topology(4)
    problem = ShardingProblem.of(*case)
    engine = Engine(problem, every_option=True)
    for plan in plans_of_every_option(*case):
        step_time = engine.start(engine.choices_of(plan))
        assert step_time == pytest.approx(problem.objective.step_time(plan), rel=1e-9)


@pytest.mark.parametrize("device", list(Device))
@pytest.mark.parametrize("pooling", [Pooling.SUM, Pooling.MEAN])
def test_every_option_takes_the_memory_that_it_takes_in_a_plan(
    device: Device, pooling: Pooling
) -> None:
    # outputs of row shards are added up: they take less of a GPU, and more of a CPU
    table = EmbeddingTable(name="t", num_embeddings=1000, embedding_dim=16, pooling=pooling)
    case = Workload(tables=(table,)), topology(4, 2, machine(device=device))
    problem = ShardingProblem.of(*case)
    engine = Engine(problem, every_option=True)
    for option in table_options(*case, table):
        places = range(0, 4, 2) if option.sharding_type.within_node else range(4)
        sharding = make_sharding(table, case[1], option, places[: option.num_ranks])
        engine.start(engine.choices_of(make_plan(case[1], [sharding])))
        taken = np.zeros(4)
        for shard, size in zip(sharding.shards, table_shard_bytes(*case, sharding), strict=True):
            taken[shard.rank] += size.total
        left = np.asarray(engine.search.plan.numbers)[engine.search.loads.free_row]
        assert np.array(problem.rooms) - left == pytest.approx(taken)


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=25)
def test_what_is_kept_of_a_plan_is_what_its_choices_say(case: Case, seed: int) -> None:
    engine = engine_for(case)
    engine.start(engine.choices_of(case[2]), seed)
    engine.anneal(200, (0.1, 1e-3, 200.0))  # some moves are made, some are not
    search = engine.search
    journals = search.plan.journal, search.plan.saved
    assert [journal.length for journal in journals] == [0, 0]
    now = np.asarray(search.plan.numbers), np.asarray(search.plan.loads).T
    kept = [numbers.copy() for numbers in now]
    engine.rebuild()
    first = search.plan.num_rank_features
    maxima = [range(first + column, len(now[1]), NUM_TRAFFIC) for column in MAXIMA]
    known = np.setdiff1d(np.arange(len(now[1])), maxima)  # of these, some are not
    for before, after, rows in zip(kept, now, (slice(None), known), strict=True):
        largest = np.abs(before[rows]).max(axis=1, keepdims=True)
        assert (np.abs(before - after)[rows] <= 1e-9 * largest).all()


def power_means(values: NDArray[np.float64]) -> float:
    """Return the sum over rows of the eighth root of the mean of eighth powers."""
    return float(((values**8).mean(axis=1) ** (1 / 8)).sum())


@pytest.mark.slow
@given(cases() | fixed_cases(), st.integers(0, 1000), st.sampled_from([0.05, 0.4]))
@settings(max_examples=40)
def test_a_search_minimises_the_step_and_how_unevenly_ranks_are_loaded(
    case: Case, seed: int, weight: float
) -> None:
    engine = engine_for(case)
    engine.start(engine.choices_of(case[2]), seed, weight)
    run = engine.anneal(20, (1e3, 1e3, 1.0))
    loads, plan = engine.search.loads, engine.search.plan
    features = np.asarray(plan.loads)[:, : plan.num_rank_features]
    exchanged = (features * np.asarray(loads.exchange_rates)).T
    numbers, kernels = np.asarray(plan.numbers), loads.num_kernels
    is_busy = numbers[plan.forward : plan.forward + kernels] > 0
    launches = np.asarray(loads.launch_seconds) @ is_busy
    lookups = numbers[plan.forward : plan.forward + 2 * kernels].sum(axis=0)
    assert numbers[loads.load_row] == pytest.approx(lookups, rel=1e-9)
    spread = power_means((lookups + launches)[None]) + power_means(exchanged)
    expected = engine.present_time() + weight * spread
    assert run.penalised_time == pytest.approx(expected, rel=1e-9)


def test_ranks_with_tables_of_two_kinds_launch_what_ranks_of_one_kind_do_together() -> None:
    workload = example_workload(4, seed=0)
    tables = tuple(
        replace(table, weighted=number < 2) for number, table in enumerate(workload.tables)
    )
    posed = example_problem(replace(workload, tables=tables), world_size=2)
    launches = []
    for ranks in ((0, 0, 1, 1), (0, 1, 0, 1)):
        plan = make_plan(posed.topology, [
            make_sharding(table, posed.topology, whole_table(posed, table), (rank,))
            for table, rank in zip(tables, ranks, strict=True)
        ])  # fmt: skip
        engine = Engine(posed, (plan,))
        engine.start(engine.choices_of(plan))
        launches.append(np.asarray(engine.search.plan.numbers)[engine.search.loads.launches_row])
    assert (launches[0] > 0).all()
    assert launches[1] == pytest.approx(launches[0].sum())


def whole_table(posed: ShardingProblem, table: EmbeddingTable) -> TableOption:
    """Return the option of one whole table on one rank."""
    options = posed.options[table.name]
    return next(each for each in options if each.sharding_type is ShardingType.TABLE_WISE)


def check_cycles(engine: Engine, plan: ShardingPlan, rng: Random) -> None:
    """Anneal, and compare the bounds of known cycles with the steps of plans since."""
    engine.start(engine.choices_of(plan), rng.getrandbits(31))
    world_size = engine.problem.topology.world_size
    for hot in (1e-3, 1e3, 1e3, 1e3):
        engine.anneal(50, (hot, hot, 1.0))
        search = engine.search
        if search.which < len(search.cycles) and search.cycles[search.which].is_known():
            search.plan.clear_changed()
            for rank in rng.sample(range(world_size), min(2, world_size)):
                search.plan.note_changed(rank)
            bound = search.cycles[search.which].bound(search.plan)
            search.plan.clear_changed()
            assert bound <= engine.present_time() * (1 + 1e-9)


@pytest.mark.slow
@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=40)
def test_no_step_is_shorter_than_a_cycle_of_its_program(case: Case, seed: int) -> None:
    check_cycles(engine_for(case), case[2], Random(seed))


def test_a_cycle_keeps_to_its_rank_through_what_ends_alike_on_all() -> None:
    # found by the property above: on two ranks, host operators that end alike under one plan only
    uniform = Zipf(exponent=0.0)
    rows = {"a": (100, 16, 20.0), "b": (3, 16, 0.5), "c": (5000, 16, 0.5), "d": (3, 4, 0.5)}
    made = tuple(
        EmbeddingTable(
            name=name,
            num_embeddings=num_embeddings,
            embedding_dim=embedding_dim,
            pooling_factor=pooling_factor,
            data_type=DataType.FP16 if name == "d" else DataType.FP32,
            pooling=Pooling.MEAN if name == "c" else Pooling.NONE,
            inputs=uniform,
        )
        for name, (num_embeddings, embedding_dim, pooling_factor) in rows.items()
    )
    workload = Workload(
        tables=made,
        dense=DenseModel(bottom_mlp=(64, 32), top_mlp=(64, 1)),
        local_batch_size=1024,
        pipeline=Pipeline.NONE,
        optimizer=Optimizer.SGD,
    )
    machines = topology(2)
    types = (
        ShardingType.DATA_PARALLEL,
        ShardingType.DATA_PARALLEL,
        ShardingType.ROW_WISE,
        ShardingType.TABLE_WISE,
    )
    options = [
        next(o for o in table_options(workload, machines, table) if o.sharding_type is kind)
        for table, kind in zip(made, types, strict=True)
    ]
    plan = make_plan(
        machines,
        [
            make_sharding(table, machines, option, (0,) * option.num_ranks)
            for table, option in zip(made, options, strict=True)
        ],
    )
    problem = ShardingProblem.of(workload, machines)
    check_cycles(Engine(problem, [plan]), plan, Random(534))


@pytest.mark.parametrize("world_size", [4, 16])
def test_bounds_change_no_decision(world_size: int) -> None:
    problem = example_problem(example_workload(30, seed=6), world_size=world_size)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    bounded = Engine(problem, [plan])
    timed = Engine(problem, [plan])
    timed.search.margin = 1.0
    standings = []
    for engine in (bounded, timed):
        engine.start(engine.choices_of(plan), 1)
        standings.append(engine.anneal(3000, (1e-3, 1e-4, 3000.0)))
    first, second = standings
    for name in (
        "moves",
        "decided",
        "penalised_time",
        "best_time",
        "last_gain",
    ):
        assert getattr(first, name) == getattr(second, name)
    assert first.timed < second.timed
    assert bounded.plan_of(bounded.present()) == timed.plan_of(timed.present())


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=20)
def test_moves_of_places_leave_the_options_as_they_are(case: Case, seed: int) -> None:
    workload, topology, plan = case
    engine = engine_for(case)
    before = engine.choices_of(plan)
    engine.start(before, seed)
    engine.anneal(300, (0.1, 1e-3, 300.0), placing=True)
    placed = engine.plan_of(engine.present())
    assert list(engine.present().option) == list(before.option)
    check_plan(workload, topology, placed)
    assert engine.present_time() == pytest.approx(Objective(workload, topology).step_time(placed))


def test_options_that_are_cheap_by_their_prices_are_drawn() -> None:
    problem = example_problem(example_workload(20, seed=2), world_size=8)
    engine = Engine(problem, params=MoveParams(priced_share=1.0, together_share=0.0))
    tables = engine.search.tables
    prices = np.full(len(tables.cost), 1.0)
    wanted = np.asarray(tables.kind) == list(ShardingType).index(ShardingType.ROW_WISE)
    kinds = []
    for price in (0.0, 2.0):
        prices[wanted] = price
        engine.offer(-1, prices)
        engine.fill(NEUTRAL)
        engine.start(engine.present(), 0)
        engine.anneal(20_000, (1e3, 1e3, 1.0))  # so hot that every move is made
        kinds.append(wanted[np.asarray(engine.present().option)].mean())
    assert kinds[0] > 4 * kinds[1]


def test_a_plan_that_is_out_of_balance_is_balanced_whatever_its_options() -> None:
    problem = example_problem(example_workload(40, seed=2), world_size=8)
    plan = SizeGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    search = AnnealingSearch(engine, Budget(), Random(0))
    time, balanced = search.balanced(engine.choices_of(plan))
    assert list(balanced.option) == list(engine.choices_of(plan).option)
    assert engine.start(balanced) == time == search.best[0]
    assert time < 0.99 * problem.objective.step_time(plan)


def test_all_tables_with_the_widest_shards_are_split_at_once() -> None:
    tables = tuple(
        EmbeddingTable(name=f"t{n}", num_embeddings=100_000, embedding_dim=128, pooling_factor=20)
        for n in range(4)
    )
    posed = example_problem(
        Workload(tables=tables, local_batch_size=16_384), world_size=16, num_nodes=2, fill=0.05
    )
    halves = tuple(
        make_sharding(table, posed.topology, option, (2 * n, 2 * n + 1))
        for n, table in enumerate(tables)
        for option in posed.options[table.name]
        if option.sharding_type is ShardingType.COLUMN_WISE and option.num_column_shards == 2
    )
    plan = ShardingPlan(tables=halves, world_size=16, local_world_size=8)
    engine = Engine(posed, [plan], MoveParams(together_share=1.0, finer_share=1.0))
    engine.start(engine.choices_of(plan), 0)
    engine.anneal(1, (1e3, 1e3, 1.0))  # so hot that every move is made
    found = engine.plan_of(engine.present())
    assert [len(found.table(table.name).shards) for table in tables] == [4] * 4


def test_all_tables_of_a_small_group_leave_it_at_once() -> None:
    tables = tuple(
        EmbeddingTable(name=f"t{n}", num_embeddings=1000, embedding_dim=64, weighted=n < 2)
        for n in range(20)
    )
    posed = example_problem(Workload(tables=tables, local_batch_size=1024), world_size=4)
    replicas = tuple(
        make_sharding(table, posed.topology, option, ())
        for table in tables
        for option in posed.options[table.name]
        if option.sharding_type is ShardingType.DATA_PARALLEL
    )
    plan = ShardingPlan(tables=replicas, world_size=4, local_world_size=4)
    params = MoveParams(together_share=1.0, finer_share=0.0, moves_per_step=0)
    engine = Engine(posed, [plan], params)
    engine.offer(sum(1 << list(ShardingType).index(kind) for kind in REPLICATED_OR_WHOLE))
    times_left = 0
    for seed in range(200):
        engine.start(engine.choices_of(plan), seed)
        engine.anneal(1, (1e3, 1e3, 1.0))  # so hot that every move is made
        found = zip(engine.plan_of(engine.present()).tables, plan.tables, strict=True)
        times_left += [now != before for now, before in found] == [n < 2 for n in range(20)]
    assert times_left > 10


def test_of_many_plans_those_that_memory_is_too_small_for_take_forever() -> None:
    problem = example_problem(example_workload(40, seed=2), fill=0.9)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    present = engine.choices_of(plan)
    option, ranks = np.asarray(present.option), np.asarray(present.ranks)
    piled = np.stack([ranks, np.zeros_like(ranks), ranks])
    piled[1, :, :] = np.arange(engine.arrays.widest)  # distinct, and the same for all tables
    times = engine.step_times(np.stack([option] * 3), piled)
    assert times[1] == np.inf
    assert times[[0, 2]] == pytest.approx(problem.objective.step_time(plan), rel=1e-9)


def test_ends_when_nothing_better_is_found() -> None:
    problem = example_problem(example_workload(4, seed=5), world_size=2)
    result = Annealing().shard(problem, Budget(), Random(0))
    assert result.status is SearchStatus.CONVERGED


def test_where_a_rank_is_full_another_table_leaves_it() -> None:
    problem = example_problem(example_workload(40, seed=2), fill=0.99)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    engine.start(engine.choices_of(plan))
    search, ejector = engine.search, engine.run.ejector
    option, ranks = np.asarray(search.choices.option), np.asarray(search.choices.ranks)
    blocks = np.asarray(search.tables.blocks)
    made = 0
    for table, rank in product(np.flatnonzero(blocks[option] == 1), range(4)):
        move = Move(2, engine.arrays.widest)
        np.asarray(move.table)[0], np.asarray(move.option)[0] = table, option[table]
        np.asarray(move.ranks)[0, 0], move.length = rank, 1
        is_full = not search.finds_room(move)
        ejector.find_fullest()
        search.undo(move)
        if not is_full or not ejector.eject(move):
            continue
        other = move.table[1]
        num_blocks = blocks[move.option[1]]
        assert move.length == 2
        assert other != table
        assert ejector.fullest in ranks[other, :num_blocks]
        assert ejector.fullest not in np.asarray(move.ranks)[1, :num_blocks]
        made += 1
    assert made > 0


def test_blocks_of_every_rank_are_known_whatever_moves_were_made() -> None:
    problem = example_problem(example_workload(40, seed=2), world_size=8, num_nodes=2, fill=0.9)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    engine.start(engine.choices_of(plan), 3)
    search, known = engine.search, engine.run.blocks
    tables, before = search.tables, search.choices.copy()
    engine.anneal(5000, (1e-2, 1e-5, 5000.0))
    option, ranks = np.asarray(search.choices.option), np.asarray(search.choices.ranks)
    assert (option != np.asarray(before.option)).any()
    expected: list[set[tuple[int, int]]] = [set() for _ in range(8)]
    for table, chosen in enumerate(option):
        for block in range(tables.blocks[chosen] if tables.spread[chosen] == ON_RANKS else 0):
            expected[ranks[table, block]].add((table, block))
    listed: list[set[tuple[int, int]]] = [set() for _ in range(8)]
    for blocks, first in zip(listed, np.asarray(known.first).tolist(), strict=True):
        entry = first
        while entry >= 0:
            blocks.add(divmod(entry, known.widest))
            entry = known.after[entry]
    assert listed == expected


def test_a_run_passes_through_plans_that_hold_too_much_and_returns_none() -> None:
    problem = example_problem(example_workload(40, seed=2), fill=0.99)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    engine.start(engine.choices_of(plan), 3)
    held_too_much = 0
    for _ in range(50):
        run = engine.anneal(100, (1e-3, 1e-5, 5000.0))
        free = np.asarray(engine.search.plan.numbers)[engine.search.loads.free_row]
        rooms = np.asarray(engine.search.loads.rooms)
        assert engine.search.excess() == pytest.approx((np.maximum(-free, 0) / rooms).sum())
        held_too_much += engine.search.excess() > NO_EXCESS
        best = engine.plan_of(engine.best_since())
        check_memory(problem.workload, problem.topology, best)
        assert run.best_time == pytest.approx(problem.objective.step_time(best), rel=1e-9)
    assert held_too_much > 0
    assert engine.search.price == np.inf  # other moves must fit


SEARCH = """
import sys
from random import Random
from planner.environment.compiled import interpreted_modules
from planner.examples import example_problem, example_workload
from sharders.annealing.sharder import Annealing
from sharders.problem.sharding_problem import Budget

ranks, nodes, plans = map(int, sys.argv[1:])
problem = example_problem(example_workload(12, seed=3), world_size=ranks, num_nodes=nodes)
result = Annealing().shard(problem, Budget(max_evaluations=plans), Random(0))
print(len(interpreted_modules()), repr(result.step_time), hash(repr(result.plan)))
"""
ONLY_SOURCES = """
import sys
from importlib.machinery import FileFinder, SourceFileLoader

hook = FileFinder.path_hook((SourceFileLoader, [".py"]))

def sources(path):
    if not any(part in path for part in ("costmodel", "sharders")):
        raise ImportError
    return hook(path)

sys.path_hooks.insert(0, sources)
sys.path_importer_cache.clear()
"""


def searched(code: str, *sizes: int) -> tuple[int, float, int]:
    command = [sys.executable, "-c", code, *map(str, sizes)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    run = subprocess.run(  # noqa: S603 - our own code
        command, check=True, capture_output=True, text=True, env=environment
    )
    assert run.stderr == ""
    interpreted, seconds, plan = run.stdout.split()
    return int(interpreted), float(seconds), int(plan)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(4, 2, 400), (128, 16, 40)])
def test_interpreted_it_finds_the_plan_that_it_finds_compiled(sizes: tuple[int, int, int]) -> None:
    compiled, slow = searched(SEARCH, *sizes), searched(ONLY_SOURCES + SEARCH, *sizes)
    assert compiled[0] == 0
    assert slow[0] == len(MODULES)
    assert slow[1] == pytest.approx(compiled[1], rel=1e-12)
    assert slow[2] == compiled[2]


def test_every_module_with_types_is_compiled() -> None:
    root = Path(__file__).parents[3]
    typed = {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for top in ("costmodel", "sharders")
        for path in (root / top).rglob("*.pxd")
    }
    assert set(MODULES) == typed
    assert interpreted_modules() == ()


def test_a_rank_that_cached_tables_have_left_fetches_nothing() -> None:
    kernels = (ComputeKernel.FUSED_UVM_CACHING,), (ComputeKernel.FUSED,)
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=10_000 * (i + 1), embedding_dim=16, pooling_factor=3.0,
            sharding_types=(ShardingType.TABLE_WISE,), compute_kernels=kernels[i % 2],
        )
        for i in range(8)
    )  # fmt: skip
    case = Workload(tables=tables, pipeline=Pipeline.PREFETCH), topology(4)
    problem = ShardingProblem.of(*case)
    engine = Engine(problem, every_option=True)
    placed = [make_sharding(t, case[1], table_options(*case, t)[0], [0]) for t in tables]
    engine.start(engine.choices_of(make_plan(case[1], placed)), 0)
    engine.anneal(400, (1.0, 1.0, 400.0))
    column = RANK_FEATURES.index("fetch_time")
    kept = np.asarray(engine.search.plan.loads)[:, column].copy()
    engine.rebuild()
    anew = np.asarray(engine.search.plan.loads)[:, column]
    assert kept == pytest.approx(anew, rel=1e-9)
    assert ((kept == 0.0) == (anew == 0.0)).all()
    assert anew.any()
