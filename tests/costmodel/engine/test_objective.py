"""The objective of the search is the simulator, to rounding; and what holds for any plan."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, topology
from plans import plan, table, workload
from strategies import cases, plans
from timelines import simulated

from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import Shard, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import DenseModel, EmbeddingTable, Interaction, Pipeline, Workload
from costmodel.engine.objective import Objective
from costmodel.step.graph import NodeKind
from costmodel.step.operation_timeline import operation_timeline, plan_timeline
from costmodel.step.synthesis import MOST_WRITTEN, NUM_STEPS, step_operations
from costmodel.uncertainty.error_model import ErrorModel
from costmodel.uncertainty.step_samples import sample_operations

Case = tuple[Workload, Topology, ShardingPlan]
SETTINGS = settings(max_examples=30)


@given(cases())
@SETTINGS
def test_equals_the_event_driven_simulator(case: Case) -> None:
    workload, ranks, plan = case
    step_time = simulated(step_operations(workload, ranks, plan)).step_time
    assert Objective(workload, ranks).step_time(plan) == pytest.approx(step_time, rel=1e-12)


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_the_last_step_is_the_steady_state(case: Case) -> None:
    ends = operation_timeline(step_operations(*case), NUM_STEPS + 4).step_ends
    periods = [b - a for a, b in pairwise(ends)]
    assert periods[NUM_STEPS - 2] == pytest.approx(periods[-1], rel=1e-9)


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_a_slower_link_or_memory_never_shortens_the_step(case: Case) -> None:
    workload, ranks, plan = case
    step, device = Objective(workload, ranks).step_time(plan), ranks.hardware.device
    for slower in (
        machine(bandwidth=500 * GB, device=device),
        machine(link=20 * GB, device=device),
        machine(inter_node=2 * GB, device=device),
    ):
        corrections = {
            name: getattr(ranks.hardware.gpu, name)
            for name in ("forward_correction", "backward_correction", "stream_correction")
        }
        gpu = replace(slower.gpu, **corrections)
        worse = replace(ranks, hardware=replace(slower, gpu=gpu))
        assert Objective(workload, worse).step_time(plan) >= step * (1 - 1e-12)


@pytest.mark.slow
@given(cases(min_tables=2))
@SETTINGS
def test_leaving_a_table_out_never_lengthens_the_step(case: Case) -> None:
    workload, ranks, plan = case
    fewer = replace(workload, tables=workload.tables[:-1])
    less = replace(plan, tables=plan.tables[:-1])
    with_it = Objective(workload, ranks).step_time(plan)
    assert Objective(fewer, ranks).step_time(less) <= with_it * (1 + 1e-12)


@given(cases(even=True))
@SETTINGS
def test_relabelling_ranks_does_not_change_the_step(case: Case) -> None:
    # mirror nodes and ranks inside nodes; types that fix shard i on rank i keep their shards,
    # which are all alike
    workload, ranks, plan = case
    fixed = {ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL}
    last = ranks.world_size - 1
    mirrored = tuple(
        sharding
        if sharding.sharding_type in fixed
        else replace(
            sharding,
            shards=tuple(replace(shard, rank=last - shard.rank) for shard in sharding.shards),
        )
        for sharding in plan.tables
    )
    objective = Objective(workload, ranks)
    relabelled = replace(plan, tables=mirrored)
    assert objective.step_time(relabelled) == pytest.approx(objective.step_time(plan), rel=1e-9)


@pytest.mark.slow
@given(cases())
@SETTINGS
def test_the_critical_path_adds_up_to_the_step(case: Case) -> None:
    timeline = plan_timeline(*case)
    assert sum(timeline.breakdown().values()) == pytest.approx(timeline.step_time, rel=1e-9)


def _one_gpu() -> Case:
    table = EmbeddingTable(name="t", num_embeddings=1000, embedding_dim=64)
    workload = Workload(tables=(table,), dense=DenseModel(interaction=Interaction.CAT))
    shard = Shard(rank=0, row_offset=0, num_rows=1000, column_offset=0, num_columns=64)
    sharding = TableSharding(table="t", sharding_type=ShardingType.TABLE_WISE, shards=(shard,))
    plan = ShardingPlan(tables=(sharding,), world_size=1, local_world_size=1)
    return workload, topology(1), plan


def test_one_gpu_has_no_communication() -> None:
    made = step_operations(*_one_gpu())
    assert not [op for op in made.ops if op.kind is NodeKind.COLLECTIVE]


@pytest.mark.slow
@given(cases(), st.data())
@SETTINGS
def test_plans_timed_at_once_take_what_they_take_alone(case: Case, data: st.DataObject) -> None:
    workload, ranks, plan = case
    both = [plan, data.draw(plans(workload, ranks))]
    alone = [simulated(step_operations(workload, ranks, each)).step_time for each in both]
    times = Objective(workload, ranks).step_times(both)
    assert times.tolist() == pytest.approx(alone, rel=1e-12)


@pytest.mark.slow
@given(cases(), st.data())
@SETTINGS
def test_plans_timed_before_change_nothing(case: Case, data: st.DataObject) -> None:
    workload, ranks, plan = case
    objective = Objective(workload, ranks)
    objective.step_time(data.draw(plans(workload, ranks)))
    assert objective.step_time(plan) == Objective(workload, ranks).step_time(plan)


@pytest.mark.parametrize("local_batch_size", [16, 4096])
@pytest.mark.parametrize("pipeline", [each for each in Pipeline if each is not Pipeline.DLRM])
def test_a_step_of_many_batches_takes_what_the_few_say_that_are_written(
    pipeline: Pipeline, local_batch_size: int
) -> None:
    tables = (table("a", dim=64), table("b", dim=16, weighted=True), table("c", ids=50.0))
    work = workload(*tables, pipeline=pipeline, gradient_accumulation_steps=11)
    work, ranks = replace(work, local_batch_size=local_batch_size), topology(4, 2)
    kinds = ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL
    where = dict(zip("abc", zip(kinds, [(1,), (), ()], strict=True), strict=True))
    every, few = (
        step_operations(work, ranks, plan(work, ranks, where), every_batch=each)
        for each in (True, False)
    )
    assert len(few.ops) < len(every.ops)
    assert few.like is not None
    assert few.like.left_out == 11 - MOST_WRITTEN
    step_time = pytest.approx(operation_timeline(every).step_time, rel=1e-9)
    assert Objective(work, ranks).step_time(plan(work, ranks, where)) == step_time
    (sampled,) = sample_operations(few, ranks, ErrorModel(spreads={})).predicted
    assert sampled == step_time
