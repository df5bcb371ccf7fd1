"""Averaging of replicas: what every rank sends, where, how often, and what waits for it."""

from dataclasses import replace

import pytest
from machines import machine
from plans import index, plan, table, workload
from timelines import simulated

from costmodel.base.errors import PlanMismatchError
from costmodel.base.units import US
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.replica_groups import ReplicaGroups, ShardingStrategy
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DataType, Optimizer, Pipeline, Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import memory_per_rank
from costmodel.step.step_operations import Op, StepOperations
from costmodel.step.synthesis import step_operations

TW, DP = ShardingType.TABLE_WISE, ShardingType.DATA_PARALLEL
NEAR = ReplicaGroups(num_groups=2, ranks_per_node=4)
"""Ranks 0 and 2 of a node of four are one group, 1 and 3 the other."""
ALONE = Topology(hardware=machine(), world_size=2, local_world_size=2)
ONE = table("t", data_type=DataType.FP32)
"""8,000 x 64 x 4 bytes, and 4 of row-wise Adagrad a row: 2.08 MB."""


def grouped(replicas: ReplicaGroups | None) -> Topology:
    return replace(ALONE, replicas=replicas)


def made(
    work: Workload, replicas: ReplicaGroups | None = NEAR, kind: ShardingType = TW
) -> StepOperations:
    topology = grouped(replicas)
    ranks = () if kind is DP else (0,)
    how = {one.name: (kind, ranks) for one in work.tables}
    return step_operations(work, topology, plan(work, topology, how))


def averaging(step: StepOperations) -> Op:
    return step.ops[index(step, "average replicas")]


def test_a_rank_sends_what_it_holds() -> None:
    # two calls, of weights and of state: each up and down, 10 us of latency; then 2.08 MB at
    # 100 GB/s, as of two ranks each sends half there and half back
    op = averaging(made(workload(ONE, optimizer=Optimizer.ROWWISE_ADAGRAD)))
    assert op.seconds.tolist() == pytest.approx([2 * 20 * US + 20.8 * US, 2 * 20 * US])
    assert op.num_bytes.tolist() == [2_080_000.0, 0.0]


def test_sgd_has_no_state() -> None:
    op = averaging(made(workload(ONE, optimizer=Optimizer.SGD)))
    assert op.seconds.tolist() == pytest.approx([20 * US + 20.48 * US, 20 * US])


def test_a_step_has_its_share_of_one() -> None:
    work = workload(ONE)
    every = averaging(made(work))
    fourth = averaging(made(work, replace(NEAR, sync_interval=4)))
    assert fourth.seconds.tolist() == pytest.approx((every.seconds / 4).tolist())


def test_the_compute_stream_waits_for_it_after_the_update() -> None:
    step = made(workload(ONE))
    sent = index(step, "average replicas")
    assert index(step, "dense optimizer") in step.ops[sent].after
    assert step.ops[index(step, "wait for replicas")].after == (sent,)


def test_it_is_slower_between_nodes() -> None:
    # whole nodes of two: peers are on the other one, at 10 GB/s and 2 x 20 us
    far = ReplicaGroups(num_groups=2, ranks_per_node=2, use_inter_host_allreduce=True)
    op = averaging(made(workload(ONE, optimizer=Optimizer.SGD), far))
    assert op.seconds.tolist() == pytest.approx([40 * US + 204.8 * US, 40 * US])


def test_gradients_of_the_dense_model_and_of_copies_are_reduced_over_the_job() -> None:
    step = made(workload(ONE), kind=DP)
    names = {op.name: op for op in step.ops}
    assert "average replicas" not in names
    assert names["data_parallel all-reduce"].resource == "job"
    (alone,) = (
        o for o in made(workload(ONE), None, DP).ops if o.name == "data_parallel all-reduce"
    )
    # of four ranks instead of two: 3/2 of the bytes on each link, and twice the depth
    moved = 2_048_000 / 100e9
    assert alone.seconds[0] == pytest.approx(20 * US + moved)
    assert names["data_parallel all-reduce"].seconds[0] == pytest.approx(40 * US + 1.5 * moved)
    assert {op.resource for op in step.ops if op.name == "dense all-reduce"} == {"job"}


SCATTERED = replace(NEAR, sharding_strategy=ShardingStrategy.FULLY_SHARDED)


def test_fully_sharded_weights_are_apart_between_lookup_and_update() -> None:
    # reduce-scatter and all-gather: half of 2.048 MB at 100 GB/s each, after 10 us
    step = made(workload(ONE), SCATTERED)
    assert "average replicas" not in {op.name for op in step.ops}
    scatter, gather = (index(step, f"table_wise {what} replicas") for what in ("scatter", "gather"))
    for op in (step.ops[scatter], step.ops[gather]):
        assert op.resource == "replicas"
        assert op.seconds.tolist() == pytest.approx([10 * US + 10.24 * US, 10 * US])
    assert index(step, "table_wise lookup") in step.ops[scatter].after
    assert step.ops[index(step, "table_wise lookup backward")].after == (gather,)


def test_the_engine_times_them_as_the_simulator() -> None:
    tables = [replace(table(name), num_embeddings=2_000_000) for name in "tuv"]
    work, topology = workload(*tables), grouped(SCATTERED)
    kinds = zip("tuv", (TW, ShardingType.ROW_WISE, DP), strict=True)
    mixed = plan(work, topology, {name: (kind, (0,)) for name, kind in kinds})
    step_time = simulated(step_operations(work, topology, mixed)).step_time
    found = Objective(work, topology).step_time(mixed)
    assert found == pytest.approx(step_time, rel=1e-12)
    assert step_time_bound(work, topology) <= found


def test_all_weights_and_a_part_are_in_memory_at_the_lookup() -> None:
    work = workload(ONE)
    whole, more = (
        memory_per_rank(work, ranks, plan(work, ranks, {"t": (TW, (0,))}))[0].weights
        for ranks in (grouped(NEAR), grouped(SCATTERED))
    )
    assert more == 1.5 * whole


def test_a_lookup_before_the_update_needs_all_weights() -> None:
    with pytest.raises(PlanMismatchError, match="semi_sync"):
        made(workload(ONE, pipeline=Pipeline.SEMI_SYNC), SCATTERED)


def test_one_group_has_the_step_that_it_had() -> None:
    work = workload(ONE)
    assert {"job", "replicas"}.isdisjoint(op.resource for op in made(work, None).ops)


def test_no_plan_is_faster_than_the_bound() -> None:
    large = [replace(table(name), num_embeddings=8_000_000, sharding_types=(TW,)) for name in "tu"]
    work, topology = workload(*large), grouped(NEAR)
    step = Objective(work, topology).step_time(
        plan(work, topology, {"t": (TW, (0,)), "u": (TW, (1,))})
    )
    # every rank has one of the tables, which are alike
    assert step_time_bound(work, ALONE) < 0.9 * step < step_time_bound(work, topology) <= step


@pytest.mark.parametrize(
    "kernel", [ComputeKernel.DENSE, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING]
)
def test_weights_that_are_not_averaged_are_refused(kernel: ComputeKernel) -> None:
    work = workload(replace(ONE, compute_kernels=(ComputeKernel.FUSED, kernel)))
    topology = grouped(NEAR)
    good = plan(work, topology, {"t": (TW, (0,))})
    bad = replace(good, tables=(replace(good.tables[0], compute_kernel=kernel),))
    check_plan(work, ALONE, bad)
    check_plan(work, topology, good)
    with pytest.raises(PlanMismatchError, match="only fused"):
        check_plan(work, topology, bad)
