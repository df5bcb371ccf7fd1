"""What fullest ranks send, in a linear program over options."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from costmodel.bounds.feature_index import FeatureIndex
from costmodel.bounds.option_features import EXCHANGED
from costmodel.domain.plan import ShardingPlan
from costmodel.step.loads import group_loads
from planner.examples import example_problem, example_workload
from sharders.lp.fullest_ranks import FullestRanks
from sharders.lp.lp import placed
from sharders.lp.relaxed_step import Array, LpOptions, RelaxedStep
from sharders.problem.option_costs import OptionCosts
from sharders.problem.sharding_problem import ShardingProblem

FEW, GPUS = 5, 16
"""Few tables for many ranks: shards are uneven."""


def problem(seed: int = 4) -> ShardingProblem:
    large = replace(example_workload(FEW, seed=seed), local_batch_size=16_384)
    return example_problem(large, world_size=GPUS, num_nodes=2, fill=0.05)


def drawn(choices: LpOptions, rng: Random) -> Array:
    """Return shares of one option of every table."""
    shares = np.zeros(len(choices.numbers))
    for table in range(FEW):
        shares[rng.choice(np.flatnonzero(choices.table == table).tolist())] = 1.0
    return shares


def plan_of(choices: LpOptions, shares: Array) -> ShardingPlan:
    plan = placed(choices, OptionCosts(choices.problem), shares, [()] * FEW)
    assert plan is not None
    return plan


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_sends_as_much_on_its_fullest_ranks_or_more(seed: int) -> None:
    posed = problem()
    choices = LpOptions.of(posed)
    shares = drawn(choices, Random(seed))
    every = np.arange(len(shares))
    index = FeatureIndex(choices.bounds.signature(every), fullest=True)
    ranks = FullestRanks(index, choices.bounds, every)
    sent = ranks.sent(shares).reshape(-1, len(EXCHANGED))
    assert (sent.ravel() <= ranks.most).all()
    loads = {
        each.key: each
        for each in group_loads(posed.workload, posed.topology, plan_of(choices, shares))
    }
    for group, amounts in zip(index.groups, sent, strict=True):
        if group not in loads:
            assert not amounts.any()
            continue
        for name, amount in zip(EXCHANGED, amounts, strict=True):
            load = getattr(loads[group], name)
            assert load.mean() * (1 - 1e-9) <= amount <= load.max() * (1 + 1e-9)
            if loads[group].tables == 1:
                assert amount == pytest.approx(load.max())


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_of_its_options_has_a_shorter_step_than_a_program_says(seed: int) -> None:
    posed = problem()
    choices = LpOptions.of(posed)
    shares = drawn(choices, Random(seed))
    solved = RelaxedStep(choices, shares > 0).solve(shares > 0)
    assert solved is not None
    step = posed.objective.step_time(plan_of(choices, shares))
    assert solved.value <= step * (1 + 1e-9)


def test_a_table_with_a_large_shard_is_split_where_all_ranks_would_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    posed = problem(seed=0)
    choices = LpOptions.of(posed)
    everything = np.ones(len(choices.numbers), dtype=bool)

    def largest_column_shards() -> float:
        solved = RelaxedStep(choices, everything).solve(everything)
        assert solved is not None
        columns = choices.bounds.exchanged[:, EXCHANGED.index("columns")]
        return float(columns @ solved.shares)

    split = largest_column_shards()
    monkeypatch.setattr(FullestRanks, "_shards", property(lambda self: self._means))
    assert split < 0.8 * largest_column_shards()
