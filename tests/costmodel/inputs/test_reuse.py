"""Reuse histograms and row-wise shares of a batch, by hand and against sampled batches."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from costmodel.inputs.distribution import (
    InputDistribution,
    ReuseHistogram,
    UniqueFraction,
    Zipf,
    histogram_of,
    lookup_share,
    mean_hits_of,
    unique_curve,
)
from costmodel.inputs.reuse import (
    NUM_BINS,
    fitted_zipf,
    reuse_rows,
)

CASES = [
    (0.0, 1000, 3000),
    (0.6, 30_000, 200_000),
    (1.05, 100_000, 200_000),
    (1.5, 1_000_000, 100_000),
]


def draw(exponent: float, rows: int, lookups: int, seed: int = 0) -> NDArray[np.int64]:
    """Sample ids whose popularity falls with the id."""
    weights = np.arange(1, rows + 1) ** -exponent
    return np.random.default_rng(seed).choice(rows, size=lookups, p=weights / weights.sum())


def counted(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count distinct rows per bin, in another way than the model does."""
    _, hits = np.unique(ids, return_counts=True)
    bins = [sum(hits > (1 << b)) for b in range(NUM_BINS - 1)]
    return -np.diff([len(hits), *bins, 0])


def measured(ids: NDArray[np.int64]) -> ReuseHistogram:
    _, hits = np.unique(ids, return_counts=True)
    return ReuseHistogram(
        row_shares=histogram_of(hits.tolist()),
        mean_hits=mean_hits_of(hits.tolist()),
        num_lookups=len(ids),
    )


def test_uniform_by_hand() -> None:
    # 1000 lookups of 1000 rows: Poisson(1), so e^-1 of the rows are hit once, e^-1/2 twice
    rows = reuse_rows(Zipf(exponent=0), 1000, 1000)
    assert rows[0] == pytest.approx(1000 * np.exp(-1), rel=2e-3)
    assert rows[1] == pytest.approx(500 * np.exp(-1), rel=2e-3)


@pytest.mark.parametrize(("exponent", "rows", "lookups"), CASES)
def test_histograms_of_sampled_batches(exponent: float, rows: int, lookups: int) -> None:
    # 8 batches: chi-square of the mean rows per bin, whose variance is at most Poisson's
    batches = [counted(draw(exponent, rows, lookups, seed)) for seed in range(8)]
    expected = np.array(reuse_rows(Zipf(exponent=exponent), rows, lookups))
    seen = expected > 1
    error = (np.mean(batches, axis=0) - expected)[seen] / np.sqrt(expected[seen] / 8)
    assert np.square(error).mean() < 2.5
    total = expected.sum()
    assert np.mean(batches, axis=0).sum() == pytest.approx(total, abs=3 * (total / 8) ** 0.5)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(("exponent", "rows", "lookups"), CASES)
def test_smaller_batches_of_a_counted_one(
    exponent: float, rows: int, lookups: int, share: float
) -> None:
    ids = draw(exponent, rows, lookups)
    part = ids[: int(share * lookups)]
    expected = np.array(reuse_rows(measured(ids), rows, len(part)))
    sampled = len(np.unique(part))
    assert expected.sum() == pytest.approx(sampled, abs=2 * sampled**0.5)
    assert np.abs(expected - counted(part)).sum() < 0.03 * sampled + 4 * sampled**0.5


@pytest.mark.parametrize(("exponent", "rows", "lookups"), CASES)
def test_longer_batches_than_the_counted_one(exponent: float, rows: int, lookups: int) -> None:
    ids = draw(exponent, rows, 4 * lookups)
    known = measured(ids[:lookups])
    expected = np.array(reuse_rows(known, rows, 4 * lookups))
    assert expected.sum() == pytest.approx(len(np.unique(ids)), rel=0.1)
    off = np.abs(expected / expected.sum() - counted(ids) / len(np.unique(ids))).sum() / 2
    assert off < 0.1


def test_a_global_histogram_is_not_the_batches() -> None:
    ids = draw(1.05, 100_000, 400_000)
    whole = measured(ids)
    rows = np.array(reuse_rows(whole, 100_000, 20_000))
    share = rows[0] / rows.sum()
    sampled = counted(ids[:20_000])
    assert share == pytest.approx(sampled[0] / sampled.sum(), abs=0.02)
    assert whole.row_shares[0] < 0.8 * share


