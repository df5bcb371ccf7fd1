"""The order of the pipelines, and what overlaps in them."""

from dataclasses import replace

import numpy as np
import pytest
from machines import machine, topology
from plans import collectives, index, named, plan, step, table, workload

from costmodel.domain.hardware import Device
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    Interaction,
    Optimizer,
    Pipeline,
    Workload,
)
from costmodel.step.graph import NodeKind, Role, Stage
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import step_operations

TWO = topology(2)
CACHED = ComputeKernel.FUSED_UVM_CACHING


def made(pipeline: Pipeline) -> StepOperations:
    return step(workload(table(), pipeline=pipeline), TWO, ShardingType.TABLE_WISE, 1)


def in_order(program: StepOperations, *names: str) -> bool:
    places = [index(program, name) for name in names]
    return places == sorted(places)


def test_sparse_dist_distributes_one_batch_ahead() -> None:
    program = made(Pipeline.SPARSE_DIST)
    assert in_order(
        program,
        "zero gradients", "permute ids", "splits", "copy batch", "bottom.0",
        "table_wise reorder ids", "wait for table_wise lengths", "table_wise lookup",
        "table_wise outputs", "top.0", "wait for splits", "table_wise lengths", "table_wise ids",
        "autograd resumes", "table_wise gradients", "table_wise lookup backward",
        "dense all-reduce", "main resumes", "dense optimizer",
    )  # fmt: skip


def test_sparse_dist_waits_for_what_the_step_before_sent() -> None:
    program = made(Pipeline.SPARSE_DIST)
    (reorder,) = named(program, "table_wise reorder ids")
    (permute,) = named(program, "permute ids")
    assert reorder.after_previous == (index(program, "table_wise ids"),)
    (arrived,) = named(program, "wait for batch")
    assert arrived.after_previous == (index(program, "copy batch"),)
    assert index(program, "wait for batch") < index(program, "permute ids")
    assert (reorder.resource, permute.resource) == ("data_dist", "data_dist")


def prefetching(load_factor: float = 0.1) -> tuple[Workload, ShardingPlan]:
    one = table(compute_kernels=(CACHED,), cache_load_factor=load_factor)
    work = workload(one, pipeline=Pipeline.PREFETCH)
    placed = plan(work, TWO, {"t": (ShardingType.TABLE_WISE, (1,))})
    cached = replace(placed.tables[0], compute_kernel=CACHED, cache_load_factor=load_factor)
    return work, replace(placed, tables=(cached,))


def test_prefetch_fetches_the_next_batch_s_rows_after_forward() -> None:
    made = step_operations(prefetching()[0], TWO, prefetching()[1])
    assert in_order(
        made,
        "zero gradients", "copy batch", "wait for splits", "table_wise ids", "bottom.0",
        "table_wise lookup", "top.0", "table_wise reorder ids",
        "wait for table_wise lengths", "wait for inputs", "table_wise fetch rows",
        "autograd resumes", "table_wise lookup backward", "dense optimizer", "permute ids",
        "splits",
    )  # fmt: skip
    (rows,) = named(made, "wait for inputs")
    assert (rows.resource, made.ops[rows.after[0]].resource) == ("compute", "data_dist")
    (splits,) = named(made, "wait for splits")
    assert splits.after_previous == (index(made, "splits"),)


def test_rows_are_fetched_where_the_cached_table_is_and_leave_the_lookup() -> None:
    work, placed = prefetching()
    apart = step_operations(work, TWO, placed)
    within = step_operations(replace(work, pipeline=Pipeline.SPARSE_DIST), TWO, placed)
    (fetch,), (lookup,) = named(apart, "table_wise fetch rows"), named(apart, "table_wise lookup")
    (all_of_it,) = named(within, "table_wise lookup")
    assert fetch.seconds[0] == 0.0 < fetch.seconds[1]
    assert lookup.seconds[1] < all_of_it.seconds[1]
    (issued,) = named(apart, "launch table_wise fetch rows")
    assert issued.seconds[0] == 0.0 < issued.seconds[1]


def test_uncached_tables_fetch_nothing() -> None:
    (fetch,) = named(made(Pipeline.PREFETCH), "table_wise fetch rows")
    assert not fetch.seconds.any()


