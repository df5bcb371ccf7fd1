"""Random numbers are SplitMix64's, and spread as they should."""

import numpy as np

from sharders.engine.moves import RandomNumbers


def test_the_first_numbers_of_a_seed_are_known() -> None:
    numbers = RandomNumbers(1234567)
    # by Vigna's splitmix64.c
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [numbers.uniform() for _ in known] == [(each >> 11) * 2.0**-53 for each in known]


def test_numbers_are_spread_evenly_and_pairs_are_too() -> None:
    drawing = RandomNumbers(1)
    numbers = np.array([drawing.uniform() for _ in range(200_000)])
    dice = np.array([drawing.below(6) for _ in range(60_000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    cells = (16 * numbers[::2]).astype(int) * 16 + (16 * numbers[1::2]).astype(int)
    for drawn, kinds in ((cells, 256), (dice, 6)):
        expected = len(drawn) / kinds
        counts = np.bincount(drawn, minlength=kinds)
        chi_square = ((counts - expected) ** 2 / expected).sum()
        freedom = kinds - 1
        assert len(counts) == kinds
        assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)  # four standard deviations
