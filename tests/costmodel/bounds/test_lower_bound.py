from contextlib import suppress
from dataclasses import replace
from itertools import count, product
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import flat_curve, machine, topology
from strategies import Case, cases, fixed_cases, workloads
from table_options import table_options

from costmodel.bounds.lower_bound import step_time_bound
from costmodel.bounds.op_times import lines_below
from costmodel.domain.hardware import CollectiveOp, Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.engine.objective import Objective
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.collectives import RankGroup, collective_form
from costmodel.memory.rank_memory import fits
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.synthesis import step_operations
from sharders.problem.options import TableOption, make_plan, make_sharding

SLACK = 1 + 1e-9


def _check(bound: float, workload: Workload, ranks: Topology, plan: ShardingPlan) -> None:
    """Check that no step is shorter, in the long run: the few timed may hide a rank's delay."""
    if bound > Objective(workload, ranks).step_time(plan) * SLACK:
        ends = operation_timeline(step_operations(workload, ranks, plan), 30).step_ends
        assert bound <= (ends[-1] - ends[9]) / 20 * SLACK


@pytest.mark.slow
@given(cases() | fixed_cases())
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_no_plan_is_faster(case: Case) -> None:
    workload, ranks, plan = case
    clock = count()
    bound = step_time_bound(workload, ranks, lambda: float(100 - next(clock)))
    _check(bound, workload, ranks, plan)


def test_rows_are_not_fetched_where_no_table_is_cached() -> None:
    table = EmbeddingTable(name="t", num_embeddings=3, embedding_dim=4, pooling_factor=0.5)
    prefetching = Workload(
        tables=(table,),
        dense=DenseModel(bottom_mlp=(64, 32), interaction=Interaction.CAT, top_mlp=(64, 1)),
        local_batch_size=64,
        pipeline=Pipeline.PREFETCH,
    )
    ranks = topology(1)
    (fused, *_) = (
        option
        for option in table_options(prefetching, ranks, table)
        if option.sharding_type is ShardingType.TABLE_WISE
    )
    plan = make_plan(ranks, [make_sharding(table, ranks, fused, (0,))])
    _check(step_time_bound(prefetching, ranks), prefetching, ranks, plan)


def test_no_step_is_shorter_than_the_copies_of_stashed_weights() -> None:
    table = EmbeddingTable(
        name="t", num_embeddings=40_000_000, embedding_dim=128, pooling_factor=1.0,
        compute_kernels=(ComputeKernel.FUSED,), stash_weights=True,
    )  # fmt: skip
    stashing = Workload(
        tables=(table,),
        dense=DenseModel(bottom_mlp=(64, 128), top_mlp=(64, 1)),
        local_batch_size=64,
        pipeline=Pipeline.SPARSE_DIST,
    )
    ranks = topology(2)
    rate = ranks.hardware.host.pcie_bandwidth
    assert step_time_bound(stashing, ranks) >= table.weight_bytes / 2 / rate


@pytest.mark.slow
@given(cases(min_tables=2), st.integers(0, 12))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_no_plan_is_faster_than_a_bound_that_was_cut_short(case: Case, time: int) -> None:
    workload, ranks, plan = case
    clock = count()
    bound = step_time_bound(workload, ranks, lambda: float(time - next(clock)))
    _check(bound, workload, ranks, plan)


def _table(index: int, rows: int, dim: int, pooling: float) -> EmbeddingTable:
    return EmbeddingTable(
        name=f"t{index}",
        num_embeddings=rows,
        embedding_dim=dim,
        pooling_factor=pooling,
        compute_kernels=(
            ComputeKernel.FUSED,
            ComputeKernel.DENSE,
            ComputeKernel.FUSED_UVM,
            ComputeKernel.FUSED_UVM_CACHING,
        ),
    )


def _plans(workload: Workload, ranks: Topology) -> list[ShardingPlan]:
    """Every plan on two ranks, up to naming them."""
    keys = []
    for table in workload.tables:
        shardings = []
        for option in table_options(workload, ranks, table):
            for chosen in product(range(2), repeat=option.num_ranks):
                try:
                    shardings.append(make_sharding(table, ranks, option, chosen))
                except ValueError:
                    continue
        keys.append(shardings)
    plans = [make_plan(ranks, choice) for choice in product(*keys)]
    return [plan for plan in plans if fits(workload, ranks, plan)]