def test_compute_waits_for_the_data_dist_stream() -> None:
    program = made(Pipeline.SPARSE_DIST)
    (wait,) = named(program, "wait for inputs")
    assert wait.resource == "compute"
    assert program.ops[wait.after[0]].resource == "data_dist"


def test_the_host_blocks_for_lengths_and_splits_and_for_copies_of_splits() -> None:
    for pipeline in (Pipeline.SPARSE_DIST, Pipeline.NONE):
        waits = {op.name: op for op in made(pipeline).ops if op.kind is NodeKind.WAIT}
        assert sorted(waits) == [
            "copy table_wise splits", "wait for splits", "wait for table_wise lengths",
        ]  # fmt: skip
        # lengths, ids, batch sizes: three small tensors made of lists and read back
        times = [float(op.seconds[0]) for _, op in sorted(waits.items())]
        assert times[0] == 3 * times[1] == 3 * times[2]


def test_without_pipelining_all_is_on_the_compute_stream() -> None:
    program = made(Pipeline.NONE)
    assert {op.resource for op in program.ops} == {"main", "autograd", "compute", "world"}
    assert not any(op.after_previous for op in program.ops)
    assert in_order(
        program, "copy batch", "bottom.0", "permute ids", "splits", "table_wise ids",
        "table_wise reorder ids", "table_wise lookup",
    )  # fmt: skip
    (reorder,) = named(program, "table_wise reorder ids")
    assert reorder.after == (index(program, "table_wise ids"),)


def test_fused_sparse_dist_looks_up_where_rows_are_updated() -> None:
    program = made(Pipeline.FUSED_SPARSE_DIST)
    assert in_order(
        program,
        "table_wise reorder ids", "table_wise lookup", "table_wise outputs", "zero gradients",
        "permute ids", "splits", "copy batch", "bottom.0", "wait for inputs",
        "table_wise concat outputs", "top.0", "wait for splits", "table_wise ids",
        "table_wise gradients", "table_wise lookup backward", "bottom.0 backward weight",
        "dense optimizer",
    )  # fmt: skip
    (reorder,) = named(program, "table_wise reorder ids")
    assert reorder.after_previous == (index(program, "table_wise ids"),)
    (lookup,), (update,) = (
        named(program, f"table_wise lookup{part}") for part in ("", " backward")
    )
    assert lookup.resource == update.resource == "data_dist"
    (optimizer,) = named(program, "wait for all-reduces")
    assert index(program, "table_wise lookup backward") in optimizer.after


def test_semi_sync_looks_up_the_next_batch_before_the_update() -> None:
    program = made(Pipeline.SEMI_SYNC)
    assert in_order(
        program,
        "permute ids", "splits", "bottom.0", "table_wise concat outputs", "top.0", "copy batch",
        "table_wise reorder ids", "table_wise lookup", "table_wise outputs", "table_wise ids",
        "bottom.0 backward weight", "dense all-reduce", "wait for all-reduces",
        "table_wise gradients", "table_wise lookup backward", "dense optimizer", "zero gradients",
    )  # fmt: skip
    # the outputs that it puts together are those of the step before
    (gather,) = named(program, "table_wise concat outputs")
    assert gather.after_previous == (index(program, "table_wise outputs"),)
    (arrived,) = named(program, "wait for batch")
    assert arrived.after_previous == (index(program, "copy batch"),)


def test_semi_sync_hides_the_outputs_behind_the_dense_backward() -> None:
    dense = DenseModel(bottom_mlp=(64,), top_mlp=(1024, 1))
    exposed = {}
    for pipeline in (Pipeline.SPARSE_DIST, Pipeline.SEMI_SYNC):
        work = Workload(tables=(table(),), dense=dense, local_batch_size=65536, pipeline=pipeline)
        placed = plan(work, TWO, {"t": (ShardingType.TABLE_WISE, (0,))})
        exposed[pipeline] = plan_timeline(work, TWO, placed).breakdown()[Stage.ALL_TO_ALL]
    # the gradients' exchange alone is left on the critical path
    assert exposed[Pipeline.SEMI_SYNC] == pytest.approx(exposed[Pipeline.SPARSE_DIST] / 2)


