"""Changes with which tables may fit, from the smallest to the largest."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import machine, topology

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Workload
from planner.verbs.changes import (
    KINDS,
    MOST_TIMES,
    Case,
    Kind,
    half_precision,
    host_memory,
    larger_machine,
    more_nodes,
    on_gpus,
    smaller_batch,
    usual_caches,
)

TABLES = tuple(
    EmbeddingTable(name=name, num_embeddings=rows, embedding_dim=8)
    for name, rows in (("small", 10), ("large", 1000), ("middle", 100))
)
WORKLOAD = Workload(tables=TABLES, local_batch_size=64)


def case(gpus: int = 1, nodes: int = 1, *, workload: Workload = WORKLOAD) -> Case:
    ranks = topology(gpus, hardware=replace(machine(), gpus_per_node=4))
    return Case(workload=workload, topology=replace(ranks, local_world_size=gpus // nodes))


def names(kind: Kind, given: Case) -> list[str]:
    scale = kind(given)
    return [scale.make(step).name for step in range(scale.steps)]


def test_machines_are_full_nodes_first_and_then_of_fewer_gpus() -> None:
    scale = larger_machine(case(gpus=2))
    assert names(larger_machine, case(gpus=2))[:2] == ["--gpus 4", "--gpus 8 --nodes 2"]
    assert scale.steps == MOST_TIMES
    one, two = scale.finer(0), scale.finer(1)
    assert [one.make(step).name for step in range(one.steps)] == ["--gpus 3", "--gpus 4"]
    assert [two.make(step).name for step in range(two.steps)] == [
        f"--gpus {gpus} --nodes 2" for gpus in (2, 4, 6, 8)
    ]


def test_several_nodes_show_how_many_gpus_they_have() -> None:
    assert names(larger_machine, case(gpus=4, nodes=2))[0] == "--gpus 6 --nodes 3"
    assert names(larger_machine, case(gpus=4))[0] == "--gpus 8 --nodes 2"  # the node is full


def test_the_same_gpus_go_to_as_many_nodes_as_share_them_evenly() -> None:
    assert names(more_nodes, case(gpus=12, nodes=3)) == [
        "--gpus 12 --nodes 4", "--gpus 12 --nodes 6", "--gpus 12 --nodes 12",
    ]  # fmt: skip
    assert names(more_nodes, case(gpus=1)) == []


def test_a_machine_of_uneven_ranks_grows_by_its_poorest() -> None:
    ranks = replace(topology(2), withheld_bytes=(1.0, 2.0))
    assert on_gpus(ranks, 4).withheld_bytes == (2.0, 2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="spread"):
        on_gpus(replace(case(gpus=4).topology), 5)


@given(st.integers(1, 10**7))
def test_batches_are_of_two_digits_and_none_is_a_sixteenth(batch: int) -> None:
    own = replace(WORKLOAD, local_batch_size=batch)
    scale = smaller_batch(case(workload=own))
    sizes = [
        scale.make(step).apply(case(workload=own)).workload.local_batch_size
        for step in range(scale.steps)
    ]
    assert sizes == sorted(set(sizes), reverse=True)
    assert all(batch / 16 <= size < batch and not str(size)[2:].strip("0") for size in sizes)
    # the next one is never more than a tenth away
    assert all(more <= 1.1 * less for more, less in pairwise(sizes) if less >= 10)
    assert (batch == 1) == (not sizes)


def test_of_tables_the_largest_are_changed_first_and_each_may_be_left_out() -> None:
    scale = half_precision(case())
    told = [scale.make(step).tables for step in range(scale.steps)]
    assert told == ["for large", "for large and middle", "for large, middle and small"]
    first = scale.finer(2)
    assert [first.make(step).tables for step in range(2)] == [
        "for middle and small", "for large, middle and small",
    ]  # fmt: skip
    second = first.finer(0)
    assert [second.make(step).tables for step in range(2)] == ["for small", "for middle and small"]
    assert second.finer(1) is None
    changed = second.make(1).apply(case()).workload
    assert [each.data_type for each in changed.tables] == [
        DataType.FP16, DataType.FP32, DataType.FP16,
    ]  # fmt: skip


def test_the_largest_of_many_are_counted_and_named() -> None:
    many = tuple(replace(TABLES[0], name=f"t{i}", num_embeddings=90 - i) for i in range(8))
    scale = half_precision(case(workload=replace(WORKLOAD, tables=many)))
    assert scale.make(5).tables == "for the 6 largest that it changes (t0, t1, t2, t3, t4, t5)"
    more = tuple(replace(TABLES[0], name=f"t{i}", num_embeddings=90 - i) for i in range(20))
    largest = half_precision(case(workload=replace(WORKLOAD, tables=more))).make(13).tables
    assert largest == "for the 14 largest that it changes (t0 to t13)"
    assert scale.make(7).tables == "for all 8 tables"
    half = replace(many[0], data_type=DataType.FP16)
    scale = half_precision(case(workload=replace(WORKLOAD, tables=(half, *many[1:]))))
    assert scale.make(6).tables == "for all 7 that it changes"
    scale = half_precision(case(workload=replace(WORKLOAD, tables=many)))
    assert scale.finer(5).make(0).tables == "for t1, t2, t3, t4 and t5"


def test_caches_are_made_smaller_and_never_larger() -> None:
    shares = {"small": 0.9, "large": 0.1, "middle": None}
    tables = tuple(replace(each, cache_load_factor=shares[each.name]) for each in TABLES)
    scale = usual_caches(case(workload=replace(WORKLOAD, tables=tables)))
    assert [scale.make(step).tables for step in range(scale.steps)] == ["for small"]


def test_a_table_that_says_where_it_is_stays_there() -> None:
    tables = (replace(TABLES[0], compute_kernels=(ComputeKernel.FUSED,)), *TABLES[1:])
    scale = host_memory(case(workload=replace(WORKLOAD, tables=tables)))
    assert scale.make(scale.steps - 1).tables == "for large and middle"


def test_the_machine_follows_the_workload() -> None:
    """Where memory depends on the workload, every change of it is asked for the machine again."""
    asked = []

    def refit(workload: Workload, ranks: Topology) -> Topology:
        asked.append(workload)
        return ranks

    following = replace(case(), refit=refit)
    for kind in KINDS:
        scale = kind(following)
        if scale.steps:
            assert scale.make(0).apply(following) != following
    assert len(asked) == len([kind for kind in KINDS[2:] if kind(following).steps])
