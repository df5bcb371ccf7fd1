"""More work is never faster: every kernel model, with the numbers of every shipped profile."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.domain.hardware import CollectiveOp, HardwareProfile
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.collectives import RankGroup, collective_time
from costmodel.kernels.embedding import embedding_estimate
from costmodel.kernels.gemm import gemm_time
from costmodel.kernels.pointwise import (
    batched_product_time,
    concat_time,
    index_backward_time,
    index_time,
    pointwise_time,
)
from planner.files.profiles import load_profile, profile_names

SLACK = 1 + 1e-9
"""Rounding."""
PROFILES = st.sampled_from(profile_names()).map(load_profile)
AMOUNTS = st.floats(0.0, 1e12)
FACTORS = st.floats(1.0, 1e3)
SIZES = st.integers(1, 40_000)
TYPES = st.sampled_from((DataType.FP32, DataType.TF32, DataType.FP16, DataType.BF16))


@st.composite
def groups(draw: st.DrawFn) -> RankGroup:
    per_node = draw(st.integers(1, 8))
    return RankGroup(num_ranks=per_node * draw(st.integers(1, 32)), ranks_per_node=per_node)


@pytest.mark.slow
@given(PROFILES, st.sampled_from(CollectiveOp), groups(), AMOUNTS, FACTORS)
@settings(max_examples=400)
def test_more_bytes_are_never_exchanged_faster(
    hardware: HardwareProfile, op: CollectiveOp, group: RankGroup, size: float, factor: float
) -> None:
    less, more = collective_time(op, [size, size * factor], group, hardware)
    assert 0 <= less <= more * SLACK


@given(PROFILES, st.sampled_from(CollectiveOp), groups())
@settings(max_examples=100)
def test_curves_grow_across_their_knots_and_beyond(
    hardware: HardwareProfile, op: CollectiveOp, group: RankGroup
) -> None:
    sizes = np.concatenate([[0.0], np.geomspace(1, 1e13, 500)])
    times = collective_time(op, sizes, group, hardware)
    assert (times[1:] * SLACK >= times[:-1]).all()


@given(PROFILES, TYPES, SIZES, SIZES, SIZES, st.integers(0, 300).map(lambda count: 16 * count))
@settings(max_examples=200)
def test_larger_products_are_never_faster(
    hardware: HardwareProfile, data_type: DataType, m: int, n: int, k: int, more: int
) -> None:
    """Larger by multiples of 16, which leave rows as aligned as they were."""
    gpu = hardware.gpu
    time = gemm_time(m, n, k, data_type, gpu)
    grown = gemm_time([m + more, m, m], [n, n + more, n], [k, k, k + more], data_type, gpu)
    assert (grown * SLACK >= time).all()
    small = [1 + size % 256 for size in (m, n, k)]
    products = float(1 + m)
    one = batched_product_time(products, *small, data_type, gpu)
    for index in range(3):
        shape = list(small)
        shape[index] += more
        assert batched_product_time(products, *shape, data_type, gpu) * SLACK >= one
    assert batched_product_time(products + more, *small, data_type, gpu) * SLACK >= one


@given(PROFILES, AMOUNTS, AMOUNTS)
@settings(max_examples=100)
def test_more_bytes_never_stream_faster(
    hardware: HardwareProfile, amount: float, more: float
) -> None:
    for time in (pointwise_time, concat_time, index_backward_time):
        assert time(amount + more, hardware.gpu) >= time(amount, hardware.gpu)
    assert index_time(amount + more, 4, hardware.gpu) >= index_time(amount, 4, hardware.gpu)


@given(
    PROFILES,
    st.sampled_from(Optimizer),
    st.integers(100, 1_000_000),
    st.integers(1, 64).map(lambda quarter: 4 * quarter),
    st.integers(1, 50),
    st.integers(1, 10_000),
    st.floats(0.0, 1.5),
    st.integers(1, 20),
)
@settings(max_examples=60)
def test_more_ids_or_columns_are_never_looked_up_faster(  # noqa: PLR0913, PLR0917 -- the draws
    hardware: HardwareProfile,
    optimizer: Optimizer,
    rows: int,
    dim: int,
    ids: int,
    samples: int,
    skew: float,
    factor: int,
) -> None:
    def times(dim: int, ids: int, samples: int, copies: int = 1) -> list[float]:
        table = EmbeddingTable(
            name="t", num_embeddings=rows, embedding_dim=dim, pooling_factor=float(ids),
            inputs=Zipf(exponent=skew),
        )  # fmt: skip
        both = embedding_estimate(
            (table,) * copies, num_samples=samples, optimizer=optimizer, hardware=hardware
        )
        return [estimate.seconds for estimate in both]

    before = times(dim, ids, samples)
    for after in (
        times(dim * factor, ids, samples),
        times(dim, ids + factor, samples),
        times(dim, ids, samples * factor),
        times(dim, ids, samples, copies=2),
    ):
        assert all(more * SLACK >= less for less, more in zip(before, after, strict=True))
