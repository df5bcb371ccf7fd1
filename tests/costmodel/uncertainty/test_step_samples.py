"""Samples of step times: intervals that hold, odds that add up, no curse on the only plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from machines import topology
from plans import plan, table, workload
from strategies import Case, cases
from timelines import simulated

from costmodel.base.arrays import Array
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import Workload
from costmodel.kernels.embedding import lookup_time
from costmodel.step.loads import PlanLoads
from costmodel.step.synthesis import step_operations
from costmodel.uncertainty import step_samples
from costmodel.uncertainty.error_model import Cause, ErrorModel, Spread
from costmodel.uncertainty.sampling import Draws
from costmodel.uncertainty.step_samples import (
    StepSamples,
    plan_noise,
    sample_operations,
    sample_steps,
)

SETTINGS = settings(max_examples=20)
STRUCTURE = ErrorModel(spreads={Cause.STRUCTURE: Spread(0.1, 0.0)})
ALL = ErrorModel(spreads=dict.fromkeys(Cause, Spread(0.2, 0.2)))


def samples(*columns: Array) -> StepSamples:
    return StepSamples(predicted=np.ones(len(columns)), times=np.stack(columns, axis=1), shared={})


def two_plans() -> tuple[Workload, Topology, ShardingPlan, ShardingPlan]:
    """Two tables on two ranks, each alone or both on the first."""
    work, ranks = workload(table("a"), table("b")), topology(2)
    whole = ShardingType.TABLE_WISE
    apart = plan(work, ranks, {"a": (whole, (0,)), "b": (whole, (1,))})
    together = plan(work, ranks, {"a": (whole, (0,)), "b": (whole, (0,))})
    return work, ranks, apart, together


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_the_prediction_is_the_simulated_step(case: Case) -> None:
    sampled = sample_steps(*case[:2], [case[2]], errors=ALL)
    assert sampled.predicted[0] == pytest.approx(
        simulated(step_operations(*case)).step_time, rel=1e-12
    )


@given(cases())
@SETTINGS
def test_without_errors_every_sample_is_the_prediction(case: Case) -> None:
    sampled = sample_steps(*case[:2], [case[2]], errors=ErrorModel(spreads={}))
    assert sampled.times == pytest.approx(sampled.predicted[0])
    assert sampled.shares() == {}


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_larger_errors_widen_the_interval(case: Case) -> None:
    def width(spread: float) -> float:
        errors = ErrorModel(spreads=dict.fromkeys(Cause, Spread(spread, spread)))
        low, high = sample_steps(*case[:2], [case[2]], errors=errors).interval()
        return float(high / low)

    assert 1.0 < width(0.05) < width(0.2)


def test_an_error_of_the_whole_step_by_hand() -> None:
    # a log-normal factor of 10%: 90% within exp(+-1.645 * 0.1) of the prediction
    work, ranks, apart, _ = two_plans()
    sampled = sample_steps(work, ranks, [apart], errors=STRUCTURE)
    ratios = np.array(sampled.interval()) / sampled.predicted[0]
    assert ratios == pytest.approx([0.848, 1.179], rel=0.01)
    assert sampled.shares() == {Cause.STRUCTURE: pytest.approx(1.0)}


def test_an_error_off_the_critical_path_does_not_count() -> None:
    work, ranks, apart, _ = two_plans()
    slow_host = replace(ranks.hardware.host, op_time=1e-3, backward_op_time=1e-3)
    bound_by_host = replace(ranks, hardware=replace(ranks.hardware, host=slow_host))
    lookups = ErrorModel(spreads={Cause.LOOKUP: Spread(0.05, 0.05)})
    sampled = sample_steps(work, bound_by_host, [apart], errors=lookups)
    assert sampled.times == pytest.approx(sampled.predicted[0])


def test_what_all_plans_share_does_not_change_which_is_faster() -> None:
    work, ranks, apart, together = two_plans()
    sampled = sample_steps(work, ranks, [apart, together], errors=STRUCTURE)
    assert sampled.predicted[0] < sampled.predicted[1]
    assert sampled.probability_faster(0, 1) == 1.0
    assert sampled.probability_fastest() == (1.0, 0.0)
    assert sampled.optimism() == pytest.approx(0.0, abs=1e-12)


def test_ranks_with_different_tables_are_off_by_different_factors() -> None:
    work, ranks, apart, together = two_plans()
    draws = Draws()
    noise = plan_noise(apart, draws, PlanLoads(work, ranks)).lookups
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.2
    # the mean of two like tables' errors: 1 / sqrt(2)
    both = plan_noise(together, draws, PlanLoads(work, ranks)).lookups
    assert both[:, 0].std() == pytest.approx(0.5**0.5, rel=0.1)


def test_the_slowest_of_equal_ranks_is_slower_than_predicted() -> None:
    # E max of two errors of 20% is 0.2 / sqrt(pi) = 11% of the lookups; here they bound the step
    work, ranks, apart, _ = two_plans()
    slow_memory = replace(ranks.hardware.gpu, memory_bandwidth=1e9)
    ranks = replace(ranks, hardware=replace(ranks.hardware, gpu=slow_memory))
    own = {Cause.LOOKUP: Spread(0.0, 0.2), Cause.UPDATE: Spread(0.0, 0.2)}
    sampled = sample_steps(work, ranks, [apart], errors=ErrorModel(spreads=own))
    assert 1.02 < sampled.mean() / sampled.predicted[0] < 1.12


def test_equal_plans_are_equally_likely_the_fastest() -> None:
    work, ranks, apart, _ = two_plans()
    sampled = sample_steps(work, ranks, [apart, apart], errors=ALL)
    assert sampled.probability_fastest() == (0.5, 0.5)
    assert sampled.probability_faster(0, 1) == 0.5
    assert sampled.regret(0) == 0.0


def test_the_same_seed_gives_the_same_samples() -> None:
    work, ranks, apart, _ = two_plans()
    first, again = (sample_steps(work, ranks, [apart], errors=ALL).times for _ in range(2))
    other = sample_steps(work, ranks, [apart], errors=ALL, draws=Draws(seed=1)).times
    assert (first == again).all()
    assert (first != other).any()


def test_a_plan_is_sampled_alike_alone_and_beside_others() -> None:
    work, ranks, apart, together = two_plans()
    alone = sample_steps(work, ranks, [together], errors=ALL).times[:, 0]
    beside = sample_steps(work, ranks, [apart, together], errors=ALL).times[:, 1]
    assert (alone == beside).all()


def test_a_program_is_sampled_as_its_plan_is_but_for_the_tables() -> None:
    work, ranks, apart, _ = two_plans()
    errors = ErrorModel(spreads={Cause.GEMM: Spread(0.1, 0.1), Cause.HOST: Spread(0.1, 0.1)})
    by_plan = sample_steps(work, ranks, [apart], errors=errors)
    by_program = sample_operations(step_operations(work, ranks, apart), ranks, errors)
    assert by_plan.times == pytest.approx(by_program.times)


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        # log times of two plans in two samples, each off by 1 either way: the pick is 1 too short
        ([(0.0, 2.0), (2.0, 0.0)], 1.0),
        # the first is picked in both, once by its luck
        ([(0.0, 2.0), (4.0, 3.0)], 0.0),
        # three plans, of which the first is picked in both, off by 1; the second in the third
        ([(0.0, 0.0, 3.0), (2.0, 2.0, 2.0), (9.0, 9.0, 9.0)], (1.0 + 1.0 + 0.0) / 3),
        ([(0.0, 7.0)], 0.0),
    ],
)
def test_the_curse_by_hand(plans: Sequence[Sequence[float]], expected: float) -> None:
    made = samples(*(np.exp(np.array(logs)) for logs in plans))
    assert made.optimism() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        # squares over their sum, largest first; below 4/16 it may be chance
        ((1.0, 1.5), {Cause.GEMM: 2.25 / 3.25, Cause.HOST: 1.0 / 3.25}),
        ((3.0, 1.0), {Cause.HOST: 0.9}),
        ((0.0, 0.0), {}),
    ],
)
def test_shares_of_the_variance_by_hand(
    weights: tuple[float, float], expected: Mapping[Cause, float]
) -> None:
    # two unrelated errors of mean 0, and a time of which they are not all
    host, gemm = np.tile([1.0, -1.0, 1.0, -1.0], 4), np.tile([2.0, 2.0, -2.0, -2.0], 4)
    times = np.exp(5.0 + weights[0] * host + weights[1] * gemm / 2)
    made = replace(samples(times), shared={Cause.HOST: host, Cause.GEMM: gemm})
    assert list(made.shares().items()) == [
        (cause, pytest.approx(share)) for cause, share in expected.items()
    ]


def test_the_curse_grows_with_the_number_of_plans() -> None:
    draws = Draws()
    errors = [np.exp(0.1 * draws.normal(str(index))) for index in range(8)]
    optimism = [samples(*errors[:count]).optimism() for count in (1, 2, 4, 8)]
    assert optimism == sorted(optimism)
    assert optimism[0] == pytest.approx(0.0, abs=1e-12)


def test_regret_by_hand() -> None:
    # the other plan is faster by 1 s in one sample of two
    assert samples(np.array([2.0, 2.0]), np.array([1.0, 3.0])).regret(0) == 0.5


@pytest.mark.parametrize("dense", [0, 1e9])
def test_a_rank_has_the_mean_of_its_tables_by_their_seconds(
    dense: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_samples, "_DENSE", dense)
    work, ranks, apart, together = two_plans()
    loads, draws = PlanLoads(work, ranks), Draws()
    own = np.stack([draws.normal(f"lookups of {table.name}") for table in work.tables], axis=1)
    for each in (apart, together):
        seconds = np.zeros((len(work.tables), ranks.world_size))
        for index, rows in enumerate(loads.rows(each)):
            for row in rows:
                alone = lookup_time(np.array([row.traffic]), ranks.hardware, weighted=False)
                seconds[index, row.ranks] += alone
        total = seconds.sum(axis=0)
        means = own @ (seconds / np.where(total > 0, total, 1.0))
        assert plan_noise(each, draws, loads).lookups == pytest.approx(means)