def test_a_fit_recovers_the_exponent() -> None:
    for exponent, rows, lookups in CASES[1:]:
        bins = tuple(counted(draw(exponent, rows, lookups)).tolist())
        fit = fitted_zipf(bins, num_lookups=lookups, num_embeddings=rows)
        assert abs(fit.exponent - exponent) < 3 * fit.standard_error
        law = reuse_rows(Zipf(exponent=fit.exponent), rows, lookups)
        assert sum(law) == pytest.approx(sum(bins), rel=0.01)
        assert fit.histogram_error < 0.03


def test_more_batches_make_the_fit_surer() -> None:
    bins = tuple(counted(draw(1.05, 10_000, 10_000)).tolist())
    one = fitted_zipf(bins, num_lookups=10_000, num_embeddings=10_000)
    four = fitted_zipf(bins, num_lookups=10_000, num_embeddings=10_000, num_batches=4)
    assert four.standard_error == pytest.approx(one.standard_error / 2, rel=0.01)


def test_what_no_zipf_law_explains_has_a_large_error() -> None:
    fit = fitted_zipf((0.0,) * 6 + (1000.0,) + (0.0,) * 10, num_lookups=5e4, num_embeddings=10**6)
    assert fit.histogram_error > 0.5


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_shares_of_ranks_of_sampled_batches(num_ranks: int) -> None:
    rows, ids = 10_000, draw(1.05, 10_000, 200_000)
    law, block = Zipf(exponent=1.05, hot_rows_first=True), -(-rows // num_ranks)
    sizes = [min(block, rows - first) for first in range(0, rows, block)]
    shares = [lookup_share(law, rows, rank * block, size) for rank, size in enumerate(sizes)]
    sampled = np.bincount(ids // block, minlength=num_ranks) / len(ids)
    assert shares == pytest.approx(sampled.tolist(), abs=4 * (0.25 / len(ids)) ** 0.5)
    assert sum(shares) == pytest.approx(1.0)


def test_distinct_rows_of_a_rank_of_a_sampled_batch() -> None:
    law, ids = Zipf(exponent=1.05, hot_rows_first=True), draw(1.05, 10_000, 20_000)
    for rank in range(4):
        mine = ids[ids // 2500 == rank]
        bins = np.array(reuse_rows(law, 10_000, 20_000, 2500 * rank, 2500))
        assert bins.sum() == pytest.approx(len(np.unique(mine)), rel=0.05)
        assert bins[0] == pytest.approx(counted(mine)[0], rel=0.15)


def test_hashed_ranges_get_their_share_of_every_bin() -> None:
    whole = reuse_rows(Zipf(), 1000, 5000)
    assert reuse_rows(Zipf(), 1000, 5000, 250, 250) == pytest.approx([b / 4 for b in whole])


def test_no_lookups_hit_no_rows() -> None:
    assert sum(reuse_rows(Zipf(), 1000, 0.0)) == pytest.approx(0.0, abs=1e-6)


LAWS = st.one_of(
    st.floats(0, 3).map(lambda s: Zipf(exponent=s)),
    st.floats(0, 2).map(lambda s: Zipf(exponent=s, hot_rows_first=True)),
    st.floats(0.01, 1).map(lambda f: UniqueFraction(fraction=f, num_lookups=1e4)),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=17).map(
        lambda shares: ReuseHistogram(row_shares=tuple(shares), num_lookups=1e5)
    ),
)


@settings(max_examples=50)
@given(LAWS, st.integers(1, 10**8), st.floats(1, 1e8))
@example(ReuseHistogram(row_shares=(1.0,), num_lookups=1e5), 1, 2.0)
@example(ReuseHistogram(row_shares=(1.0,) * 14, num_lookups=1e5), 1, 1.0625)
def test_bins_add_up_to_the_distinct_rows(
    law: InputDistribution, rows: int, lookups: float
) -> None:
    bins = reuse_rows(law, rows, lookups)
    unique = unique_curve(law, rows).unique_rows(lookups)
    assert min(bins) >= 0
    assert sum(bins) == pytest.approx(unique, rel=0.01)
