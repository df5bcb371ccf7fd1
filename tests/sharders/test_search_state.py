"""Moves are timed exactly: as the plan they lead to would be."""

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import cases, fixed_cases

from costmodel.hardware import Topology
from costmodel.memory import check_memory
from costmodel.objective import Objective
from costmodel.plan import ShardingPlan
from costmodel.validity import check_plan
from costmodel.workload import Workload
from sharders.moves import Proposer
from sharders.option_costs import OptionCosts
from sharders.problem import ShardingProblem
from sharders.search_state import SearchState

Case = tuple[Workload, Topology, ShardingPlan]


def searching(case: Case) -> tuple[SearchState, ShardingProblem, Objective]:
    workload, ranks, plan = case
    objective = Objective(workload, ranks)
    problem = ShardingProblem(workload=workload, topology=ranks, objective=objective)
    state = SearchState(problem, objective)
    state.start(plan)
    return state, problem, objective


@given(cases() | fixed_cases())
@settings(max_examples=40, deadline=None)
def test_a_plan_is_kept_as_it_is(case: Case) -> None:
    state, _, _ = searching(case)
    assert state.plan() == case[2]


@pytest.mark.slow
@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_moves_are_timed_as_the_plans_they_lead_to(case: Case, seed: int) -> None:
    state, problem, objective = searching(case)
    proposer = Proposer(state, OptionCosts(problem), Random(seed))
    for _ in range(3):
        moves = [{}, *proposer.draw(6)]
        times, _ = state.times(moves)
        for move, time in zip(moves[1:], times[1:], strict=True):
            there, _, _ = searching((case[0], case[1], state.plan()))
            there.apply([move])
            plan = there.plan()
            check_plan(problem.workload, problem.topology, plan)
            check_memory(problem.workload, problem.topology, plan)
            assert time == pytest.approx(objective.step_time(plan), rel=1e-9)
        state.apply(moves[-1:])


@pytest.mark.slow
@given(cases(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_moves_made_one_after_the_other_are_timed_together(case: Case, seed: int) -> None:
    state, problem, objective = searching(case)
    drawn = Proposer(state, OptionCosts(problem), Random(seed)).draw(6)
    moves, taken = [], set()
    for move in drawn:
        if taken.isdisjoint(move):
            taken.update(move)
            moves.append(move)
    assume(moves)
    times, _ = state.prefix_times(moves)
    state.apply(moves)
    assert times[-1] == pytest.approx(objective.step_time(state.plan()), rel=1e-9)
