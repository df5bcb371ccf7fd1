"""Programs of pulp, solved by hand beside HiGHS."""

import sys
from random import Random
from typing import Any

import pulp
import pytest

from costmodel.base.errors import MachineError, MissingDependencyError
from costmodel.base.solver import quiet_solver
from planner.examples import example_problem, example_workload
from sharders.baselines import solvers
from sharders.baselines.ilp import Ilp
from sharders.baselines.lns import LargeNeighbourhood
from sharders.baselines.solvers import Limits, solve, weighted_sum
from sharders.problem.sharding_problem import Budget, Sharder


def knapsack() -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """Weigh 3, 4 and 5 at most 7 together, worth 4, 5 and 7: the first two are worth 9."""
    program = pulp.LpProblem("knapsack", pulp.LpMinimize)
    left_out = [program.add_variable(f"out_{name}", cat=pulp.LpBinary) for name in "zya"]
    program += weighted_sum(zip(left_out, (4.0, 5.0, 7.0), strict=True))
    program += weighted_sum(zip(left_out, (3.0, 4.0, 5.0), strict=True)) >= 12 - 7
    return program, left_out


def test_values_go_to_the_variables_they_belong_to() -> None:
    # the names do not sort as they were made: pulp 3 and 4 order columns differently
    program, left_out = knapsack()
    bound, optimal = solve(program, None, Limits(gap=0.0))
    assert [variable.varValue for variable in left_out] == pytest.approx([0, 0, 1])
    assert bound == pytest.approx(7)
    assert optimal


def test_a_first_solution_is_where_the_solver_begins() -> None:
    program, left_out = knapsack()
    first = {"out_z": 1.0, "out_y": 1.0}  # worth 9 left out: any gap of 30% allows it
    solve(program, first, Limits(gap=0.3, max_nodes=0))
    worth = sum(v.varValue * value for v, value in zip(left_out, (4, 5, 7), strict=True))
    assert worth <= 9


def test_a_linear_program_before_it_changes_nothing() -> None:
    # HiGHS 1.16 solves nothing in a process whose solvers have different numbers of threads
    linear = quiet_solver()
    linear.addVar(1.0, 4.0)
    linear.run()
    program, left_out = knapsack()
    solve(program, None, Limits(gap=0.0))
    assert [variable.varValue for variable in left_out] == pytest.approx([0, 0, 1])


def test_an_error_of_the_solver_is_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_other_threads() -> Any:  # noqa: ANN401 - a highspy.Highs
        solver = quiet_solver()
        solver.setOptionValue("threads", 2)
        return solver

    solve(knapsack()[0], None, Limits())
    monkeypatch.setattr(solvers, "quiet_solver", with_other_threads)
    with pytest.raises(MachineError, match="HiGHS ended with an error"):
        solve(knapsack()[0], None, Limits())


def test_solving_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    # HiGHS 1.16 prints its version, where commands print JSON
    solve(knapsack()[0], None, Limits())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "sharder"), [("ilp", Ilp()), ("lns", LargeNeighbourhood())])
def test_without_pulp_its_sharders_say_which_extra_brings_it(
    name: str, sharder: Sharder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pulp", None)
    problem = example_problem(example_workload(2), world_size=2)
    with pytest.raises(MissingDependencyError, match=f"`{name}` needs `pulp`") as caught:
        sharder.shard(problem, Budget(), Random(0))
    assert "[search]" in str(caught.value.hint)