@pytest.mark.slow
@given(
    rows=st.tuples(*[st.sampled_from([200, 50_000, 2_000_000])] * 2),
    dims=st.tuples(*[st.sampled_from([4, 8])] * 2),
    pooling=st.tuples(*[st.sampled_from([1.0, 30.0])] * 2),
    batch=st.sampled_from([256, 16384]),
    pipeline=st.sampled_from(Pipeline),
    batches=st.sampled_from([1, 2]),
    memory=st.sampled_from([1.0, 80.0]),
)
@settings(max_examples=8)
def test_never_above_the_optimum(
    rows: tuple[int, ...],
    dims: tuple[int, ...],
    pooling: tuple[float, ...],
    batch: int,
    pipeline: Pipeline,
    batches: int,
    memory: float,
) -> None:
    workload = Workload(
        tables=tuple(
            _table(i, *each) for i, each in enumerate(zip(rows, dims, pooling, strict=True))
        ),
        dense=DenseModel(bottom_mlp=(16,), top_mlp=(16, 1)),
        local_batch_size=batch,
        pipeline=pipeline,
        gradient_accumulation_steps=batches,
    )
    ranks = topology(2, 2, machine(memory=memory * 2**30))
    objective = Objective(workload, ranks)
    plans = _plans(workload, ranks)
    if plans:
        best = min(objective.step_time(plan) for plan in plans[:: max(1, len(plans) // 150)])
        assert step_time_bound(workload, ranks) <= best * SLACK


@pytest.mark.slow
@given(workloads(max_tables=2))
@settings(max_examples=3)
def test_slower_links_never_lower_it(workload: Workload) -> None:
    fast, slow = (topology(4, 2, machine(link=link)) for link in (100e9, 25e9))
    assert step_time_bound(workload, fast) <= step_time_bound(workload, slow) * (1 + 1e-3)


def test_it_is_close_where_balance_is_perfect() -> None:
    # 16 equal tables on 4 ranks: only launch latencies and table-independent slack are left out
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=1_000_000, embedding_dim=64, pooling_factor=20.0,
            inputs=Zipf(exponent=0.0),
        )
        for i in range(16)
    )  # fmt: skip
    workload = Workload(tables=tables, local_batch_size=4096, pipeline=Pipeline.DLRM)
    ranks = topology(4)
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    plan = make_plan(
        ranks, [make_sharding(table, ranks, option, (i % 4,)) for i, table in enumerate(tables)]
    )
    step = Objective(workload, ranks).step_time(plan)
    assert 0.98 * step < step_time_bound(workload, ranks) <= step


def test_no_table_is_half_in_one_group_and_half_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE
    tables = tuple(
        replace(_table(i, 100_000, *each), sharding_types=kinds, compute_kernels=())
        for i, each in enumerate([(256, 1.0), (128, 30.0), (64, 8.0)])
    )
    workload, ranks = Workload(tables=tables, local_batch_size=8192), topology(4, 2)
    ways = [
        [
            make_sharding(table, ranks, option, (rank,) if option.num_ranks else ())
            for option in table_options(workload, ranks, table)
            for rank in range(0, 4, 2 if option.sharding_type.within_node else 1)
        ]
        for table in tables
    ]
    step_time = Objective(workload, ranks).step_time
    best = min(step_time(make_plan(ranks, choice)) for choice in product(*ways))
    bound = step_time_bound(workload, ranks)
    monkeypatch.setattr("costmodel.bounds.relaxation.HALVED", inf)
    assert 1.005 * step_time_bound(workload, ranks) < bound <= best * SLACK


def test_one_large_table_counts_where_it_cannot_be_split() -> None:
    large = _table(0, 2_000_000, 64, 100.0)
    large = replace(large, sharding_types=(ShardingType.TABLE_WISE,), compute_kernels=())
    small = replace(_table(1, 1000, 64, 1.0), compute_kernels=())
    dense = DenseModel(bottom_mlp=(16,), top_mlp=(16, 1))
    workload = Workload(tables=(large, small), dense=dense, local_batch_size=65536)
    bounds = [step_time_bound(workload, topology(size)) for size in (4, 8)]
    # twice the ranks bring twice the samples, all of which the one rank looks up
    assert bounds[1] > 1.5 * bounds[0]


def _whole_only(table: EmbeddingTable, *ranks: int) -> EmbeddingTable:
    types = (ShardingType.TABLE_WISE,)
    return replace(table, sharding_types=types, compute_kernels=(), ranks=ranks)


def _step_of_whole_tables(workload: Workload, ranks: Topology, where: tuple[int, ...]) -> float:
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    placed = zip(workload.tables, where, strict=True)
    plan = make_plan(ranks, [make_sharding(each, ranks, option, (rank,)) for each, rank in placed])
    return Objective(workload, ranks).step_time(plan)


def test_tables_given_to_one_rank_are_looked_up_one_after_the_other() -> None:
    given_ones = [_whole_only(_table(n, 1_000_000, 64, 60.0), 1) for n in range(3)]
    others = [_whole_only(_table(3 + n, 100_000, 64, 4.0)) for n in range(8)]
    tables = (*given_ones, *others)
    workload = Workload(tables=tables, local_batch_size=4096, pipeline=Pipeline.DLRM)
    ranks = topology(8)
    step = _step_of_whole_tables(workload, ranks, (1, 1, 1, 0, 2, 3, 4, 5, 6, 7, 0))
    bound = step_time_bound(workload, ranks)
    assert 0.9 * step < bound <= step * SLACK
    free = replace(workload, tables=tuple(replace(table, ranks=()) for table in tables))
    assert step_time_bound(free, ranks) < 0.9 * bound


def test_collectives_wait_for_the_rank_with_the_largest_shard() -> None:
    large = _whole_only(_table(0, 100_000, 1024, 1.0))
    others = [_whole_only(_table(1 + n, 1_000, 64, 1.0)) for n in range(15)]
    tables = (large, *others)
    workload = Workload(tables=tables, local_batch_size=4096, pipeline=Pipeline.DLRM)
    ranks = topology(16, 8, machine(link=2e9))
    step = _step_of_whole_tables(workload, ranks, tuple(range(16)))
    assert 0.85 * step < step_time_bound(workload, ranks) <= step * SLACK


@pytest.mark.parametrize("op", CollectiveOp)
@pytest.mark.parametrize("there", [True, False])
def test_lines_are_below_the_curve(op: CollectiveOp, there: bool) -> None:  # noqa: FBT001
    hardware = machine(curves=(flat_curve(op, 4),))
    form = collective_form(op, RankGroup(num_ranks=4, ranks_per_node=4), hardware)
    lines = lines_below(form, 1e9, float(form.time(0.0)) if there else 0.0)
    sizes = np.geomspace(1.0, 1e9, 997)
    highest = np.max([constant + slope * sizes for constant, slope in lines], axis=0)
    assert (highest <= form.time(sizes) * SLACK).all()
    assert highest[-1] >= 0.98 * form.time(1e9)
    assert (highest[0] > 0.9 * form.time(1.0)) == there
    assert lines_below(form, 0.0, 5.0) == ((5.0, 0.0),)


def test_groups_that_a_plan_lacks_order_nothing() -> None:
    # the ids of row blocks follow lookups only in plans that also gather outputs in their queue
    table = EmbeddingTable(name="hot", num_embeddings=2, embedding_dim=4, pooling_factor=3e5)
    dense = DenseModel(bottom_mlp=(16,), top_mlp=(8, 1))
    workload = Workload(tables=(table,), dense=dense, local_batch_size=32)
    ranks = topology(8, 4)
    objective = Objective(workload, ranks)
    steps = []
    for option in table_options(workload, ranks, table):
        homes = tuple(range(option.num_ranks))
        with suppress(ValueError):
            plan = make_plan(ranks, [make_sharding(table, ranks, option, homes)])
            steps.append(objective.step_time(plan))
    assert 0.5 * min(steps) < step_time_bound(workload, ranks) <= min(steps) * SLACK


def test_ids_of_groups_that_do_not_bring_a_permute_do_not_count() -> None:
    # replicated tables alone permute no ids; beside whole tables theirs are permuted with all
    table = EmbeddingTable(
        name="long", num_embeddings=10**6, embedding_dim=4, pooling_factor=1e5,
        pooling=Pooling.NONE, data_type=DataType.FP16,
    )  # fmt: skip
    dense = DenseModel(bottom_mlp=(16,), top_mlp=(8, 1))
    workload = Workload(tables=(table,), dense=dense, local_batch_size=64, pipeline=Pipeline.NONE)
    ranks = topology(32, 2)
    option = TableOption(
        sharding_type=ShardingType.DATA_PARALLEL, compute_kernel=ComputeKernel.DENSE
    )
    plan = make_plan(ranks, [make_sharding(table, ranks, option, ())])
    step = Objective(workload, ranks).step_time(plan)
    assert 0.98 * step < step_time_bound(workload, ranks) <= step * SLACK


@pytest.mark.parametrize(("rows", "fits"), [(10**9, False), (350_000_000, False), (10**8, True)])
def test_nothing_is_a_step_of_tables_that_do_not_fit(*, rows: int, fits: bool) -> None:
    # rows of 512 bytes on two GPUs of 80 GiB
    table = replace(_table(0, rows, 128, 1.0), compute_kernels=(ComputeKernel.FUSED,))
    bound = step_time_bound(Workload(tables=(table,)), topology(2, 2))
    assert (bound < float("inf")) == fits
