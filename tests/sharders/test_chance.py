"""Random numbers in compiled code are SplitMix64's, and spread as they should."""

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.native import compiled
from sharders.native.chance import begin, below, uniform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@compiled
def _draw(state: NDArray[np.uint64], numbers: Floats, count: int, dice: Ints) -> None:
    for index in range(numbers.size):
        numbers[index] = uniform(state)
    for index in range(dice.size):
        dice[index] = below(state, count)


def test_the_first_numbers_of_a_seed_are_known() -> None:
    state, numbers = np.zeros(1, dtype=np.uint64), np.zeros(3)
    begin(state, 1234567)
    _draw(state, numbers, 1, np.zeros(0, dtype=np.int64))
    # by Vigna's splitmix64.c
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert numbers.tolist() == [(each >> 11) * 2.0**-53 for each in known]


def test_numbers_are_spread_evenly_and_pairs_are_too() -> None:
    state, numbers, dice = np.zeros(1, dtype=np.uint64), np.zeros(200_000), np.zeros(60_000, int)
    begin(state, 1)
    _draw(state, numbers, 6, dice)
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
