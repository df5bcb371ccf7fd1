"""The compiled search times moves exactly, keeps to memory, and finds what others find."""

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import cases, fixed_cases

from costmodel.execution.native_cycles import Cycle, bound
from costmodel.hardware import Topology
from costmodel.kernels.embedding import NUM_TRAFFIC, Traffic
from costmodel.memory import check_memory
from costmodel.objective import Objective
from costmodel.plan import ShardingPlan
from costmodel.validity import check_plan
from costmodel.workload import Workload
from planner.examples import example_problem, example_workload
from sharders.annealing import Annealing
from sharders.cost_greedy import CostGreedy
from sharders.native.bursts import Bursts
from sharders.native.engine import Engine
from sharders.native.room import make_way
from sharders.native.tables import offered
from sharders.problem import Budget, SearchStatus, ShardingProblem
from sharders.search_state import SearchState
from sharders.table_iii import SizeGreedy

Case = tuple[Workload, Topology, ShardingPlan]


def compiled(most: int | None = None) -> Budget:
    return Budget(max_evaluations=most, compiled=lambda: True)


def engine_for(case: Case) -> Engine:
    """Return an engine that may use the plan; cases whose problem has no such options are left."""
    workload, topology, plan = case
    objective = Objective(workload, topology)
    problem = ShardingProblem(workload=workload, topology=topology, objective=objective)
    assume(offered(problem, [plan]))
    return Engine(problem, [plan])


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_plans_are_timed_as_the_objective_times_them(case: Case, seed: int) -> None:
    (workload, topology, plan), engine = case, engine_for(case)
    objective = engine.problem.objective
    assert engine.start(engine.choices_of(plan)) == pytest.approx(
        objective.step_time(plan), rel=1e-12
    )
    assert engine.plan_of(engine.best_since()) == plan
    rng, anywhere = Random(seed), (1e3, 1e3, 1.0)  # so hot that every move is made
    choices, times = [], []
    for _ in range(3):
        standing = engine.anneal(20, anywhere, rng)
        choices.append([numbers.copy() for numbers in engine.search.choices])
        now = engine.plan_of(engine.present())
        check_plan(workload, topology, now)
        check_memory(workload, topology, now)
        times.append(float(engine.present_time()))
        assert times[-1] == pytest.approx(objective.step_time(now), rel=1e-9)
        best = engine.plan_of(engine.best_since())
        assert standing.best == pytest.approx(objective.step_time(best), rel=1e-9)
    options, ranks = (np.array(numbers) for numbers in zip(*choices, strict=True))
    assert engine.step_times(options, ranks) == pytest.approx(times, rel=1e-9)


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_what_is_kept_of_a_plan_is_what_its_choices_say(case: Case, seed: int) -> None:
    engine, rng = engine_for(case), Random(seed)
    engine.start(engine.choices_of(case[2]))
    engine.anneal(200, (0.1, 1e-3, 200.0), rng)  # some moves are made, some are not
    search = engine.search
    journals = search.plan.journal, search.plan.loads.saved
    assert [int(journal.length[0]) for journal in journals] == [0, 0]
    now = search.plan.numbers, search.plan.loads.of_ranks.T
    kept = [numbers.copy() for numbers in now]
    engine.anneal(0, (1.0, 1.0, 1.0), rng)  # computes all anew
    chains = range(search.plan.machine.num_rank_features + Traffic.CHAIN, len(now[1]), NUM_TRAFFIC)
    known = np.setdiff1d(np.arange(len(now[1])), chains)  # of the longest bags, some are not
    for before, after, rows in zip(kept, now, (slice(None), known), strict=True):
        largest = np.abs(before[rows]).max(axis=1, keepdims=True)
        assert (np.abs(before - after)[rows] <= 1e-9 * largest).all()


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_compiled_or_not_a_search_minimises_the_same(case: Case, seed: int) -> None:
    engine, rng = engine_for(case), Random(seed)
    engine.start(engine.choices_of(case[2]))
    standing = engine.anneal(20, (1e3, 1e3, 1.0), rng)
    state = SearchState(engine.problem, Objective(case[0], case[1]))
    state.start(engine.plan_of(engine.present()))
    (guide,) = state.times([{}])[1]
    assert standing.guide == pytest.approx(guide, rel=1e-9)


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_no_step_is_shorter_than_a_cycle_of_its_program(case: Case, seed: int) -> None:
    engine, rng = engine_for(case), Random(seed)
    engine.start(engine.choices_of(case[2]))
    world_size = engine.problem.topology.world_size
    for hot in (1e-3, 1e3, 1e3, 1e3):
        engine.anneal(50, (hot, hot, 1.0), rng)
        search = engine.search
        number = int(search.which[0])
        if number < len(search.cycles.span) and search.cycles.span[number, 1] > 0:
            cycle = Cycle(*(part[number] for part in search.cycles))
            ranks = np.array(rng.sample(range(world_size), min(2, world_size)))
            assert bound(search.plan, cycle, ranks) <= engine.present_time() * (1 + 1e-9)


