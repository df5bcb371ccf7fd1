"""What is said where no plan fits was searched for."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from machines import machine, topology

import planner
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DenseModel, EmbeddingTable, Optimizer, Pipeline, Workload
from costmodel.memory.rank_memory import host_bytes_usable
from planner.files.profiles import load_profile
from planner.verbs.remedies import Scale, Variant, last_resorts, on_gpus, scales, smallest


def refused(workload: Workload, **options: float) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(workload, gpus=1, baseline="none", **options)
    return caught.value


def test_every_remedy_is_a_plan_that_was_found() -> None:
    table = EmbeddingTable(name="large", num_embeddings=200_000_000, embedding_dim=128)
    error = refused(Workload(tables=(table,), local_batch_size=64), time_limit=2.0)
    remedies = dict(error.remedies)
    assert remedies["--gpus 2"].startswith("a plan of ")
    assert "1 of 1 table cached" in remedies["compute_kernels: [fused, fused_uvm_caching]"]
    assert "the fullest GPU to" in remedies["data_type: fp16"]


def test_a_remedy_that_finds_nothing_is_not_offered() -> None:
    # 1 PB: 16 GPUs are too few, host memory and half the bytes, too
    table = EmbeddingTable(name="huge", num_embeddings=2 * 10**12 // 128, embedding_dim=128)
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=table.num_embeddings, embedding_dim=128)
        for i in range(8)
    )
    error = refused(Workload(tables=tables, local_batch_size=64), time_limit=1.0)
    assert "data_type: fp16" not in dict(error.remedies)
    assert "a plan of" not in " ".join(text for _, text in error.remedies)


def test_tables_that_may_only_be_replicated_may_lie_elsewhere() -> None:
    table = EmbeddingTable(
        name="copied", num_embeddings=150_000_000, embedding_dim=128,
        sharding_types=(ShardingType.DATA_PARALLEL,), optimizer=Optimizer.SGD,
    )  # fmt: skip
    error = refused(Workload(tables=(table,), local_batch_size=64), time_limit=1.0)
    remedies = dict(error.remedies)
    assert not [each for each in remedies if "compute_kernels" in each]  # replicas are in HBM
    assert remedies["sharding_types: []"].startswith("for copied: a plan of ")


def test_of_the_batch_the_first_halving_that_plans_is_offered() -> None:
    table = EmbeddingTable(name="wide", num_embeddings=1000, embedding_dim=1024)
    huge = Workload(tables=(table,), local_batch_size=4_000_000)
    (batch,) = [label for label, _ in refused(huge, max_plans=3).remedies if "batch" in label]
    size = int(batch.removeprefix("local_batch_size: "))
    one = topology(1, hardware=load_profile("h100-sxm"))
    assert plans(replace(huge, local_batch_size=size), one)
    assert not plans(replace(huge, local_batch_size=2 * size), one)


def test_the_fewest_tables_go_to_host_memory_and_more_gpus_may_need_more_nodes() -> None:
    """64 GiB and 8 of 2, on 64 GiB usable: the large one has to go, and then all others fit."""
    tables = [("items", 64 * 2**21), *((f"t{number}", 2 * 2**21) for number in range(8))]
    workload = Workload(
        tables=tuple(
            EmbeddingTable(name=name, num_embeddings=rows, embedding_dim=128)
            for name, rows in tables
        ),
        local_batch_size=64,
    )
    small = replace(load_profile("h100-sxm"), gpus_per_node=1)
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(workload, gpus=1, hardware=small, baseline="none", max_plans=3)
    remedies = dict(caught.value.remedies)
    hosted = remedies["compute_kernels: [fused, fused_uvm_caching]"]
    assert hosted.startswith("for items: ")
    assert hosted.endswith("1 of 9 tables cached")
    assert "--gpus 2 --nodes 2" in remedies


def test_where_no_single_change_does_two_are_offered() -> None:
    """2 TB that must stay whole: rows alone do not make room on 4 GPUs of 80 GiB."""
    giant = EmbeddingTable(
        name="giant", num_embeddings=4_000_000_000, embedding_dim=128,
        sharding_types=(ShardingType.TABLE_WISE,),
    )  # fmt: skip
    workload = Workload(tables=(giant,), local_batch_size=64)
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(workload, gpus=4, baseline="none", max_plans=3)
    ((label, text),) = caught.value.remedies
    gpus = int(re.fullmatch(r"sharding_types: \[\], --gpus (\d+) --nodes \d+", label)[1])
    assert text.startswith("a plan of ")
    free = replace(workload, tables=(replace(giant, sharding_types=()),))
    larger = on_gpus(topology(4, hardware=load_profile("h100-sxm")), gpus)
    assert plans(free, larger)


def test_a_pipeline_that_keeps_tables_whole_may_be_changed() -> None:
    table = EmbeddingTable(name="giant", num_embeddings=2**29, embedding_dim=128)
    plain = Workload(tables=(table,), local_batch_size=64, pipeline=Pipeline.DLRM)
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(plain, gpus=4, baseline="none", max_plans=3)
    assert dict(caught.value.remedies)["pipeline: sparse_dist"].startswith("a plan of ")


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Workload, Topology]:
    """Draw tables and a machine that has too little memory for most of them."""
    kinds = st.sampled_from([
        (), (), (ShardingType.TABLE_WISE,), (ShardingType.ROW_WISE,), (ShardingType.DATA_PARALLEL,),
    ])  # fmt: skip
    world = draw(st.sampled_from([1, 2, 4]))
    tables = tuple(
        EmbeddingTable(
            name=f"t{number}",
            num_embeddings=draw(st.integers(10**5, 4 * 10**6)),
            embedding_dim=draw(st.sampled_from([32, 128])),
            sharding_types=draw(kinds),
            ranks=draw(st.sampled_from([(), (), (0,)])),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    tables = tuple(
        replace(table, ranks=()) if table.sharding_types not in {(), (ShardingType.TABLE_WISE,)}
        else table
        for table in tables
    )  # fmt: skip
    small = machine(memory=draw(st.sampled_from([0.5, 1, 2])) * GIB)
    host = replace(small.host, memory_bytes=draw(st.sampled_from([0.5, 4])) * GIB)
    dense = DenseModel(bottom_mlp=(16,), top_mlp=(8, 1))
    workload = Workload(
        tables=tables, dense=dense, local_batch_size=draw(st.sampled_from([64, 2**16])),
        pipeline=draw(st.sampled_from([Pipeline.SPARSE_DIST, Pipeline.NONE])),
    )  # fmt: skip
    return workload, topology(world, hardware=replace(small, host=host, gpus_per_node=4))


def plans(workload: Workload, ranks: Topology) -> bool:
    try:
        planner.plan(
            workload, gpus=ranks.world_size, nodes=ranks.num_nodes, hardware=ranks.hardware,
            baseline="none", max_plans=3,
        )  # fmt: skip
    except InfeasibleError:
        return False
    return True


@pytest.mark.slow
@given(crowded())
@settings(max_examples=25)
def test_every_remedy_plans_and_a_smaller_one_does_not(case: tuple[Workload, Topology]) -> None:
    workload, ranks = case
    try:
        planner.plan(
            workload, gpus=ranks.world_size, hardware=ranks.hardware, baseline="none", max_plans=3
        )
    except InfeasibleError as error:
        told = dict(error.remedies)
    else:
        reject()
    offered: list[str] = []
    for scale in (*scales(workload, ranks, on_gpus), *last_resorts(workload, ranks, on_gpus)):
        found = None if offered and scale.last_resort else smallest(scale, lambda: False)
        if found is None:
            continue
        offered.append(found.variant.name)
        assert plans(found.variant.workload, found.variant.topology)
        steps = [scale.make(step) for step in range(scale.steps)]
        number = steps.index(found.variant)
        assert number == 0 or not plans(steps[number - 1].workload, steps[number - 1].topology)
    assert list(told) == offered
    assert all("a plan of " in text for text in told.values())


@given(st.integers(1, 50), st.integers(0, 60))
def test_the_first_that_does_is_found(steps: int, first: int) -> None:
    """Of ever larger changes, of which all from some on do; in as many tries as it has digits."""
    tried = []

    def make(step: int) -> Variant:
        tried.append(step)
        fits = step >= first
        table = EmbeddingTable(name="t", num_embeddings=8 if fits else 10**9, embedding_dim=8)
        small = Workload(
            tables=(table,), local_batch_size=8,
            dense=DenseModel(bottom_mlp=(4,), top_mlp=(4, 1)),
        )  # fmt: skip
        return Variant(name=str(step), workload=small, topology=RANKS)

    found = smallest(Scale(steps=steps, make=make), lambda: False)
    assert (found and found.variant.name) == (str(first) if first < steps else None)
    assert len(tried) <= 2 * steps.bit_length() + 3


RANKS = topology(1, hardware=machine(memory=1 * GIB))


def test_what_was_not_tried_is_said() -> None:
    """Time is over after the first plan: half of it might do, too."""
    table = EmbeddingTable(name="t", num_embeddings=8, embedding_dim=8)
    workload = Workload(tables=(table,), local_batch_size=8)
    whole = topology(1)

    def make(step: int) -> Variant:
        ranks = whole if step else RANKS
        big = replace(table, num_embeddings=10**9 if step == 0 else 8)
        return Variant(name="", workload=replace(workload, tables=(big,)), topology=ranks)

    found = smallest(Scale(steps=9, make=make, grows=False), lambda: False)
    assert found is not None
    assert found.is_smallest
    spent = iter([False, False, True, True])
    over = smallest(Scale(steps=9, make=lambda step: make(step // 3)), lambda: next(spent, True))
    assert over is None or not over.is_smallest


def test_host_memory_is_told_with_what_is_kept_of_it() -> None:
    """120 GiB of weights, and a host of 100: the tenth that is not for tables is named."""
    small = machine(memory=2 * GIB)
    hosted = replace(small, host=replace(small.host, memory_bytes=100 * GIB))
    table = EmbeddingTable(
        name="t", num_embeddings=120 * 2**21, embedding_dim=128, compute_kernels=("fused_uvm",),
    )  # fmt: skip
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(
            Workload(tables=(table,), local_batch_size=64), gpus=1, hardware=hosted,
            baseline="none", max_plans=3,
        )  # fmt: skip
    assert "the host has 90.0 GiB for them (of 100.0 GiB, of which a tenth is kept" in str(
        caught.value
    )
    assert host_bytes_usable(topology(1, hardware=hosted)) == 90 * GIB
