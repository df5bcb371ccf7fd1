"""What fullest ranks send, in a linear program over options."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from costmodel.base.arrays import Array
from costmodel.bounds.feature_index import FeatureIndex
from costmodel.bounds.fullest_ranks import PACKED, SENT, FullestRanks
from costmodel.bounds.option_features import EXCHANGED
from costmodel.bounds.step_program import CYCLE_TOLERANCE
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable
from costmodel.step.loads import PlanLoads
from planner.examples import example_problem, example_workload
from sharders.lp.lp import placed
from sharders.lp.offered_program import LpOptions, OfferedProgram
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
    plan = placed(choices, shares, [()] * FEW)
    assert plan is not None
    return plan


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_sends_as_much_on_its_fullest_ranks_or_more(seed: int) -> None:
    posed = problem()
    choices = LpOptions.of(posed)
    shares = drawn(choices, Random(seed))
    index = FeatureIndex(choices.bounds.signature(), fullest=True)
    ranks = FullestRanks(index, choices.bounds)
    sent = ranks.sent(shares).reshape(-1, len(EXCHANGED))
    assert (sent.ravel() <= ranks.most).all()
    loads = {
        each.key: each
        for each in PlanLoads(posed.workload, posed.topology).groups(plan_of(choices, shares))
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


def whole_tables(count: int, *, split: bool, given: Sequence[int] = ()) -> LpOptions:
    """Return options of tables of one width on 16 ranks: whole, and split in two or not.

    The first ones must be on given ranks.
    """
    types = (ShardingType.TABLE_WISE, *([ShardingType.COLUMN_WISE] if split else []))
    tables = [
        EmbeddingTable(
            name=f"t{number}",
            num_embeddings=10_000,
            embedding_dim=64,
            pooling_factor=4.0,
            min_shard_dim=32,
            sharding_types=types,
            ranks=tuple(given[number : number + 1]),
        )
        for number in range(count)
    ]
    workload = replace(example_workload(1), tables=tuple(tables), local_batch_size=16_384)
    return LpOptions.of(example_problem(workload, world_size=GPUS, num_nodes=2, fill=0.05))


@pytest.mark.parametrize(("count", "blocks"), [(15, 1), (18, 2), (40, 3), (47, 4)])
def test_fullest_ranks_send_whole_tables(count: int, blocks: int) -> None:
    """One more than can be packed, where hardly any place would be left: 47 for 48 places."""
    choices = whole_tables(count, split=False)
    every = np.arange(count)
    assert (choices.table == every).all()
    index = FeatureIndex(choices.bounds.signature(), fullest=True)
    ranks = FullestRanks(index, choices.bounds)
    sent, whole = (of(np.ones(count)).reshape(-1, SENT) for of in (ranks.sent, ranks.whole))
    columns = EXCHANGED.index("columns")
    assert whole[0, columns] == 64 * blocks
    others = np.arange(SENT) != columns
    assert (whole[0, others] == sent[0, others]).all()


@pytest.mark.parametrize(("given", "together"), [((0, 0), 2), ((3, 0, 3, 3), 3), ((0, 3), 1)])
def test_tables_given_to_one_rank_are_sent_by_it(given: tuple[int, ...], together: int) -> None:
    choices = whole_tables(4, split=False, given=given)
    ranks = FullestRanks(FeatureIndex(choices.bounds.signature(), fullest=True), choices.bounds)
    columns = EXCHANGED.index("columns")
    assert ranks.sent(np.ones(4)).reshape(-1, SENT)[0, columns] == 64 * together
    assert ranks.most.reshape(-1, SENT)[0, columns] == 64 * together


def test_a_program_leaves_out_tables_that_would_need_one_more_block() -> None:
    choices = whole_tables(40, split=True)
    everything = np.ones(len(choices.numbers), dtype=bool)
    is_whole = choices.of_types({ShardingType.TABLE_WISE})
    solved = OfferedProgram(choices, everything).solve(everything)
    alone = OfferedProgram(choices, is_whole).solve(is_whole)
    assert solved is not None
    assert alone is not None
    assert alone.value < alone.of_blocks  # 2.5 tables a rank are 3 on some
    assert solved.shares[is_whole].sum() <= 2 * GPUS * PACKED * (1 + 1e-9)
    assert solved.value <= solved.of_blocks < alone.of_blocks


def test_limits_end_where_a_program_is_solved_anew() -> None:
    choices = whole_tables(40, split=True)
    program = OfferedProgram(choices, np.ones(len(choices.numbers), dtype=bool))
    solved = program.solve(program.offered)
    levels = program.levels(program.offered)
    assert solved is not None
    assert levels is not None
    limited = levels.at(np.ceil(levels.means / levels.blocks + 2) * levels.blocks)
    again = program.solve(program.offered)
    assert limited is not None
    assert again is not None
    assert limited.value > solved.value * (1 + CYCLE_TOLERANCE)
    assert again.value == pytest.approx(solved.value, rel=CYCLE_TOLERANCE)
    assert again.of_blocks == pytest.approx(solved.of_blocks, rel=CYCLE_TOLERANCE)


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_of_its_options_has_a_shorter_step_than_a_program_says(seed: int) -> None:
    posed = problem()
    choices = LpOptions.of(posed)
    shares = drawn(choices, Random(seed))
    solved = OfferedProgram(choices, shares > 0).solve(shares > 0)
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
        solved = OfferedProgram(choices, everything).solve(everything)
        assert solved is not None
        columns = choices.bounds.exchanged[:, EXCHANGED.index("columns")]
        return float(columns @ solved.shares)

    split = largest_column_shards()
    monkeypatch.setattr(FullestRanks, "_shards", property(lambda self: self._means))
    assert split < 0.8 * largest_column_shards()
