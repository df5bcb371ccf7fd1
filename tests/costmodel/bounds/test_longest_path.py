"""Paths of five operations, by hand."""

import numpy as np
import pytest

from costmodel.bounds.longest_path import PathsToLast


@pytest.mark.parametrize(
    ("times", "seconds", "path"),
    [
        # the last one waits for operations 2 and 3, these for 0 and for 0 and 1
        ((1.0, 2.0, 4.5, 3.0, 7.0), 12.5, [0, 2, 4]),
        ((1.0, 2.0, 3.0, 3.0, 7.0), 12.0, [1, 3, 4]),
        ((3.0, 1.0, 3.0, 3.0, 7.0), 13.0, [0, 3, 4]),  # of two that end at once, the later one
        ((0.0, 0.0, 0.0, 0.0, 0.5), 0.5, [1, 3, 4]),
    ],
)
def test_the_longest_path_is_what_the_last_one_waits_for(
    times: tuple[float, ...], seconds: float, path: list[int]
) -> None:
    first, waits = np.array([0, 0, 0, 1, 3, 5]), np.array([0, 0, 1, 2, 3])
    paths = PathsToLast(np.array([4, 3, 2, 1, 0]), first, waits)  # durations in reverse
    assert paths.longest(np.array(times[::-1])) == seconds
    assert paths.path() == [4 - each for each in path]
