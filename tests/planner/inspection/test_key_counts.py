"""Ids counted in bounded memory, against exact counts."""

import numpy as np
import pytest
from numpy.typing import NDArray

from planner.inspection.key_counts import KeyCounts, Spectrum, mixed


def counted(ids: NDArray[np.int64], most: int, batch: int = 5000) -> Spectrum:
    counts = KeyCounts(most)
    for start in range(0, len(ids), batch):
        counts.add(*np.unique(ids[start : start + batch], return_counts=True))
    return counts.spectrum()


def zipf(lookups: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).zipf(1.2, lookups) * 7919 % 10**7


def test_few_ids_are_counted_exactly() -> None:
    ids = zipf(50_000)
    spectrum = counted(ids, 2**20)
    keys, hits = np.unique(ids, return_counts=True)
    assert spectrum.exact
    assert spectrum.keys.tolist() == keys.tolist()
    assert spectrum.hits.tolist() == hits.tolist()


@pytest.mark.parametrize("even", [True, False])
def test_of_many_ids_a_share_tells_the_rest(*, even: bool) -> None:
    # 4,096 to 8,192 ids are kept: a deviation of 1.6% at most; here within three of them
    ids = np.random.default_rng(1).integers(0, 10**5, 300_000) if even else zipf(300_000)
    spectrum, exact = counted(ids, 2**13), counted(ids, 2**20)
    assert not spectrum.exact
    assert spectrum.num_distinct == pytest.approx(exact.num_distinct, rel=0.05)
    assert spectrum.lookups == pytest.approx(len(ids))
    assert spectrum.hit(1) == pytest.approx(exact.hit(1), rel=0.1, abs=200)
    for lookups in (1000, 30_000):
        assert spectrum.unique_rows(lookups) == pytest.approx(exact.unique_rows(lookups), rel=0.05)


def test_hot_ids_are_exact_though_only_a_share_is_kept() -> None:
    ids = zipf(300_000)
    spectrum = counted(ids, 2**13)
    keys, hits = np.unique(ids, return_counts=True)
    hottest = np.argsort(-hits)[:5]
    found = dict(zip(spectrum.keys.tolist(), spectrum.hits.tolist(), strict=True))
    assert [found[key] for key in keys[hottest].tolist()] == hits[hottest].tolist()


def test_unseen_ids_by_hand() -> None:
    # f1 = 3, f2 = 1: 3 x 2 / (2 x 2) = 1.5 at least are unseen; 3 of 5 lookups are of ids seen once
    spectrum = counted(np.array([1, 2, 3, 4, 4]), 10)
    assert spectrum.unseen == 1.5
    assert spectrum.coverage == pytest.approx(1 - 3 / 5)


def test_chao_is_near_the_truth_where_ids_are_even() -> None:
    ids = np.random.default_rng(0).integers(0, 10_000, 10_000)
    spectrum = counted(ids, 2**20)
    assert spectrum.num_distinct < 6500
    assert spectrum.num_distinct + spectrum.unseen == pytest.approx(10_000, rel=0.05)


def test_rows_that_take_a_share_of_lookups() -> None:
    spectrum = counted(np.array([1] * 6 + [2] * 3 + [3]), 10)
    assert [spectrum.lasting(share) for share in (0.5, 0.6, 0.7, 0.95)] == [1, 1, 2, 3]


def test_distinct_ids_of_shuffled_batches() -> None:
    # of two halves of 10 lookups, an id with 5 hits is in one with 1 - 2^-5
    spectrum = counted(np.array([1] * 5 + [2] * 5), 10)
    assert spectrum.unique_rows(5) == pytest.approx(2 * (1 - 2**-5))
    assert spectrum.unique_rows(10) == 2


def test_mixing_spreads_and_is_one_to_one() -> None:
    bits = mixed(np.arange(100_000))
    assert len(np.unique(bits)) == 100_000
    assert np.mean(bits & np.uint64(1)) == pytest.approx(0.5, abs=0.01)
