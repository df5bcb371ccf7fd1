"""Distinct rows, cache misses and row ranges, by hand and against sampled batches."""

from collections import OrderedDict
from math import exp

import numpy as np
import pytest
from hypothesis import given
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
from costmodel.inputs.unique_curves import GRID


def draw(exponent: float, rows: int, lookups: int) -> NDArray[np.int64]:
    weights = np.arange(1, rows + 1) ** -exponent
    return np.random.default_rng(0).choice(rows, size=lookups, p=weights / weights.sum())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.05, 1.5, 2.0])
@pytest.mark.parametrize(("rows", "lookups"), [(100, 50), (30_000, 20_000), (1_000_000, 100_000)])
def test_distinct_rows_of_a_sampled_batch(exponent: float, rows: int, lookups: int) -> None:
    sampled = len(np.unique(draw(exponent, rows, lookups)))
    expected = unique_curve(Zipf(exponent=exponent), rows).unique_rows(lookups)
    assert expected == pytest.approx(sampled, abs=3 * sampled**0.5 + 1)


def test_uniform_by_hand() -> None:
    # 1000 draws from 1000 rows leave (1 - 1/1000)^1000 = 36.8% of them out
    assert unique_curve(Zipf(exponent=0), 1000).unique_rows(1000) == pytest.approx(632, rel=0.005)


def test_one_lookup_hits_one_row() -> None:
    assert unique_curve(Zipf(), 10).unique_rows(1) == pytest.approx(1.0)


def test_misses_of_a_cache_that_starts_cold() -> None:
    drawn, size = draw(1.05, 20_000, 60_000), 2000
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for row in drawn:
        misses += row not in cache
        cache[row] = None
        cache.move_to_end(row)
        if len(cache) > size:
            cache.popitem(last=False)
    expected = unique_curve(Zipf(), 20_000).cold_misses(60_000, size)
    assert expected == pytest.approx(misses, rel=0.03)


def test_a_cache_that_holds_everything_misses_each_row_once() -> None:
    curve = unique_curve(Zipf(), 1000)
    assert curve.cold_misses(5000, 1000) == curve.unique_rows(5000)
    assert curve.warm_misses(5000, 1000) == 0.0


def test_a_warm_cache_misses_less_than_a_cold_one() -> None:
    curve = unique_curve(Zipf(), 1_000_000)
    assert 0 < curve.warm_misses(10_000, 100_000) < curve.unique_rows(10_000)


def test_a_row_that_a_warm_cache_lacks_is_read_by_each_of_its_ids() -> None:
    # uniform: of 5,000 rows the cache has 1,000; 4,000 ids of the batch are to one of the others
    curve = unique_curve(Zipf(exponent=0.0), 5000)
    assert curve.warm_reads(5000, 1000) == pytest.approx(4000, rel=0.01)
    assert curve.warm_misses(5000, 1000) == pytest.approx(4000 * (1 - exp(-1)), rel=0.01)
    assert curve.warm_reads(5000, 5000) == 0.0
    skewed = unique_curve(Zipf(), 1_000_000)
    assert skewed.warm_reads(10_000, 100_000) < 1.2 * skewed.warm_misses(10_000, 100_000)


def test_a_cache_short_of_places_keeps_the_same_share_of_every_batch() -> None:
    curve = unique_curve(Zipf(exponent=0.0), 1_000_000)
    unique, together = curve.unique_rows(100_000), curve.unique_rows(200_000)
    assert curve.kept_rows(100_000, together, 2) == pytest.approx(unique)
    assert curve.kept_rows(100_000, together / 2, 2) == pytest.approx(unique / 2)
    assert curve.kept_rows(100_000, 500_000, 1) == unique


def test_a_counted_batch_gives_its_own_distinct_rows() -> None:
    drawn = draw(1.05, 20_000, 50_000)
    rows, counts = np.unique(drawn, return_counts=True)
    counted = ReuseHistogram(row_shares=histogram_of(counts.tolist()), num_lookups=50_000)
    curve = unique_curve(counted, 20_000)
    assert curve.unique_rows(50_000) == pytest.approx(len(rows), rel=0.05)
    half = len(np.unique(drawn[:25_000]))
    assert curve.unique_rows(25_000) == pytest.approx(half, rel=0.05)


