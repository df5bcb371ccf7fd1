import pytest

from planner.validation.job import Block, RankResult
from planner.validation.judge import (
    Outcome,
    are_told_apart,
    cpu_error,
    geomean_error,
    judge,
    kendall_tau,
    outcome,
    success_rate,
)
from planner.validation.phases import StepPrediction


def plan(name: str, predicted: float, *rounds: float, foreign: tuple[float, ...] = ()) -> Outcome:
    return Outcome(
        name=name,
        prediction=StepPrediction(step_time=predicted),
        rounds=rounds,
        foreign=foreign or (0.0,) * len(rounds),
    )


FAST = plan("fast", 1.1, 1.0, 1.02, 0.98, 1.0)
SLOW = plan("slow", 2.0, 2.0, 2.02, 1.98, 2.0)
NOISY = plan("noisy", 0.9, 0.5, 3.5, 2.0, 1.9)


def test_a_step_is_the_slowest_ranks_and_a_round_its_median_step() -> None:
    ranks = [
        RankResult(blocks=(Block(wall=(1.0, 2.0, 9.0), cpu=(0.5, 0.5, 0.7), foreign=0.01),)),
        RankResult(blocks=(Block(wall=(3.0, 1.0, 4.0), cpu=(0.9, 0.9, 0.9), foreign=0.20),)),
    ]
    made = outcome("p", StepPrediction(step_time=3.3), ranks)
    assert made.rounds == (3.0,)
    assert made.foreign == (0.20,)  # of the rank that works more
    assert made.cpu == (0.5, 0.9)
    assert made.error == pytest.approx(0.1)


def test_rounds_that_others_disturbed_are_left_out_while_any_remain() -> None:
    some = plan("p", 1.0, 1.0, 5.0, 1.2, 1.1, foreign=(0.0, 0.5, 0.01, 0.02))
    assert some.measured == 1.1
    assert not some.disturbed
    assert plan("p", 1.0, 1.0, 5.0, foreign=(0.0, 0.5)).measured == 1.0


def test_disturbed_rounds_count_where_no_other_remains() -> None:
    some = plan("p", 1.0, 1.0, 5.0, 1.2, foreign=(0.1, 0.5, 0.5))
    assert some.measured == 1.2
    assert some.disturbed


def test_geomean_error_counts_both_directions_alike() -> None:
    # off by factors of 1.1 and 1/1.21: the mean factor is sqrt(1.1 * 1.21)
    both = [plan("a", 1.1, 1.0), plan("b", 1.0, 1.21)]
    assert geomean_error(both) == pytest.approx((1.1 * 1.21) ** 0.5 - 1)


def test_plans_are_told_apart_if_their_difference_is_larger_than_noise() -> None:
    assert are_told_apart(FAST, SLOW)
    assert not are_told_apart(NOISY, SLOW)


def test_what_disturbs_a_whole_round_does_not_hide_a_difference() -> None:
    a, b = plan("a", 1.0, 1.0, 3.0, 1.5, 2.0), plan("b", 1.0, 1.1, 3.12, 1.61, 2.09)
    assert are_told_apart(a, b)


def test_tau_by_hand() -> None:
    # (fast, slow) agree, (noisy, fast) disagree, (noisy, slow) agree: (2 - 1) / 3
    pairs = [(FAST, SLOW), (NOISY, FAST), (NOISY, SLOW)]
    scores = {each.name: each.predicted for each in (FAST, SLOW, NOISY)}
    assert kendall_tau(pairs, scores.__getitem__) == pytest.approx(1 / 3)


def test_a_pick_within_ten_percent_of_the_fastest_is_a_success() -> None:
    close = plan("close", 0.5, 1.08, 1.10, 1.08, 1.09)
    verdict = judge([FAST, SLOW, close])
    assert (verdict.picked, verdict.fastest) == ("close", "fast")
    assert verdict.regret == pytest.approx(0.085)
    assert verdict.success
    assert verdict.open_pairs == ()


def test_a_pick_far_from_the_fastest_is_a_failure() -> None:
    verdict = judge([plan("bad", 0.5, 2.5, 2.6, 2.4), plan("good", 0.9, 1.0, 1.1, 0.9)])
    assert not verdict.success


def test_pairs_that_noise_leaves_open_are_named() -> None:
    assert judge([FAST, SLOW, NOISY]).open_pairs == (("fast", "noisy"), ("slow", "noisy"))


def test_the_success_rate_is_over_all_choices_of_some_plans() -> None:
    # noisy is picked whenever it is there; of the three pairs it loses only to fast
    scores = {"fast": 2.0, "slow": 3.0, "noisy": 1.0}
    assert success_rate([FAST, SLOW, NOISY], 2, scores.__getitem__) == pytest.approx(2 / 3)


def test_processor_time_is_compared_rank_by_rank() -> None:
    # 2 for 1 and 1 for 2: off by a factor of 2 both times
    made = Outcome(
        name="p",
        prediction=StepPrediction(step_time=1.0, busy=(2.0, 1.0)),
        rounds=(1.0,),
        foreign=(0.0,),
        cpu=(1.0, 2.0),
    )
    assert cpu_error([made]) == pytest.approx(1.0)
    assert cpu_error([FAST]) == 0.0
