from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import ReuseHistogram, UniqueFraction, Zipf
from planner.files.workload_reading import parse_workload
from planner.files.workload_text import dump_workload

shares = st.floats(0, 1e6, allow_subnormal=False)
laws = st.one_of(
    st.builds(Zipf, exponent=st.floats(0, 5), hot_rows_first=st.booleans()),
    st.builds(UniqueFraction, fraction=st.floats(1e-9, 1), num_lookups=st.floats(1, 1e12)),
    st.builds(
        ReuseHistogram,
        row_shares=st.lists(shares, min_size=1, max_size=17).map(lambda x: (1.0, *x)),
        num_lookups=st.floats(1, 1e12),
    ),
    st.builds(
        ReuseHistogram,
        row_shares=st.tuples(shares, shares, st.just(1.0)),
        num_lookups=st.floats(1, 1e12),
        mean_hits=st.tuples(st.just(1.0), st.just(2.0), st.floats(3, 4)),
        range_lookups=st.tuples(st.just(1.0), shares),
        range_rows=st.tuples(st.just(1.0), shares),
    ),
)
texts = st.text(min_size=1, max_size=12)
some_tables = st.builds(
    EmbeddingTable,
    name=texts,
    num_embeddings=st.integers(1, 2**40),
    embedding_dim=st.integers(1, 500).map(lambda n: 4 * n),
    pooling_factor=st.floats(1e-100, 1e6),
    feature_names=st.lists(texts, max_size=3).map(tuple),
    bags_per_sample=st.floats(1e-6, 9),
    data_type=st.sampled_from(DataType),
    pooling=st.sampled_from(Pooling),
    weighted=st.booleans(),
    inputs=laws,
    sharding_types=st.lists(st.sampled_from(ShardingType), max_size=2).map(tuple),
    compute_kernels=st.lists(st.sampled_from(ComputeKernel), max_size=2).map(tuple),
    ranks=st.lists(st.integers(0, 99), max_size=3, unique=True).map(tuple),
    min_shard_dim=st.sampled_from([4, 32]),
    cache_load_factor=st.floats(0.01, 1),
)
widths = st.lists(st.integers(1, 4096), min_size=1, max_size=3).map(tuple)
some_workloads = st.builds(
    Workload,
    tables=st.lists(some_tables, min_size=1, max_size=4, unique_by=lambda t: t.name).map(tuple),
    dense=st.builds(
        DenseModel,
        num_dense_features=st.integers(1, 99),
        bottom_mlp=widths,
        interaction=st.sampled_from([Interaction.CAT, Interaction.DCN_V2]),
        fused_interaction=st.booleans(),
        cross_layers=st.integers(1, 9),
        cross_rank=st.integers(1, 999),
        top_mlp=widths,
        precision=st.sampled_from(DataType),
        optimizer=st.sampled_from(Optimizer),
        model_parameters=st.integers(0, 2**40),
        read_parameters=st.integers(0, 2**40),
        most_products=st.just(0.0) | st.floats(1, 1e12),
    ),
    local_batch_size=st.integers(1, 2**20),
    pipeline=st.sampled_from(Pipeline),
    optimizer=st.sampled_from(Optimizer),
    output_type=st.sampled_from(DataType),
    comms_forward=st.none() | st.sampled_from(DataType),
    comms_backward=st.none() | st.sampled_from(DataType),
    index_bytes=st.sampled_from([4, 8]),
    gradient_accumulation_steps=st.integers(1, 64),
    length_spread=st.none() | st.floats(1e-9, 1),
    restore_site=st.none() | st.just(0),
    name=texts,
)


def test_what_is_not_the_default_is_written_once() -> None:
    hot = Zipf(exponent=0.5, hot_rows_first=True)
    one = EmbeddingTable(name="a", num_embeddings=10, embedding_dim=8, inputs=hot, ranks=(1,))
    two = replace(one, name="b", num_embeddings=20, pooling=Pooling.MEAN)
    dense = DenseModel(bottom_mlp=(8,), cross_layers=2)
    plain, law = Workload(tables=(one,)), "{zipf: 0.5, hot_rows_first: true}"
    mlp = "top_mlp: [1024, 1024, 512, 256, 1], precision: fp32, optimizer: sgd"
    assert dump_workload(plain).splitlines() == [
        "name: workload",
        "local_batch_size: 4096",
        "pipeline: sparse_dist",
        "optimizer: rowwise_adagrad",
        "output_type: fp32",
        "index_bytes: 8",
        f"dense: {{num_dense_features: 13, bottom_mlp: [512, 256, 128], interaction: cat, {mlp}}}",
        "tables:",
        f"  - {{name: a, num_embeddings: 10, embedding_dim: 8, inputs: {law}, ranks: [1]}}",
    ]
    more = replace(
        plain, tables=(one, two), dense=dense, gradient_accumulation_steps=2, length_spread=0.25,
        restore_site=0, comms_backward=DataType.BF16,
    )  # fmt: skip
    rest = f"interaction: cat, cross_layers: 2, {mlp}"
    assert dump_workload(more).splitlines()[6:] == [
        "gradient_accumulation_steps: 2",
        "length_spread: 0.25",
        "restore_site: 0",
        "comms: {backward: bf16}",
        f"dense: {{num_dense_features: 13, bottom_mlp: [8], {rest}}}",
        f"defaults: {{embedding_dim: 8, inputs: {law}}}",
        "tables:",
        "  - {name: a, num_embeddings: 10, ranks: [1]}",
        "  - {name: b, num_embeddings: 20, pooling: mean, ranks: [1]}",
    ]


@pytest.mark.parametrize("name", ["1e-05", "1E+5", "1e5", "7", "0.5"])
def test_names_that_look_like_numbers_stay_names(name: str) -> None:
    table = EmbeddingTable(name=name, num_embeddings=10, embedding_dim=4, feature_names=(name,))
    workload = Workload(tables=(table,), name=name)
    assert parse_workload(dump_workload(workload), "x") == workload


@pytest.mark.slow
@settings(max_examples=60)
@given(some_workloads)
def test_what_is_dumped_loads_as_it_was(workload: Workload) -> None:
    assert parse_workload(dump_workload(workload), "x") == workload
