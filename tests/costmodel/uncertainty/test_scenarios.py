from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log

import pytest
from machines import flat_curve, machine, topology

from costmodel.base.units import US
from costmodel.domain.hardware import CollectiveCurve, CollectiveOp, Topology
from costmodel.domain.time_correction import TimeCorrection
from costmodel.domain.workload import DataType
from costmodel.engine.objective import Objective
from costmodel.kernels.embedding import lookup_rates
from costmodel.uncertainty.error_model import Cause, error_model
from costmodel.uncertainty.scenarios import DECIDING, scaled, scenarios
from planner.examples import example_problem, example_workload
from sharders.greedy.one_pass import Naive
from sharders.problem.sharding_problem import Budget

LISTED_TIMES = ("listed_op_time", "listed_backward_op_time")
HOST_TIMES = (
    "launch_time", "launch_latency", "op_time", "backward_op_time", "sync_time", *LISTED_TIMES,
)  # fmt: skip
FORWARD_TIMES = ("lookup_time", "row_read_time", "bag_time", "forward_turn_time")
FORWARD_RATES = ("lookup_efficiency", "gather_bandwidth")
BACKWARD_TIMES = ("gradient_time", "row_update_time", "backward_turn_time")
BACKWARD_RATES = ("update_efficiency", "sort_rate")
RISING = ((1e3, 10 * US), (1e5, 20 * US), (1e7, 100 * US))


def full_machine(*curves: CollectiveCurve) -> Topology:
    """Return a machine that has none of the numbers that scenarios change by default."""
    plain = machine(curves=curves)
    names = (*FORWARD_TIMES, *BACKWARD_TIMES, "gather_bandwidth")
    knots = TimeCorrection(((1.0, 2.0), (2.0, 3.0)))
    gpu = replace(plain.gpu, forward_correction=knots, backward_correction=knots)
    gpu = replace(gpu, **{name: float(number) for number, name in enumerate(names, start=2)})
    host = replace(plain.host, **dict.fromkeys(LISTED_TIMES, 1.0))
    return topology(4, 2, replace(plain, gpu=gpu, host=host))


def curve(
    op: CollectiveOp, knots: Sequence[tuple[float, float]], nodes: int = 1
) -> CollectiveCurve:
    return replace(flat_curve(op, 4), knots=tuple(knots), num_nodes=nodes)


def test_nothing_scaled_is_the_same_machine() -> None:
    same = full_machine(curve(CollectiveOp.ALL_TO_ALL, RISING))
    assert scaled(same, {}) == same


def test_where_gathers_have_no_rate_of_their_own_the_l2_s_is_scaled() -> None:
    slower = scaled(topology(4), {Cause.LOOKUP: 4.0}).hardware
    assert lookup_rates(slower).gather_bandwidth == topology(4).hardware.gpu.l2_bandwidth / 4


def test_every_number_by_hand() -> None:
    """Times are multiplied, and rates divided, by the factor of their own cause."""
    before = full_machine().hardware
    factors = {
        Cause.HOST: 2.0, Cause.LOOKUP: 4.0, Cause.UPDATE: 8.0, Cause.LATENCY: 16.0,
        Cause.ALL_TO_ALL: 32.0, Cause.ALL_TO_ALL_ACROSS: 64.0,
    }  # fmt: skip
    after = scaled(full_machine(), factors).hardware
    told = (
        ("host", HOST_TIMES, 2.0),
        ("gpu", FORWARD_TIMES, 4.0), ("gpu", FORWARD_RATES, 1 / 4),
        ("gpu", BACKWARD_TIMES, 8.0), ("gpu", BACKWARD_RATES, 1 / 8),
        ("intra_node", ("latency",), 16.0), ("intra_node", ("bandwidth",), 1 / 32),
        ("inter_node", ("latency",), 16.0), ("inter_node", ("bandwidth",), 1 / 64),
    )  # fmt: skip
    for part, names, factor in told:
        old, new = getattr(before, part), getattr(after, part)
        for name in names:
            assert getattr(new, name) == getattr(old, name) * factor > 0, name
    assert after.gpu.forward_correction.knots == ((4.0, 8.0), (8.0, 12.0))
    assert after.gpu.backward_correction.knots == ((8.0, 16.0), (16.0, 24.0))


@pytest.mark.parametrize(
    ("knots", "nodes", "factors", "expected_us"),
    [
        # half the way in log bytes: the square root of both factors
        (RISING, 1, {Cause.LATENCY: 4.0, Cause.ALL_TO_ALL: 9.0}, (40, 120, 900)),
        (RISING, 1, {Cause.ALL_TO_ALL: 9.0}, (10, 60, 900)),
        # 160, 80 and 100 us: a longer message takes no less time
        (RISING, 1, {Cause.LATENCY: 16.0}, (160, 160, 160)),
        (RISING[1:2], 1, {Cause.LATENCY: 4.0, Cause.ALL_TO_ALL: 9.0}, (180,)),
        (RISING, 2, {Cause.ALL_TO_ALL: 9.0, Cause.ALL_TO_ALL_ACROSS: 4.0}, (10, 40, 400)),
    ],
)
def test_a_curve_by_hand(
    knots: Sequence[tuple[float, float]],
    nodes: int,
    factors: Mapping[Cause, float],
    expected_us: Sequence[float],
) -> None:
    made = full_machine(curve(CollectiveOp.ALL_TO_ALL, knots, nodes))
    (after,) = scaled(made, factors).hardware.curves
    assert [size for size, _ in after.knots] == [size for size, _ in knots]
    assert [time / US for _, time in after.knots] == pytest.approx(expected_us)


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