def test_plain_dlrm_has_no_input_distribution_and_overlaps_the_bottom_mlp() -> None:
    program = made(Pipeline.DLRM)
    assert in_order(
        program, "table_wise lookup", "table_wise outputs", "bottom.0", "table_wise concat outputs",
        "top.0", "autograd resumes", "top all-reduce", "table_wise gradients",
        "bottom.0 backward weight", "bottom all-reduce", "table_wise lookup backward",
    )  # fmt: skip
    assert not named(program, "splits", "permute ids", "copy batch", "order features")


def test_plain_dlrm_reduces_its_mlps_separately() -> None:
    names = [op.name for op in collectives(made(Pipeline.DLRM))]
    assert names == ["table_wise outputs", "top all-reduce", "table_wise gradients",
                     "bottom all-reduce"]  # fmt: skip


def test_torchrec_s_bottom_backward_is_queued_behind_the_embeddings_gradients() -> None:
    for pipeline in (Pipeline.SPARSE_DIST, Pipeline.NONE):
        assert in_order(made(pipeline), "table_wise lookup backward", "bottom.0 backward weight")


def test_the_optimizer_waits_for_every_all_reduce() -> None:
    work: Workload = workload(table("a"))
    program = step(work, TWO, ShardingType.DATA_PARALLEL)
    (wait,) = named(program, "wait for all-reduces")
    reduced = {i for i, op in enumerate(program.ops) if op.name.endswith("all-reduce")
               and op.kind is NodeKind.COLLECTIVE}  # fmt: skip
    assert len(reduced) == 2
    assert set(wait.after) == reduced


@pytest.mark.parametrize("pipeline", list(Pipeline))
def test_every_dense_interaction_can_be_written(pipeline: Pipeline) -> None:
    for interaction in Interaction:
        dense = DenseModel(bottom_mlp=(64,), top_mlp=(8, 1), interaction=interaction)
        work = Workload(tables=(table(),), dense=dense, local_batch_size=64, pipeline=pipeline)
        program = step(work, TWO, ShardingType.TABLE_WISE, 0)
        assert named(program, "dense optimizer")


def test_where_no_inputs_are_distributed_nothing_waits_for_them() -> None:
    work = workload(table("a"), pipeline=Pipeline.SPARSE_DIST)
    cores = topology(2, hardware=machine(device=Device.CPU))  # it has no streams, only a queue
    assert named(step(work, cores, ShardingType.TABLE_WISE, 0), "wait for inputs")
    assert not named(step(work, cores, ShardingType.DATA_PARALLEL), "wait for inputs")


UNSTREAMED = ("lookup", "lookup backward", "lower triangle backward", "bucketize ids")
"""Ends of the names of kernels that more than their bytes bound, and whose bytes are not told."""


@pytest.mark.parametrize("precision", [DataType.FP32, DataType.BF16])
@pytest.mark.parametrize("interaction", Interaction)
@pytest.mark.parametrize(
    ("kind", "ranks"),
    [
        (ShardingType.TABLE_WISE, (0,)), (ShardingType.ROW_WISE, ()),
        (ShardingType.TABLE_ROW_WISE, (2,)), (ShardingType.DATA_PARALLEL, (0, 1, 2, 3)),
    ],
)  # fmt: skip
def test_a_core_takes_as_long_for_a_kernel_as_for_the_bytes_that_are_told(
    kind: ShardingType, ranks: tuple[int, ...], interaction: Interaction, precision: DataType
) -> None:
    """At 1 TB/s, and without a latency: products and exchanges are bound by other things."""
    profile = machine(device=Device.CPU)
    core = replace(profile.gpu, num_sms=1, kernel_latency=1e-16)
    cores = topology(4, 2, replace(profile, gpu=core))
    dense = DenseModel(
        bottom_mlp=(128, 64), top_mlp=(256, 64, 1), interaction=interaction, precision=precision,
        optimizer=Optimizer.ADAM,
    )  # fmt: skip
    work = replace(workload(table("a"), table("b")), dense=dense)
    streamed = [
        op for op in step(work, cores, kind, *ranks).ops
        if op.kind is NodeKind.KERNEL and op.role is Role.OTHER and not op.name.endswith(UNSTREAMED)
    ]  # fmt: skip
    assert len(streamed) > 20
    for op in streamed:
        told = np.broadcast_to(op.num_bytes, op.seconds.shape)
        assert op.seconds * 1e12 == pytest.approx(told, rel=1e-6, abs=1e-3), op.name
