from math import exp, log

import pytest
from machines import topology

from costmodel.domain.workload import DataType
from costmodel.engine.objective import Objective
from costmodel.kernels.embedding import lookup_rates
from costmodel.uncertainty.error_model import Cause, error_model
from costmodel.uncertainty.scenarios import DECIDING, scaled, scenarios
from planner.examples import example_problem, example_workload
from sharders.greedy.one_pass import Naive
from sharders.problem.sharding_problem import Budget


def test_nothing_scaled_is_the_same_machine_to_every_plan() -> None:
    problem = example_problem(example_workload(6))
    plan = Naive().shard(problem, Budget(), None).plan  # type: ignore[arg-type]
    same = scaled(problem.topology, {})
    assert Objective(problem.workload, same).step_time(plan) == pytest.approx(
        problem.objective.step_time(plan), rel=1e-12
    )


def test_lookups_that_take_twice_as_long_have_half_the_rates() -> None:
    machine = topology(4)
    before = lookup_rates(machine.hardware)
    after = lookup_rates(scaled(machine, {Cause.LOOKUP: 2.0, Cause.UPDATE: 4.0}).hardware)
    assert after.lookup_bandwidth == pytest.approx(before.lookup_bandwidth / 2)
    assert after.gather_bandwidth == pytest.approx(before.gather_bandwidth / 2)
    assert after.update_bandwidth == pytest.approx(before.update_bandwidth / 4)
    assert after.sort_rate == pytest.approx(before.sort_rate / 4)


def test_a_host_twice_as_slow_makes_no_step_shorter() -> None:
    problem = example_problem(example_workload(6))
    plan = Naive().shard(problem, Budget(), None).plan  # type: ignore[arg-type]
    times = [
        Objective(problem.workload, scaled(problem.topology, {Cause.HOST: factor})).step_time(plan)
        for factor in (0.5, 1.0, 2.0)
    ]
    assert times == sorted(times)
    assert times[2] < 2.001 * times[1]


def test_scenarios_have_the_spread_of_the_errors() -> None:
    machine = topology(4)
    spread = error_model(machine, DataType.FP32).spread(Cause.HOST).shared
    drawn = scenarios(machine, DataType.FP32, 64)
    logs = [log(each.hardware.host.op_time / machine.hardware.host.op_time) for each in drawn]
    assert sum(logs) == pytest.approx(0.0, abs=1e-9)
    assert exp((sum(x * x for x in logs) / 64) ** 0.5) == pytest.approx(exp(spread), rel=1e-6)
    assert Cause.GEMM not in DECIDING
