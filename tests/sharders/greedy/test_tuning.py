"""Rules of a greedy change by the steps that are told, and tuned it is no worse."""

from math import log
from random import Random
from statistics import stdev

import pytest

from planner.examples import example_problem, example_workload
from sharders.engine.search_engine import Engine
from sharders.greedy.cost_greedy import CostGreedy
from sharders.greedy.tuning import (
    NEUTRAL,
    RANGES,
    Chain,
    Tuning,
    drawn,
    threshold_rules,
    usual_rules,
)
from sharders.problem.sharding_problem import Budget

PROBLEM = example_problem(example_workload(30, seed=3), world_size=8)


@pytest.mark.parametrize(
    ("step", "time", "expected"),
    [
        (0.1, 1.0, 0.15), (0.1, 0.9, 0.15), (0.25, 0.9, 0.3),
        (0.1, 1.1, 0.1 / 1.5**0.25), (0.0201, 1.1, 0.02),
    ],
)  # fmt: skip
def test_a_step_grows_by_half_and_shrinks_by_its_fourth_root(
    step: float, time: float, expected: float
) -> None:
    chain, child = Chain(NEUTRAL, 1.0, step), {**NEUTRAL, "apart": 1.0}
    chain.tell(child, time)
    assert chain.step == pytest.approx(expected)
    assert (chain.parent, chain.time) == ((child, time) if time <= 1.0 else (NEUTRAL, 1.0))


@pytest.mark.parametrize("name", RANGES)
def test_half_of_the_parameters_change_by_the_step_s_share_of_their_range(name: str) -> None:
    low, high = RANGES[name]
    is_log = name == "split_above"
    middle = (low * high) ** 0.5 if is_log else (low + high) / 2
    chain, rng = Chain({**NEUTRAL, name: middle}, 1.0, 0.1), Random(0)
    made = [chain.child(rng)[name] for _ in range(4000)]
    moved = [value for value in made if value != middle]
    assert len(moved) == pytest.approx(2000, rel=0.1)
    places = [log(value / low) / log(high / low) if is_log else (value - low) / (high - low)
              for value in moved]  # fmt: skip
    assert stdev(places) == pytest.approx(0.1, rel=0.1)
    assert sum(places) / len(places) == pytest.approx(0.5, abs=0.01)


def test_parameters_stay_in_their_ranges() -> None:
    rng = Random(0)
    rules = [NEUTRAL, *(drawn(rng) for _ in range(100))]
    rules += [Chain(rule, 1.0, 5.0).child(rng) for rule in rules]
    for name, (low, high) in RANGES.items():
        values = [rule[name] for rule in rules]
        assert low <= min(values) < max(values) <= high


def test_tuning_is_at_least_as_good_as_the_greedy() -> None:
    tuning = Tuning(Engine(PROBLEM), Budget(), Random(0))
    best, choices = tuning.run()[0]
    plan = tuning.engine.plan_of(choices)
    assert best == pytest.approx(PROBLEM.objective.step_time(plan), rel=1e-9)
    greedy = CostGreedy().shard(PROBLEM, Budget(), Random(0))
    assert best <= greedy.step_time * 1.001


def test_tuning_ends_after_its_trials_or_with_the_budget() -> None:
    tuning = Tuning(Engine(PROBLEM), Budget(), Random(0), 60)
    tuning.run()
    assert tuning.evaluated == 60
    tuning = Tuning(Engine(PROBLEM), Budget(max_evaluations=5), Random(0))
    tuning.run()
    assert tuning.evaluated == 5


def test_random_rules_are_tried_where_no_usual_one_finds_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sharders.greedy.tuning.usual_rules", lambda: iter(()))
    tuning = Tuning(Engine(PROBLEM), Budget(), Random(0))
    assert tuning.run()


def test_tuning_begins_with_every_rule_once() -> None:
    tuning = Tuning(Engine(PROBLEM), Budget(), Random(0))
    some = list(threshold_rules())[:3]
    tuning.begin(some)
    tuning.begin(usual_rules())
    assert tuning.evaluated == len(tuning.chains) == len(list(usual_rules()))
    assert [chain.parent for chain in tuning.chains[:3]] == some
