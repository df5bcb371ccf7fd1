"""What is said where no plan fits was searched for."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from machines import machine, topology

import planner
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DenseModel, EmbeddingTable, Optimizer, Pipeline, Workload
from costmodel.memory.rank_memory import could_hold, host_bytes_usable
from planner.files.profiles import load_profile
from planner.search.running import run_sharders
from planner.search.search import Search
from planner.verbs.changes import (
    KINDS,
    Case,
    Scale,
    Variant,
    half_precision,
    larger_machine,
    more_nodes,
    on_gpus,
)
from planner.verbs.remedies import Found, smallest, smallest_pair, with_searched
from sharders.problem.sharding_problem import ShardingProblem

H100 = load_profile("h100-sxm")
EACH = EmbeddingTable(name="t", num_embeddings=8, embedding_dim=128, pooling_factor=5)


def refused(workload: Workload, gpus: int = 1, **options: Any) -> InfeasibleError:  # noqa: ANN401
    with pytest.raises(InfeasibleError) as caught:
        planner.plan(workload, gpus=gpus, baseline="none", **{"max_plans": 3, **options})
    return caught.value


def several(number: int, rows: int, **options: Any) -> Workload:  # noqa: ANN401
    tables = (
        replace(EACH, name=f"a{index}", num_embeddings=rows, **options) for index in range(number)
    )
    return Workload(tables=tuple(tables), local_batch_size=4096)


def test_every_remedy_is_a_plan_that_was_found() -> None:
    table = EmbeddingTable(name="large", num_embeddings=200_000_000, embedding_dim=128)
    error = refused(Workload(tables=(table,), local_batch_size=64))
    remedies = dict(error.remedies)
    assert remedies["--gpus 2"].startswith("a plan that fills the fullest GPU to ")
    assert set(remedies) == {
        "--gpus 2", "compute_kernels: [fused, fused_uvm_caching]", "data_type: fp16",
    }  # fmt: skip
    assert remedies["data_type: fp16"].startswith("for large: a plan that fills")


def test_where_no_change_does_those_tried_are_named() -> None:
    # 1 PB: 128 GPUs are too few, host memory and half the bytes, too
    tables = tuple(
        EmbeddingTable(name=f"t{i}", num_embeddings=2 * 10**12 // 128, embedding_dim=128)
        for i in range(8)
    )
    error = refused(Workload(tables=tables, local_batch_size=64))
    assert not error.remedies
    assert error.hint == (
        "none of these was found to be enough, nor two of them: --gpus 128 --nodes 16; "
        "compute_kernels: [fused, fused_uvm_caching]; data_type: fp16; local_batch_size: 4"
    )


def test_what_there_is_no_time_to_try_is_said() -> None:
    table = EmbeddingTable(name="large", num_embeddings=200_000_000, embedding_dim=128)
    small = topology(1, hardware=load_profile("h100-sxm"))
    case = Case(workload=Workload(tables=(table,), local_batch_size=64), topology=small)
    stopped = Search(interrupted=lambda: True)
    told = with_searched(InfeasibleError("no plan fits"), case, stopped)
    assert not told.remedies
    assert told.hint == (
        "there was no time to try --gpus 8 and more; compute_kernels: [fused, fused_uvm_caching]; "
        "data_type: fp16; local_batch_size: 4; a longer limit leaves more"
    )


def test_kinds_without_a_turn_are_named_beside_what_was_found() -> None:
    case = Case(workload=several(2, 130_000_000), topology=topology(1, hardware=H100))
    asked = iter([False])
    search = Search(interrupted=lambda: next(asked, True))
    told = with_searched(InfeasibleError("no plan fits"), case, search)
    assert [label for label, _ in told.remedies] == ["--gpus 2"]
    assert told.hint.startswith("this is enough; there was no time to try compute_kernels: ")


def test_two_changes_in_one_are_named_once_and_those_on_the_same_machine_too() -> None:
    """A second node is that by two kinds; 8 copies and a whole cache need no second one."""
    copied = replace(EACH, name="d", num_embeddings=150_000_000)
    put = replace(EACH, name="p", num_embeddings=140_000_000, ranks=(3,))
    cached = replace(
        EACH, name="q", num_embeddings=150_000_000, cache_load_factor=1.0,
        compute_kernels=("fused_uvm_caching",), sharding_types=(ShardingType.TABLE_WISE,),
    )  # fmt: skip
    tables = (
        replace(put, sharding_types=(ShardingType.TABLE_WISE,)),
        cached,
        replace(copied, sharding_types=(ShardingType.DATA_PARALLEL,)),
    )
    error = refused(Workload(tables=tables, local_batch_size=4096), gpus=8)
    labels = [label for label, _ in error.remedies]
    assert len(labels) == len(set(labels))
    assert "sharding_types: [], cache_load_factor: null" in labels
    assert dict(error.details)["largest"].startswith("d in 8 copies 1,716.6 GiB    q ")


def test_machines_smaller_than_the_sum_are_not_tried() -> None:
    """5,722 GiB of weights: 80 GPUs of 71.6 GiB; buffers and activations need more."""
    ranks = Topology(hardware=H100, world_size=64, local_world_size=8)
    case = Case(workload=several(4000, 3_000_000), topology=ranks)
    first = larger_machine(case).make(0).apply(case).topology.world_size
    assert first > 80
    assert not could_hold(case.workload, case.on(first - 8, first // 8 - 1).topology)
    hosted = Case(
        workload=several(9, 2_000_000_000, compute_kernels=("fused_uvm",)),
        topology=topology(8, hardware=H100),
    )
    assert larger_machine(hosted).make(0).name == "--gpus 48 --nodes 6"  # of 1,676 GiB: 8,583
    assert more_nodes(hosted).make(0).name == "--gpus 8 --nodes 8"


def test_how_full_hosts_are_is_said_where_they_are_what_is_short() -> None:
    """2,384 GiB in hosts of 1,676, by tables of 238: a node takes six of the ten, 85%."""
    error = refused(several(10, 500_000_000, compute_kernels=("fused_uvm",)), gpus=8)
    assert "and the fullest host to 85%" in dict(error.remedies)["--gpus 8 --nodes 2"]
    assert "and the fullest host to 100%" in dict(error.remedies)["data_type: fp16"]


def test_tables_that_may_only_be_replicated_may_lie_elsewhere() -> None:
    table = EmbeddingTable(
        name="copied", num_embeddings=150_000_000, embedding_dim=128,
        sharding_types=(ShardingType.DATA_PARALLEL,), optimizer=Optimizer.SGD,
    )  # fmt: skip
    error = refused(Workload(tables=(table,), local_batch_size=64))
    remedies = dict(error.remedies)
    assert not [each for each in remedies if "compute_kernels" in each]  # replicas are in HBM
    assert remedies["sharding_types: []"].startswith("for copied: a plan that fills ")


def test_of_the_batch_the_largest_of_two_digits_that_plans_is_offered() -> None:
    table = EmbeddingTable(name="wide", num_embeddings=1000, embedding_dim=1024)
    huge = Workload(tables=(table,), local_batch_size=4_000_000)
    (batch,) = [label for label, _ in refused(huge).remedies if "batch" in label]
    size = int(batch.removeprefix("local_batch_size: "))
    assert size % 10_000 == 0
    one = topology(1, hardware=load_profile("h100-sxm"))
    assert plans(replace(huge, local_batch_size=size), one)
    larger = 10 ** (len(str(size)) - 2)
    assert not plans(replace(huge, local_batch_size=size + larger), one)


def test_tables_that_hosts_lack_room_for_go_to_more_nodes() -> None:
    """2,861 GiB of weights must be in hosts: two have 3,353, and no GPU more is needed."""
    workload = several(1, 6_000_000_000, compute_kernels=("fused_uvm",))
    error = refused(workload, gpus=8)
    assert "--gpus 8 --nodes 2" in dict(error.remedies)
    details = dict(error.details)
    assert "per GPU" not in details
    assert details["per host"].startswith("1,862.6 GiB host memory  -  186.3 GiB for the system")
    assert details["largest"].startswith("a0 2,861.")
    assert details["largest"].endswith("(in host memory)")
    assert "--gpus 2 --nodes 2" in dict(refused(workload, gpus=1).remedies)


def test_full_nodes_and_nodes_of_few_gpus_are_both_tried() -> None:
    """7,629 GiB in hosts of 1,676: five nodes; eight of 16 GPUs, which five cannot share evenly."""
    workload = several(8, 2_000_000_000, compute_kernels=("fused_uvm",))
    remedies = dict(refused(workload, gpus=16).remedies)
    assert list(remedies)[:2] == ["--gpus 20 --nodes 5", "--gpus 16 --nodes 8"]


def test_caches_that_are_too_large_may_be_as_usual() -> None:
    """1,350 GiB of caches on 573; a fifth of the rows is 300, and one of the two is not enough."""
    cached = several(
        2, 1_500_000_000, compute_kernels=("fused_uvm_caching",), cache_load_factor=0.9
    )
    remedies = dict(refused(cached, gpus=8).remedies)
    assert remedies["cache_load_factor: null"].startswith("for a0 and a1: a plan")


def test_no_table_is_changed_that_need_not_be() -> None:
    """Four of 24 GiB must be on a rank of 71.6: with caches of two of them they are."""
    put = several(4, 50_000_000, ranks=(0,), sharding_types=(ShardingType.TABLE_WISE,))
    large = replace(EACH, name="large", num_embeddings=60_000_000)
    remedies = dict(refused(replace(put, tables=(large, *put.tables)), gpus=8).remedies)
    assert remedies["ranks: []"].startswith("for a0 and a1: ")
    hosted = remedies["compute_kernels: [fused, fused_uvm_caching]"]
    assert hosted.startswith("for a0 and a1: ")  # and not the largest one, which is elsewhere
    assert remedies["data_type: fp16"].startswith("for a0, a1 and a2: ")


def test_a_machine_may_grow_from_one_gpu_to_several_nodes() -> None:
    error = refused(several(1, 2_000_000_000), hardware="v100-nvlink")
    assert dict(error.details)["largest"].endswith("(in HBM, with buffers)")
    assert [label for label, _ in error.remedies] == ["--gpus 35 --nodes 5"]


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
    assert "--gpus 2 --nodes 2" in remedies


def test_where_no_single_change_does_two_are_offered() -> None:
    """2 TB that must stay whole: rows alone do not make room on 4 GPUs of 80 GiB."""
    giant = EmbeddingTable(
        name="giant", num_embeddings=4_000_000_000, embedding_dim=128,
        sharding_types=(ShardingType.TABLE_WISE,),
    )  # fmt: skip
    workload = Workload(tables=(giant,), local_batch_size=64)
    (label, text), *_ = refused(workload, gpus=4).remedies
    gpus, nodes = map(
        int, re.fullmatch(r"sharding_types: \[\], --gpus (\d+) --nodes (\d+)", label).groups()
    )
    assert text.startswith("for giant: a plan that fills ")
    free = replace(workload, tables=(replace(giant, sharding_types=()),))
    small = topology(4, hardware=load_profile("h100-sxm"))
    assert plans(free, on_gpus(small, gpus))
    assert not plans(free, on_gpus(small, gpus - nodes))


def test_a_pipeline_that_keeps_tables_whole_may_be_changed() -> None:
    table = EmbeddingTable(name="giant", num_embeddings=2**29, embedding_dim=128)
    plain = Workload(tables=(table,), local_batch_size=64, pipeline=Pipeline.DLRM)
    remedies = dict(refused(plain, gpus=4).remedies)
    assert remedies["pipeline: sparse_dist"].startswith("a plan that fills ")


@st.composite
def crowded(draw: st.DrawFn) -> Case:
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
    ranks = topology(world, hardware=replace(small, host=host, gpus_per_node=4))
    return Case(workload=workload, topology=ranks)


def plans(workload: Workload, ranks: Topology) -> bool:
    """Return whether a plan is found: tables by size, or else packed."""
    try:
        run_sharders(("size_greedy",), ShardingProblem.of(workload, ranks), Search(max_plans=1))
    except InfeasibleError:
        return False
    return True


@given(crowded())
@settings(max_examples=20, phases=[Phase.generate])
def test_every_remedy_plans_and_a_smaller_one_does_not(case: Case) -> None:
    if plans(case.workload, case.topology):
        reject()
    for kind in KINDS:
        found = smallest(case, kind(case), lambda: False)
        if found is None:
            continue
        assert found.is_smallest
        assert plans(found.case.workload, found.case.topology)
        for less in smaller(case, found):
            assert not plans(less.workload, less.topology), found.name
    both = smallest_pair(case, half_precision, larger_machine, lambda: False)
    assert both is None or plans(both.case.workload, both.case.topology)


def smaller(case: Case, found: Found) -> Iterator[Case]:
    """Yield the case with a table less changed, or fewer GPUs, or a larger batch."""
    changed, ranks = found.case, found.case.topology
    tables = changed.workload.tables
    differing = [at for at, table in enumerate(tables) if table != case.workload.tables[at]]
    for at in differing:
        restored = (*tables[:at], case.workload.tables[at], *tables[at + 1 :])
        yield replace(changed, workload=replace(changed.workload, tables=restored))
    gpus, nodes = ranks.world_size, ranks.num_nodes
    per_node = case.topology.hardware.gpus_per_node
    fewer = [each for each in range(-(-gpus // per_node), nodes) if gpus % each == 0]
    if fewer and gpus > case.topology.world_size:
        yield changed.on(gpus, fewer[-1])
    if gpus - nodes > case.topology.world_size:
        yield changed.on(gpus - nodes, nodes)
    batch = changed.workload.local_batch_size
    step = 10 ** max(0, len(str(batch)) - 2)
    if batch + step < case.workload.local_batch_size:
        yield changed.of(replace(changed.workload, local_batch_size=batch + step))


@given(st.integers(1, 50), st.integers(0, 60))
def test_the_first_that_does_is_found(steps: int, first: int) -> None:
    """Of ever larger changes, of which all from some on do; in as many tries as it has digits."""
    tried = []

    def make(step: int) -> Variant:
        tried.append(step)
        return Variant(name=str(step), apply=lambda case: case.of(of_rows(step >= first)))

    found = smallest(SMALL, Scale(steps=steps, make=make), lambda: False)
    assert (found and found.name) == (str(first) if first < steps else None)
    assert len(tried) <= 2 * steps.bit_length() + 3


def of_rows(fits: bool) -> Workload:  # noqa: FBT001 - there is nothing else
    table = EmbeddingTable(name="t", num_embeddings=8 if fits else 10**9, embedding_dim=8)
    dense = DenseModel(bottom_mlp=(4,), top_mlp=(4, 1))
    return Workload(tables=(table,), local_batch_size=8, dense=dense)


SMALL = Case(workload=of_rows(fits=False), topology=topology(1, hardware=machine(memory=1 * GIB)))


def test_what_was_not_tried_is_said() -> None:
    """Time is over after the first plan: half of it might do, too."""

    def make(step: int) -> Variant:
        return Variant(name=str(step), apply=lambda case: case.of(of_rows(step >= 3)))

    scale = Scale(steps=9, make=make, grows=False)
    found = smallest(SMALL, scale, lambda: False)
    assert found is not None
    assert found.name == "3"
    assert found.is_smallest
    assert "not tried" not in found.effect
    # asked before it begins, after each of two that do not do, and before halves
    spent = iter([False, False, False])
    over = smallest(SMALL, scale, lambda: next(spent, True))
    assert over is not None
    assert over.name == "3"
    assert not over.is_smallest
    assert "less may do" in over.effect
    # the largest is tried first where it does if any does, and then the smallest, which does not
    spent = iter([False])
    largest = smallest(SMALL, replace(scale, grows=True), lambda: next(spent, True))
    assert largest is not None
    assert largest.name == "8"
    assert not largest.is_smallest


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


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            # the cache of every shard of columns is as wide as the whole table: 72 GiB of 71.6
            replace(
                EACH, num_embeddings=150_000_000, cache_load_factor=1.0, ranks=(0, 1),
                sharding_types=(ShardingType.COLUMN_WISE,), compute_kernels=("fused_uvm_caching",),
            ),
            r"a shard of table `t` needs at least 7\d.\d GiB, its cache included, which is as wide",
        ),
        (
            replace(
                EACH, num_embeddings=900_000_000, min_shard_dim=64,
                sharding_types=(ShardingType.COLUMN_WISE,),
            ),
            "a shard of 64 columns of table `t` needs at least 21[4-9].* 71.7 GiB is free on one",
        ),
    ],
)  # fmt: skip
def test_a_table_whose_shards_are_too_large_is_told_by_what_they_are(
    table: EmbeddingTable, message: str
) -> None:
    error = refused(Workload(tables=(table,), local_batch_size=64), gpus=8)
    assert re.search(message, str(error))


def test_a_dense_model_that_does_not_fit_is_named() -> None:
    dense = DenseModel(bottom_mlp=(2**16, 2**16, 128), top_mlp=(2**16, 2**16, 1))
    small = Workload(tables=(EACH,), dense=dense, local_batch_size=64)
    error = refused(small, gpus=2, hardware="v100-nvlink")
    # weights and gradients of 2 x 2^32 and some, 4 bytes each
    assert re.search(r"even without any table: the dense model needs 64\.\d GiB", str(error))
