"""What is said where no plan fits was searched for."""

import pytest

import planner
from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Optimizer, Workload


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
    assert "compute_kernels: [fused_uvm]" not in remedies  # replicas are in HBM
    assert remedies["sharding_types: []"].startswith("a plan of ")
