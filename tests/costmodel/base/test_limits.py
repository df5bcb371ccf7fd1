"""Numbers beyond all models and machines are refused, in words that say what they may be."""

from dataclasses import replace

import pytest
from machines import topology

from costmodel.base.limits import MOST_RANKS, shown
from costmodel.domain.plan import column_counts
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from costmodel.inputs.distribution import ReuseHistogram, UniqueFraction

TABLE = EmbeddingTable(name="t", num_embeddings=8, embedding_dim=4)


@pytest.mark.parametrize(
    "field",
    [
        {"num_embeddings": 2**63},
        {"embedding_dim": 40_000_000},
        {"pooling_factor": 1.7e308},
        {"pooling_factor": float("inf")},
        {"pooling_factor": float("nan")},
        {"min_shard_dim": 2**62},
        {"ranks": (10**12,)},
        {"name": "x" * 10_000},
        {"feature_names": tuple(map(str, range(20_000)))},
    ],
)
def test_tables(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(field))}.* must be"):
        replace(TABLE, **field)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "field",
    [
        {"cross_rank": 2**62},
        {"cross_layers": 10**9},
        {"cross_layers": -1},
        {"num_dense_features": 2**62},
        {"bottom_mlp": (2**62,)},
        {"top_mlp": (1,) * 100_000},
        {"model_parameters": 10**18},
        {"read_parameters": -1},
        {"most_products": float("nan")},
    ],
)
def test_dense_models(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(field))}.* must be at"):
        replace(DenseModel(), **field)  # type: ignore[arg-type]


def test_workloads() -> None:
    with pytest.raises(ValueError, match="local_batch_size must be at most"):
        Workload(tables=(TABLE,), local_batch_size=2**40)


def test_ranks() -> None:
    with pytest.raises(ValueError, match="world_size must be at most"):
        topology(2 * MOST_RANKS)


def test_what_was_counted() -> None:
    with pytest.raises(ValueError, match="num_lookups must be at most"):
        UniqueFraction(fraction=0.5, num_lookups=1e300)
    with pytest.raises(ValueError, match="bins of reuse_histogram must be at most"):
        ReuseHistogram(row_shares=(1.0,) * 2000, num_lookups=10)
    with pytest.raises(ValueError, match="needs shares"):
        ReuseHistogram(row_shares=(1e308, 1e308), num_lookups=10)


def test_a_number_of_many_digits_can_be_shown() -> None:
    assert shown(10**5000) == "a number of 5001 digits"
    assert shown(40_000_000) == "40,000,000"
    assert shown(1.7e308) == "1.7e+308"


def test_widths_are_found_without_trying_each() -> None:
    # 2^40 columns have 39 numbers of blocks, found by 2^19 divisions; each width alone takes hours
    assert len(column_counts(2**40)) == 39
    assert column_counts(128, 32) == (1, 2, 4)
    assert column_counts(48) == (1, 2, 3, 4, 6, 12)
