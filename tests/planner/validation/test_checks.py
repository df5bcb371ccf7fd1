import os
from dataclasses import replace

import pytest
from machines import machine

from costmodel.base.errors import InfeasibleError, InputError, PlanMismatchError
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding, make_shards
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Pooling, Workload
from planner.files.plans import PlanFile
from planner.validation.checks import check_machine, check_same_job, check_workload


def plan_file(num_embeddings: int = 1000, world_size: int = 2) -> PlanFile:
    table = EmbeddingTable(name="t", num_embeddings=num_embeddings, embedding_dim=64)
    kind = ShardingType.ROW_WISE
    shards = make_shards(
        kind, num_embeddings, 64, ranks=(), world_size=world_size, local_world_size=world_size
    )
    sharding = TableSharding(table="t", sharding_type=kind, shards=shards)
    return PlanFile(
        plan=ShardingPlan(tables=(sharding,), world_size=world_size, local_world_size=world_size),
        workload=Workload(tables=(table,), pipeline=Pipeline.NONE),
        hardware="test",
    )


def cores(file: PlanFile) -> Topology:
    ranks = file.plan.world_size
    hardware = machine(device=Device.CPU)
    return Topology(hardware=hardware, world_size=ranks, local_world_size=ranks)


def test_everything_untrainable_is_said_at_once() -> None:
    table = EmbeddingTable(name="ids", num_embeddings=10, embedding_dim=4, pooling=Pooling.NONE)
    workload = Workload(tables=(table,), pipeline=Pipeline.SPARSE_DIST, comms_forward=DataType.FP16)
    with pytest.raises(InputError) as caught:
        check_workload(workload, "plan.json")
    messages = [problem.message for problem in caught.value.problems]
    assert messages == [
        "table `ids` is not pooled; only pooled tables are trained",
        "quantized communication is not trained",
    ]


def test_fp32_codecs_are_trained_as_they_convert_nothing() -> None:
    plain, fp32 = plan_file().workload, DataType.FP32
    check_workload(replace(plain, comms_forward=fp32, comms_backward=fp32), "plan.json")


def test_plain_dlrm_is_refused_with_a_way_out() -> None:
    workload = replace(plan_file().workload, pipeline=Pipeline.DLRM)
    with pytest.raises(InputError) as caught:
        check_workload(workload, "plan.json")
    assert caught.value.problems[0].hint == "set `pipeline` to `none` or `sparse_dist`"


def test_plans_of_two_workloads_are_refused() -> None:
    with pytest.raises(PlanMismatchError, match="`b` is for another workload than `a`"):
        check_same_job([plan_file(1000), plan_file(2000)], ["a", "b"])


def test_plans_of_one_model_may_come_from_different_constraints() -> None:
    free = plan_file()
    tables = tuple(
        replace(table, sharding_types=(ShardingType.ROW_WISE,), ranks=(0,), min_shard_dim=8)
        for table in free.workload.tables
    )
    bound = replace(free, workload=replace(free.workload, tables=tables, name="bound"))
    check_same_job([free, bound], ["a", "b"])
    batch = replace(bound, workload=replace(bound.workload, local_batch_size=7))
    with pytest.raises(PlanMismatchError, match="another workload"):
        check_same_job([free, batch], ["a", "b"])


def test_plans_of_two_world_sizes_are_refused() -> None:
    with pytest.raises(PlanMismatchError, match="`b` is for 4 ranks"):
        check_same_job([plan_file(), plan_file(world_size=4)], ["a", "b"])


@pytest.mark.parametrize("pipeline", [Pipeline.FUSED_SPARSE_DIST, Pipeline.SEMI_SYNC])
def test_pipelines_that_a_cpu_cannot_run_are_refused_there(pipeline: Pipeline) -> None:
    file = plan_file(world_size=1)
    file = replace(file, workload=replace(file.workload, pipeline=pipeline))
    with pytest.raises(InfeasibleError, match=f"`{pipeline}` .* needs a GPU's streams"):
        check_machine(file, cores(file))


def test_a_plan_of_one_of_several_groups_is_not_trained() -> None:
    groups = ReplicaGroups(num_groups=2, ranks_per_node=4)
    file = replace(plan_file(), replicas=groups)
    with pytest.raises(PlanMismatchError, match="one of several groups") as refused:
        check_machine(file, replace(cores(file), replicas=groups))
    assert refused.value.hint is not None


def test_weights_that_fbgemm_does_not_train_are_refused() -> None:
    file = plan_file(world_size=1)
    (table,) = file.workload.tables
    int8 = replace(file.workload, tables=(replace(table, data_type=DataType.INT8),))
    with pytest.raises(InfeasibleError, match="weights of `t`: int8 cannot be trained"):
        check_machine(replace(file, workload=int8), cores(file))


def test_more_ranks_than_cores_are_refused() -> None:
    file = plan_file(world_size=64 * (os.cpu_count() or 1))
    with pytest.raises(InfeasibleError, match="ranks need a core each"):
        check_machine(file, cores(file))


def test_tables_that_memory_cannot_hold_are_refused_with_both_numbers() -> None:
    file = plan_file(num_embeddings=2_000_000_000, world_size=1)
    with pytest.raises(InfeasibleError, match=r"the ranks need 4\d\d.\d GiB in all, and .* free"):
        check_machine(file, cores(file))
