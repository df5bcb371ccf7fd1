"""Weights that are in host memory while the dense model runs: when they are copied, what waits."""

from dataclasses import replace

import pytest
from machines import machine, topology
from plans import index, plan, table, workload

from costmodel.base.units import GB, US
from costmodel.domain.hardware import Device
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DenseModel, Pipeline, Workload
from costmodel.engine.objective import Objective
from costmodel.step.graph import Resource
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import step_operations

TW, DP = ShardingType.TABLE_WISE, ShardingType.DATA_PARALLEL
TWO = topology(2)
STASHED = table("t", stash_weights=True)
"""8,000 x 64 x 4 bytes: 2.048 MB, 102.4 us at 20 GB/s."""


def made(work: Workload, kind: ShardingType = TW) -> StepOperations:
    ranks = () if kind is DP else (0,)
    return step_operations(
        work, TWO, plan(work, TWO, {one.name: (kind, ranks) for one in work.tables})
    )


def test_weights_go_at_the_hosts_link_and_only_from_ranks_that_have_some() -> None:
    ops = made(workload(STASHED)).ops
    copies = [op for op in ops if op.name in {"table_wise stash", "table_wise restore"}]
    assert [op.resource for op in copies] == [Resource.STASH, Resource.MEMCPY]
    for op in copies:
        assert op.seconds.tolist() == pytest.approx([102.4 * US, 0.0])
        assert op.num_bytes.tolist() == [2_048_000.0, 0.0]


def test_they_leave_after_the_lookup_and_the_update_waits_for_their_return() -> None:
    step = made(workload(STASHED))
    stash, restore = (index(step, f"table_wise {name}") for name in ("stash", "restore"))
    assert index(step, "table_wise lookup") in step.ops[stash].after
    assert restore in step.ops[index(step, "table_wise lookup backward")].after
    assert stash in step.ops[index(step, "table_wise wait for stash")].after


@pytest.mark.parametrize(
    ("site", "then"),
    [
        (1, "top.0 backward relu"),
        (0, "concat features backward"),
        (None, "table_wise split gradients"),
    ],
)
def test_they_come_back_with_the_gradient_of_a_layer(site: int | None, then: str) -> None:
    step = made(workload(STASHED, restore_site=site))
    compute = [i for i, op in enumerate(step.ops) if op.resource == Resource.COMPUTE]
    before = compute[compute.index(index(step, then)) - 1]
    assert before in step.ops[index(step, "table_wise restore")].after


def test_rows_on_every_rank_or_in_host_memory_stay_where_they_are() -> None:
    names = {op.name for op in made(workload(STASHED), DP).ops}
    assert not any("stash" in name for name in names)


def test_stashed_tables_have_a_lookup_kernel_of_their_own() -> None:
    step = made(workload(STASHED, table("other")))
    assert sum(op.name == "table_wise lookup" for op in step.ops) == 2
    (stash,) = (op for op in step.ops if op.name == "table_wise stash")
    assert stash.num_bytes[0] == 2_048_000.0


def test_a_cpu_has_nowhere_to_stash_to() -> None:
    cores = topology(2, hardware=machine(device=Device.CPU))
    work = workload(STASHED)
    step = step_operations(work, cores, plan(work, cores, {"t": (TW, (0,))}))
    assert not any("stash" in op.name for op in step.ops)


@pytest.mark.parametrize(("width", "site", "shown"), [(64, None, True), (8192, 2, False)])
def test_a_dense_model_that_takes_longer_hides_the_copies(
    width: int, site: int | None, *, shown: bool
) -> None:
    large = replace(STASHED, num_embeddings=4_000_000)
    dense = DenseModel(bottom_mlp=(32,), top_mlp=(width, width, 1))
    work = Workload(tables=(large,), dense=dense, restore_site=site)
    where = plan(work, TWO, {"t": (TW, (0,))})
    kept = replace(work, tables=(replace(large, stash_weights=False),))
    more = Objective(work, TWO).step_time(where) - Objective(kept, TWO).step_time(where)
    copy = large.weight_bytes / (20 * GB)
    assert (more > copy) is shown
    assert shown or more < copy / 20


def test_only_the_pipeline_that_brings_them_back_stashes() -> None:
    with pytest.raises(ValueError, match="TrainPipelineSparseDistEmbStash"):
        workload(STASHED, pipeline=Pipeline.SEMI_SYNC)
    with pytest.raises(ValueError, match="restore_site must be a layer of top_mlp, 0 to 1, got 2"):
        workload(STASHED, restore_site=2)
