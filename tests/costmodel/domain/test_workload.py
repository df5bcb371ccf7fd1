"""What a workload may say, and what follows from it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan, nextafter

import pytest
from plans import table, workload

from costmodel.base import limits
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)

CACHING = (ComputeKernel.FUSED_UVM_CACHING,)


def named(**fields: object) -> EmbeddingTable:
    plain = {"name": "t", "num_embeddings": 8, "embedding_dim": 4}
    return EmbeddingTable(**{**plain, **fields})  # type: ignore[arg-type]


def trained(**fields: object) -> Workload:
    return replace(workload(table()), **fields)  # type: ignore[arg-type]


def whole(first: int, last: int) -> tuple[Sequence[int], Sequence[int]]:
    return (first, last), (first - 1, last + 1)


def real(first: float, last: float) -> tuple[Sequence[float], Sequence[float]]:
    return (first, last), (-first or -1.0, nextafter(first, -1.0), nextafter(last, 1e30), inf, nan)


ABOVE_0 = limits.LEAST
WIDTHS = (1, limits.MOST_WIDTH)


@pytest.mark.parametrize(
    ("made", "field", "values"),
    [
        (named, "name", (("x", "x" * 1000), ("", "x" * 1001))),
        (named, "feature_names", ((("f",) * 10_000,), (("f",) * 10_001,))),
        (named, "num_embeddings", whole(1, limits.MOST_ROWS)),
        (named, "embedding_dim", ((4, limits.MOST_COLUMNS), (0, 6, limits.MOST_COLUMNS + 4))),
        (named, "pooling_factor", real(ABOVE_0, limits.MOST_IDS)),
        (named, "pooling_std", real(0.0, limits.MOST_IDS)),
        (named, "longest_bag", real(0.0, limits.MOST_IDS)),
        (named, "bags_per_sample", real(ABOVE_0, limits.MOST_IDS)),
        (named, "ranks", (((0,), (1, 0), (4095,)), ((-1,), (1, 1), (4096,)))),
        (named, "min_shard_dim", ((4, limits.MOST_COLUMNS), (0, 6, limits.MOST_COLUMNS + 4))),
        (named, "cache_load_factor", real(ABOVE_0, 1.0)),
        (DenseModel, "top_mlp", (((1,), WIDTHS), ((), (0,), (2**20 + 1,)))),
        (DenseModel, "bottom_mlp", (((), WIDTHS, (1,) * 1000), ((0,), (2**20 + 1,), (1,) * 1001))),
        (DenseModel, "num_dense_features", whole(*WIDTHS)),
        (DenseModel, "cross_layers", whole(0, limits.MOST_LAYERS)),
        (DenseModel, "cross_rank", whole(*WIDTHS)),
        (DenseModel, "read_parameters", whole(0, limits.MOST_PARAMETERS)),
        (DenseModel, "most_products", real(0.0, limits.MOST_PRODUCTS)),
        (trained, "local_batch_size", whole(1, limits.MOST_SAMPLES)),
        (trained, "gradient_accumulation_steps", whole(1, limits.MOST_ACCUMULATED)),
        (trained, "length_spread", real(0.0, 1.0)),
        (trained, "restore_site", whole(0, 1)),
    ],
)
def test_numbers_up_to_their_ends_are_taken_and_those_beyond_are_not(
    made: Callable[..., object], field: str, values: tuple[Sequence[object], Sequence[object]]
) -> None:
    allowed, refused = values
    for value in allowed:
        assert getattr(made(**{field: value}), field) == value
    for value in refused:
        with pytest.raises(ValueError, match=r"must|needs"):
            made(**{field: value})


def test_tf32_is_fp32_in_memory() -> None:
    assert {each.value: each.num_bytes for each in DataType} == {
        "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1,
    }  # fmt: skip


def test_bytes_and_rows_of_a_table_by_hand() -> None:
    two = named(feature_names=("f", "g"), bags_per_sample=0.25, pooling_factor=3.0)
    assert (two.features, two.num_bags, two.output_rows_per_sample) == (("f", "g"), 0.5, 0.5)
    assert named(pooling=Pooling.NONE, pooling_factor=3.0).output_rows_per_sample == 3.0
    assert (named().features, named().num_bags, named().cache_share) == (("t",), 1.0, 0.2)
    # INT8: a scale and an offset of 4 bytes with the 4 numbers
    assert named(data_type=DataType.INT8).weight_bytes == 8 * (4 + 8)
    assert trained().weight_bytes == 8000 * 64 * 4


def test_a_cache_is_as_wide_as_the_widest_table_that_may_share_it() -> None:
    wide, narrow, other = (
        table(name, dim=dim, compute_kernels=CACHING, weighted=name == "c")
        for name, dim in (("a", 128), ("b", 4), ("c", 32))
    )
    uncached = table("d", dim=256)
    work = workload(wide, narrow, other, uncached)
    assert [work.cache_columns(each) for each in work.tables] == [128, 128, 32, 128]
    assert workload(uncached).cache_columns(uncached) == 0


def test_spreads_of_independent_tables_add_up_by_their_squares() -> None:
    # sqrt(3^2 + 4^2) = 5 ids of a sample, over 16 for the mean of 256; of 20 ids
    work = workload(table("a", pooling_std=3.0), table("b", pooling_std=4.0))
    assert work.batch_spread == pytest.approx(5 / 16 / 20)
    assert workload(table(), length_spread=0.5).batch_spread == 0.5


def test_a_step_has_the_samples_of_all_its_batches() -> None:
    assert workload(table(), gradient_accumulation_steps=3).samples_per_step == 3 * 256


def test_a_table_is_updated_by_its_own_optimizer_before_the_workload_s() -> None:
    own, plain = table("a", optimizer=Optimizer.ADAM), table("b", optimizer=Optimizer.SGD)
    work = workload(own, plain, optimizer=Optimizer.SGD)
    assert [work.optimizer_of(each) for each in work.tables] == [Optimizer.ADAM, Optimizer.SGD]
    assert work.table("b").optimizer is None  # the workload's, named again


def test_prefetching_keeps_the_rows_of_two_batches_in_a_cache() -> None:
    assert {each: each.batches_in_cache for each in Pipeline} == {
        **dict.fromkeys(Pipeline, 1),
        Pipeline.PREFETCH: 2,
    }