def test_mean_hits_make_a_counted_batch_exact() -> None:
    _, counts = np.unique(draw(1.5, 20_000, 50_000), return_counts=True)
    shares, hits = histogram_of(counts.tolist()), mean_hits_of(counts.tolist())
    law = ReuseHistogram(row_shares=shares, mean_hits=hits, num_lookups=50_000)
    assert law.mean_reuse == pytest.approx(50_000 / len(counts))
    assert unique_curve(law, 20_000).unique_rows(50_000) == pytest.approx(len(counts), rel=1e-3)


def test_mean_hits_by_hand() -> None:
    # bins 1, 2, 3-4, 5-8; nothing is hit twice, so that bin says its own 2
    assert mean_hits_of([1, 1, 3, 4, 4, 8]) == pytest.approx((1.0, 2.0, 11 / 3, 8.0))


def ranges(drawn: NDArray[np.int64], rows: int, number: int) -> ReuseHistogram:
    hit, counts = np.unique(drawn, return_counts=True)
    return ReuseHistogram(
        row_shares=histogram_of(counts.tolist()),
        mean_hits=mean_hits_of(counts.tolist()),
        num_lookups=len(drawn),
        range_lookups=tuple(np.bincount(drawn * number // rows) / len(drawn)),
        range_rows=tuple(np.bincount(hit * number // rows) / len(hit)),
    )


def test_counted_ranges_of_rows() -> None:
    drawn = draw(1.05, 16_000, 50_000)
    law = ranges(drawn, 16_000, 16)
    for first in range(0, 16_000, 4000):
        mine = drawn[drawn // 4000 == first // 4000]
        assert lookup_share(law, 16_000, first, 4000) == pytest.approx(len(mine) / 50_000)
        curve = unique_curve(law, 16_000, first, 4000)
        assert curve.unique_rows(50_000) == pytest.approx(len(np.unique(mine)), rel=5e-3)
        tenth = drawn[:5000][drawn[:5000] // 4000 == first // 4000]
        assert curve.unique_rows(5000) == pytest.approx(len(np.unique(tenth)), rel=0.2)


def test_counted_ranges_are_not_hashed() -> None:
    law = ReuseHistogram(
        row_shares=(1.0,), num_lookups=10, range_lookups=(3.0, 1.0), range_rows=(1.0, 1.0)
    )
    # evenly inside a range: 3/4 of the first half of the rows, and half a range of the second
    assert lookup_share(law, 100, 0, 75) == pytest.approx(0.875)


def test_beyond_a_counted_batch_rows_run_out_as_they_do() -> None:
    drawn = draw(0.0, 1000, 2000)
    _, counts = np.unique(drawn[:500], return_counts=True)
    law = ReuseHistogram(row_shares=histogram_of(counts.tolist()), num_lookups=500)
    expected = unique_curve(law, 1000).unique_rows(2000)
    assert expected == pytest.approx(len(np.unique(drawn)), rel=0.04)


@pytest.mark.parametrize(("rows", "unique"), [(10**6, 151.57), (150, 134.94)])
def test_what_was_hit_once_says_how_fast_rows_appear(rows: int, unique: float) -> None:
    # of 100 rows 60 were hit once: 100 2^0.6, or of the 50 left 50 (1 - e^-1.2)
    law = ReuseHistogram(row_shares=(60.0, 40.0), mean_hits=(1.0, 2.0), num_lookups=140)
    assert unique_curve(law, rows).unique_rows(280) == pytest.approx(unique, rel=5e-3)


def test_a_unique_fraction_becomes_the_law_that_yields_it() -> None:
    measured = UniqueFraction(fraction=0.3, num_lookups=10_000)
    unique = unique_curve(measured, 1_000_000).unique_rows(10_000)
    assert unique == pytest.approx(3000, rel=0.01)


def test_hashed_ids_spread_evenly_over_row_ranges() -> None:
    assert lookup_share(Zipf(), 1000, 0, 250) == 0.25
    quarter = unique_curve(Zipf(), 1000, 250, 250).unique_rows(4000)
    assert quarter == pytest.approx(unique_curve(Zipf(), 1000).unique_rows(4000) / 4)


def test_hot_rows_first_concentrate_on_the_first_range() -> None:
    law = Zipf(exponent=1.0, hot_rows_first=True)
    # harmonic numbers: H(10) / H(100) = 2.929 / 5.187
    assert lookup_share(law, 100, 0, 10) == pytest.approx(0.5646, rel=1e-3)
    parts = [lookup_share(law, 100, first, 25) for first in (0, 25, 50, 75)]
    assert sum(parts) == pytest.approx(1.0)
    assert parts == sorted(parts, reverse=True)


def test_row_ranges_of_hot_rows_first_add_up() -> None:
    law = Zipf(exponent=1.05, hot_rows_first=True)
    whole = unique_curve(law, 10_000).unique_rows(5000)
    parts = [unique_curve(law, 10_000, f, 2500).unique_rows(5000) for f in range(0, 10_000, 2500)]
    assert sum(parts) == pytest.approx(whole, rel=0.01)


LAWS = st.one_of(
    st.floats(0, 2).map(lambda s: Zipf(exponent=s)),
    st.floats(0, 2).map(lambda s: Zipf(exponent=s, hot_rows_first=True)),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=17).map(
        lambda shares: ReuseHistogram(row_shares=tuple(shares), num_lookups=1e5)
    ),
)


@given(LAWS, st.integers(1, 10**8), st.floats(1, 1e9), st.floats(1, 1e7))
def test_what_holds_for_any_law(
    law: InputDistribution, rows: int, lookups: float, cache: float
) -> None:
    curve = unique_curve(law, rows)
    unique = curve.unique_rows(lookups)
    assert 0 < unique <= min(rows, lookups) * 1.001
    assert curve.unique_rows(2 * lookups) >= unique
    misses = curve.cold_misses(lookups, cache)
    assert unique * 0.999 <= misses <= lookups * 1.001
    assert curve.cold_misses(lookups, 2 * cache) <= misses * 1.001


@pytest.mark.parametrize(
    "make",
    [
        lambda: Zipf(exponent=-1),
        lambda: Zipf(exponent=float("nan")),
        lambda: ReuseHistogram(row_shares=(), num_lookups=1),
        lambda: ReuseHistogram(row_shares=(0.0,), num_lookups=1),
        lambda: ReuseHistogram(row_shares=(1.0,), num_lookups=0),
        lambda: ReuseHistogram(row_shares=(1.0,), num_lookups=1, mean_hits=(1.0, 2.0)),
        lambda: ReuseHistogram(row_shares=(0.0, 0.0, 1.0), num_lookups=9, mean_hits=(1, 2, 5)),
        lambda: ReuseHistogram(row_shares=(1.0,), num_lookups=1, range_lookups=(1.0,)),
        lambda: ReuseHistogram(
            row_shares=(1.0,), num_lookups=1, range_lookups=(0.0,), range_rows=(0.0,)
        ),
        lambda: UniqueFraction(fraction=0, num_lookups=1),
        lambda: UniqueFraction(fraction=2, num_lookups=1),
    ],
)
def test_impossible_distributions_are_refused(make: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- each message is another
        make()  # type: ignore[operator]


@given(st.floats(1.0, 1e13), st.sampled_from([0.0, 0.5, 1.05]))
def test_between_tabulated_points_curves_are_straight(lookups: float, exponent: float) -> None:
    curve = unique_curve(Zipf(exponent=exponent), 10_000)
    expected = np.interp(lookups, np.append(0.0, GRID), curve.unique)
    assert curve.unique_rows(lookups) == pytest.approx(expected)
    seen = curve.unique_rows(lookups)
    if seen < 9_000:
        assert curve.filling_lookups(seen) == pytest.approx(lookups)
