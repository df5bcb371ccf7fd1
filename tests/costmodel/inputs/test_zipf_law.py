"""Distinct rows of many laws at once are those of each law alone."""

import numpy as np
import pytest

from costmodel.base.arrays import Array
from costmodel.inputs.distribution import (
    ReuseHistogram,
    RowRange,
    UniqueFraction,
    Zipf,
    unique_curve,
    unique_curves,
)
from costmodel.inputs.unique_curves import GRID
from costmodel.inputs.zipf_law import ZipfRange, tabulated, zipf_classes, zipf_unique

LAWS = [
    ZipfRange(exponent, length, first, number)
    for exponent in (0.0, 0.7, 1.0, 1.05, 2.0)
    for length, first, number in (
        (1, 0, 1), (5, 0, 5), (64, 0, 64), (65, 0, 65), (300, 64, 7), (300, 3, 200),
        (1_000_000, 0, 1_000_000), (2_000_000_000, 0, 2_000_000_000), (50_000_000, 1, 9_999),
    )
]  # fmt: skip


def test_many_laws_are_tabulated_as_each_alone() -> None:
    many = tabulated(LAWS * 3)
    alone = [[zipf_unique(law, float(lookups)) for lookups in GRID] for law in LAWS]
    assert many == pytest.approx(np.array(alone * 3), rel=1e-12)


def chances(law: ZipfRange) -> Array:
    """Return the probability of every row of a range: k ** -exponent over the sum of all rows'."""
    weights = np.arange(1.0, law.num_embeddings + 1) ** -law.exponent
    return (weights / weights.sum())[law.first_row : law.first_row + law.num_rows]


@pytest.mark.parametrize("law", [law for law in LAWS if law.num_embeddings <= 1_000_000])
def test_classes_have_the_rows_the_mass_and_the_hits_of_the_rows_one_by_one(
    law: ZipfRange,
) -> None:
    rows, mass = zipf_classes(law)
    assert rows.sum() == law.num_rows
    assert (rows > 0).all()
    assert np.count_nonzero(rows == 1) >= max(0, min(law.num_rows, 64 - law.first_row))
    exact = chances(law)
    assert mass.sum() == pytest.approx(exact.sum(), rel=1e-4)
    for lookups in (1.0, 100.0, 1e5):
        hit = -np.expm1(lookups * np.log1p(-np.minimum(exact, 1 - 1e-12)))
        assert zipf_unique(law, lookups) == pytest.approx(hit.sum(), rel=1e-3)


def test_few_lookups_of_a_large_table_hit_different_rows() -> None:
    unique = tabulated([ZipfRange(0.0, 2_000_000_000, 0, 2_000_000_000)])[0]
    assert unique[:8] == pytest.approx(GRID[:8], rel=1e-7)


def test_curves_of_all_distributions_are_tabulated_together() -> None:
    inputs = [Zipf(), ReuseHistogram(row_shares=(0.5, 0.5), num_lookups=100.0)]
    inputs += [UniqueFraction(fraction=0.3, num_lookups=1e4), Zipf(exponent=0.9)]
    ranges = [RowRange(each, 10_000, 0, 10_000) for each in inputs]
    curves = unique_curves([*ranges, *ranges])
    assert curves[:4] == curves[4:]
    for each, curve in zip(inputs, curves, strict=False):
        assert curve.unique_rows(500.0) == unique_curve(each, 10_000).unique_rows(500.0)


def test_curves_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costmodel.inputs.distribution.MOST_CURVES", 3)
    for rows in range(100, 110):
        curves = unique_curves([RowRange(Zipf(), each, 0, each) for each in (rows, rows + 1)])
        assert [curve.unique[-1] for curve in curves] == [rows, rows + 1]
