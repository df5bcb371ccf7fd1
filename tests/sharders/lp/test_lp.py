"""The program over the relaxed step: whole shares, what is wanted only, within memory."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from costmodel.base.arrays import Array, Mask
from costmodel.bounds.step_program import CYCLE_TOLERANCE
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from planner.files.profiles import load_profile
from sharders.greedy.cost_greedy import CostGreedy
from sharders.lp.lp import Lp
from sharders.lp.offered_program import LpOptions, OfferedProgram, by_share
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem


def problem() -> ShardingProblem:
    return example_problem(example_workload(30, seed=4), world_size=16, num_nodes=2)


def everything(choices: LpOptions) -> Mask:
    return np.ones(len(choices.options), dtype=bool)


def shares_of(choices: LpOptions, wanted: Mask) -> Array:
    solved = OfferedProgram(choices, everything(choices)).solve(wanted)
    assert solved is not None
    return solved.shares


def test_an_option_costs_its_price_more_where_others_make_room_for_it() -> None:
    choices = LpOptions.of(example_problem(example_workload(12, seed=1), world_size=8))
    program, offered = OfferedProgram(choices, everything(choices)), everything(choices)
    solved = program.solve(offered)
    assert solved is not None
    assert solved.prices[solved.shares > 0] == pytest.approx(0, abs=1e-9)
    assert solved.prices.min() >= -1e-9
    assert solved.prices.max() > 0
    dearest = int(np.argmax(solved.prices))
    others = (choices.table == choices.table[dearest]) & (np.arange(len(offered)) != dearest)
    forced = program.solve(offered & ~others)
    assert forced is not None
    assert forced.value > solved.value * (1 + CYCLE_TOLERANCE)


def test_every_table_gets_shares_that_add_up_to_one() -> None:
    choices = LpOptions.of(problem())
    shares = shares_of(choices, everything(choices))
    assert np.bincount(choices.table, shares) == pytest.approx(np.ones(30))
    assert shares @ choices.memory <= 0.98


def test_a_program_has_a_value_even_where_a_cycle_has_a_negative_constant() -> None:
    # replicas are reduced along a measured curve, whose tangent at gigabytes begins below zero
    workload = Workload(
        tables=tuple(
            EmbeddingTable(name=f"t{n}", num_embeddings=2_000_000 * n, embedding_dim=128)
            for n in range(1, 11)
        ),
        local_batch_size=512,
    )
    machines = Topology(hardware=load_profile("h200-sxm"), world_size=64, local_world_size=8)
    posed = ShardingProblem.of(workload, machines)
    types = (
        ShardingType.DATA_PARALLEL,
        ShardingType.COLUMN_WISE,
        ShardingType.TABLE_ROW_WISE,
    )
    choices = LpOptions.of(posed, types)
    program = OfferedProgram(choices, everything(choices))
    solved = program.solve(everything(choices))
    assert solved is not None
    assert solved.value > 1e-3  # launches alone take that


@pytest.mark.parametrize("played", [0, 1, 20])
def test_cycles_found_beforehand_leave_the_value_as_it_is(
    played: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = LpOptions.of(problem())
    expected = OfferedProgram(choices, everything(choices)).solve(everything(choices))
    monkeypatch.setattr("sharders.lp.offered_program.PLAYED", played)
    found = OfferedProgram(choices, everything(choices)).solve(everything(choices))
    assert expected is not None
    assert found is not None
    assert found.value == pytest.approx(expected.value, rel=CYCLE_TOLERANCE)


def test_a_program_solved_for_others_says_what_one_of_their_own_does() -> None:
    choices = LpOptions.of(problem())
    program = OfferedProgram(choices, everything(choices))
    row_wise = choices.of_types([ShardingType.ROW_WISE])
    for wanted in (everything(choices), row_wise, ~row_wise, everything(choices)):
        found = program.solve(wanted)
        own = OfferedProgram(choices, everything(choices)).solve(wanted)
        assert found is not None
        assert own is not None
        assert found.value == pytest.approx(own.value, rel=CYCLE_TOLERANCE)
        assert found.shares[~wanted].max(initial=0.0) == 0.0


def test_few_tables_are_divided_over_several_options() -> None:
    choices = LpOptions.of(problem())
    shares = shares_of(choices, everything(choices))
    chosen = list(by_share(choices, shares))
    assert len(chosen) == 30
    assert sum(len(options) > 1 for options in chosen) <= 10


def test_what_is_not_wanted_has_no_share_where_there_is_something_else() -> None:
    choices = LpOptions.of(problem())
    kinds = np.array([option.sharding_type for option in choices.options])
    wanted = kinds == ShardingType.ROW_WISE
    shares = shares_of(choices, wanted)
    chosen = {kinds[options[0]] for options in by_share(choices, shares)}
    assert chosen == {ShardingType.ROW_WISE}


def test_there_are_no_shares_where_nothing_fits() -> None:
    full = example_problem(example_workload(), fill=1.5)
    choices = LpOptions.of(full)
    assert OfferedProgram(choices, everything(choices)).solve(everything(choices)) is None


def test_beats_the_greedy_where_exchanges_decide() -> None:
    large = replace(example_workload(30, seed=4), local_batch_size=16_384)
    posed = example_problem(large, world_size=16, num_nodes=2)
    greedy = CostGreedy().shard(posed, Budget(), Random(0))
    result = Lp().shard(posed, Budget(), Random(0))
    check_plan(posed.workload, posed.topology, result.plan)
    check_memory(posed.workload, posed.topology, result.plan)
    assert result.status is SearchStatus.CONVERGED
    assert result.step_time < greedy.step_time * (1 - CYCLE_TOLERANCE)


def test_says_which_other_plans_are_worth_annealing(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = problem()
    monkeypatch.setattr("sharders.lp.lp.NEAR", 2.0)
    result = Lp().shard(posed, Budget(), Random(0))
    assert result.others
    assert result.plan not in result.others
    assert len(set(result.others)) == len(result.others)
    for plan in result.others:
        check_memory(posed.workload, posed.topology, plan)
        slower = posed.objective.step_time(plan) / result.step_time
        assert 1 <= slower <= 2.0


@pytest.mark.slow
def test_is_never_worse_than_the_plans_it_knows() -> None:
    posed = problem()
    best = Lp().shard(posed, Budget(), Random(0))
    again = Lp().shard(replace(posed, known=(best.plan,)), Budget(max_evaluations=3), Random(0))
    assert again.step_time <= best.step_time


def test_no_shard_larger_than_a_rank_is_listed() -> None:
    posed = example_problem(example_workload(30, seed=4), world_size=16, num_nodes=2, fill=0.8)
    listed, large = LpOptions.of(posed), posed.groundwork.arrays.largest_bytes > posed.capacity
    assert large.any()
    assert not large[listed.numbers].any()
    assert set(listed.table) == set(range(30))


def test_memory_is_that_of_all_shards() -> None:
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)
    tables = tuple(replace(each, compute_kernels=kernels) for each in problem().workload.tables)
    workload = replace(problem().workload, tables=tables)
    posed = example_problem(workload, world_size=16, num_nodes=2)
    choices = LpOptions.of(posed)
    assert len({option.compute_kernel for option in choices.options}) > 1
    total = posed.topology.world_size * posed.capacity
    for number, option in enumerate(choices.options):
        sizes = posed.groundwork.option_bytes(tables[choices.table[number]], option)
        held = sum(float(size.total) for size in sizes)
        assert choices.memory[number] * total == pytest.approx(held)


def test_only_some_types_are_listed_but_for_tables_that_allow_none_of_them() -> None:
    posed = problem()
    some = {ShardingType.COLUMN_WISE, ShardingType.DATA_PARALLEL}
    listed = LpOptions.of(posed, some)
    assert set(listed.table) == set(range(len(posed.workload.tables)))
    others = [i for i, o in enumerate(listed.options) if o.sharding_type not in some]
    for table in {posed.workload.tables[listed.table[i]] for i in others}:
        assert not some & {option.sharding_type for option in posed.options[table.name]}


def test_a_program_that_would_take_longer_than_there_is_time_for_is_not_begun() -> None:
    left = iter([10.0, 4.0, 4.0])  # the first plan takes 6 seconds
    result = Lp().shard(problem(), Budget(time_left=lambda: next(left)), Random(0))
    assert (result.status, result.evaluated) == (SearchStatus.LIMIT, 2)
