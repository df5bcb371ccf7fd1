"""Moves are timed exactly: as the plan they lead to would be."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases, fixed_cases

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import check_memory
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.problem.options import places
from sharders.problem.sharding_problem import ShardingProblem

Case = tuple[Workload, Topology, ShardingPlan]


def editing(case: Case) -> tuple[PlanEditor, ShardingProblem]:
    workload, ranks, plan = case
    objective = Objective(workload, ranks)
    problem = ShardingProblem.of(workload, ranks, objective=objective)
    editor = PlanEditor(problem)
    assert editor.start(plan) == pytest.approx(objective.step_time(plan), rel=1e-12)
    return editor, problem


def moves(editor: PlanEditor, rng: Random) -> Iterator[Move]:
    """Yield moves of one or two tables to some option on some ranks, that fit in memory."""
    topology = editor.problem.topology
    while True:
        tables = rng.sample(range(len(editor.tables)), min(len(editor.tables), rng.randint(1, 2)))
        move = {}
        for index in tables:
            option = rng.choice(editor.problem.options[editor.tables[index].name])
            order = rng.sample(range(topology.world_size), topology.world_size)
            move[index] = PlacedOption(option, next(iter(places(topology, option, order))))
        if editor.fits(move):
            yield move


@given(cases() | fixed_cases())
@settings(max_examples=20)
def test_a_plan_is_kept_as_it_is(case: Case) -> None:
    editor, _ = editing(case)
    assert editor.plan() == case[2]


@given(cases() | fixed_cases())
@settings(max_examples=10)
def test_annealing_leaves_the_plan_and_its_sharding_types(case: Case) -> None:
    editor, problem = editing(case)
    workload, ranks, plan = case
    found = editor.annealed(200, 0.1, 1e-5)
    check_plan(workload, ranks, found)
    check_memory(workload, ranks, found)
    kinds = [{sharding.sharding_type for sharding in each.tables} for each in (found, plan)]
    assert kinds[0] <= kinds[1]
    before, after = (problem.objective.step_time(each) for each in (plan, found))
    assert after <= before * (1 + 1e-12)
    assert editor.plan() == plan


@pytest.mark.slow
@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=20)
def test_moves_are_timed_as_the_plans_they_lead_to(case: Case, seed: int) -> None:
    editor, problem = editing(case)
    made = [{}, *islice(moves(editor, Random(seed)), 4)]
    times, _ = editor.times(made)
    now = editor.plan()
    for move, time in zip(made, times, strict=True):
        assert editor.apply(move)
        plan = editor.plan()
        check_plan(problem.workload, problem.topology, plan)
        check_memory(problem.workload, problem.topology, plan)
        assert time == pytest.approx(problem.objective.step_time(plan), rel=1e-9)
        editor.start(now)
