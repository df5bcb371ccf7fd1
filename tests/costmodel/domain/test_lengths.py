"""The rank with most ids, beside draws of lengths."""

from math import pi, sqrt

import numpy as np
import pytest
from plans import table, workload

from costmodel.domain.lengths import expected_maximum, fullest_batch


def test_the_largest_of_few_draws_by_hand() -> None:
    # 1 / sqrt(pi) of two, 3 / (2 sqrt(pi)) of three
    assert expected_maximum(1) == pytest.approx(0.0, abs=1e-9)
    assert expected_maximum(2) == pytest.approx(1 / sqrt(pi), rel=1e-5)
    assert expected_maximum(3) == pytest.approx(1.5 / sqrt(pi), rel=1e-5)


def test_the_largest_of_many_draws() -> None:
    drawn = np.random.default_rng(0).standard_normal((2000, 128)).max(axis=1)
    assert expected_maximum(128) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / sqrt(2000))


def test_even_lengths_have_no_fullest_rank() -> None:
    assert fullest_batch(workload(table()), 8) == 1.0


def test_a_counted_spread_comes_before_that_of_the_tables() -> None:
    work = workload(table(pooling_std=50.0), length_spread=0.1)
    assert fullest_batch(work, 2) == pytest.approx(1 + 0.1 / sqrt(pi), rel=1e-5)


def test_independent_lengths_as_drawn() -> None:
    # lengths of two tables, skewed to the right as histories are, in batches of 256 samples
    rng, ranks, draws = np.random.default_rng(1), 16, 1000
    means, stds = (20.0, 5.0), (40.0, 5.0)
    tables = [
        table(f"t{i}", ids=mean, pooling_std=std)
        for i, (mean, std) in enumerate(zip(means, stds, strict=True))
    ]
    total = np.zeros((draws, ranks))
    for mean, std in zip(means, stds, strict=True):
        shape = (mean / std) ** 2  # of a gamma distribution; a sum of 256 is one, too
        total += rng.gamma(256 * shape, mean / shape, (draws, ranks))
    drawn = total.max(axis=1) / (256 * sum(means))
    predicted = fullest_batch(workload(*tables), ranks)
    assert predicted == pytest.approx(drawn.mean(), rel=0.01)
    assert predicted - 1 == pytest.approx(drawn.mean() - 1, rel=0.1)


@pytest.mark.parametrize("spread", [-0.1, 1.1])
def test_a_spread_is_a_share(spread: float) -> None:
    with pytest.raises(ValueError, match="length_spread must be in"):
        workload(table(), length_spread=spread)


def test_a_deviation_is_not_negative() -> None:
    with pytest.raises(ValueError, match="pooling_std must be at least 0"):
        table(pooling_std=-1.0)