@pytest.mark.parametrize("world_size", [4, 16])
def test_bounds_change_no_decision(world_size: int) -> None:
    problem = example_problem(example_workload(30, seed=6), world_size=world_size)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    bounded = Engine(problem, [plan])
    timed = Engine(problem, [plan])
    timed.search = timed.search._replace(margin=1.0)
    standings = []
    for engine in (bounded, timed):
        engine.start(engine.choices_of(plan))
        standings.append(engine.anneal(3000, (1e-3, 1e-4, 3000.0), Random(1)))
    assert standings[0]._replace(timed=0) == standings[1]._replace(timed=0)
    assert standings[0].timed < standings[1].timed
    assert bounded.plan_of(bounded.present()) == timed.plan_of(timed.present())


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_moves_of_places_leave_the_options_as_they_are(case: Case, seed: int) -> None:
    workload, topology, plan = case
    engine, rng = engine_for(case), Random(seed)
    before = engine.choices_of(plan)
    engine.start(before)
    engine.anneal(300, (0.1, 1e-3, 300.0), rng, placing=True)
    placed = engine.plan_of(engine.present())
    assert engine.present().option.tolist() == before.option.tolist()
    check_plan(workload, topology, placed)
    assert engine.present_time() == pytest.approx(Objective(workload, topology).step_time(placed))


def test_a_plan_that_is_out_of_balance_is_balanced_whatever_its_options() -> None:
    problem = example_problem(example_workload(40, seed=2), world_size=8)
    plan = SizeGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    bursts = Bursts(engine, Budget(), Random(0), 0)
    (balanced,) = bursts.balanced([engine.choices_of(plan)])
    assert balanced.option.tolist() == engine.choices_of(plan).option.tolist()
    assert engine.start(balanced) == bursts.best[0]
    assert bursts.best[0] < 0.99 * problem.objective.step_time(plan)


def test_of_many_plans_those_that_memory_is_too_small_for_take_forever() -> None:
    problem = example_problem(example_workload(40, seed=2), fill=0.9)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    option, ranks = engine.choices_of(plan)
    piled = np.stack([ranks, np.zeros_like(ranks), ranks])
    piled[1, :, :] = np.arange(engine.native.widest)  # distinct, and the same for all tables
    times = engine.step_times(np.stack([option] * 3), piled)
    assert times[1] == np.inf
    assert times[[0, 2]] == pytest.approx(problem.objective.step_time(plan), rel=1e-9)


def test_is_no_worse_than_the_search_on_numpy() -> None:
    problem = example_problem(example_workload(40, seed=1), world_size=8)
    slow = Annealing().shard(problem, Budget(max_evaluations=3000), Random(0))
    fast = Annealing().shard(problem, compiled(20_000), Random(0))
    assert fast.step_time <= slow.step_time * 1.001
    assert fast.step_time == pytest.approx(problem.objective.step_time(fast.plan), rel=1e-9)


def test_the_same_seed_and_evaluations_give_the_same_plan() -> None:
    problem = example_problem(example_workload(20, seed=2), world_size=4)
    first = Annealing().shard(problem, compiled(2000), Random(3))
    again = Annealing().shard(problem, compiled(2000), Random(3))
    assert first == again
    assert first.status is SearchStatus.LIMIT
    assert first.evaluated <= 2000


def test_ends_when_nothing_better_is_found() -> None:
    problem = example_problem(example_workload(4, seed=5), world_size=2)
    result = Annealing().shard(problem, compiled(), Random(0))
    assert result.status is SearchStatus.CONVERGED


def test_stops_when_told_to() -> None:
    problem = example_problem(example_workload(20, seed=2), world_size=4)
    calls = iter(range(10**9))
    budget = Budget(should_stop=lambda: next(calls) > 6, compiled=lambda: True)
    result = Annealing().shard(problem, budget, Random(0))
    assert result.status is SearchStatus.LIMIT
    assert result.evaluated > 0


def test_where_a_rank_is_full_another_table_makes_way() -> None:
    problem = example_problem(example_workload(40, seed=2), fill=0.99)
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan
    engine = Engine(problem, [plan])
    engine.start(engine.choices_of(plan))
    search, move, tables = engine.search, engine.move, engine.native.tables
    present, free = search.choices, search.plan.numbers[search.rows.free]
    size = tables.held[tables.rows[tables.first[present.option]], 0]
    whole = np.flatnonzero(tables.blocks[present.option] == 1)
    made = 0
    for table, rank in product(whole, range(problem.topology.world_size)):
        lack = size[table] - free[rank]
        if lack <= 0 or rank == present.ranks[table, 0]:
            continue
        move.length[0], move.table[0] = 1, table
        move.option[0], move.ranks[0, 0] = present.option[table], rank
        if make_way(search, engine.aids, move, rank, lack):
            other, blocks = move.table[1], tables.blocks[move.option[1]]
            assert move.length[0] == 2
            assert other != table
            assert rank in present.ranks[other, :blocks]
            assert rank not in move.ranks[1, :blocks]
            made += 1
    assert made > 0
