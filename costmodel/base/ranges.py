"""Arrays of ranges: several numbers for each of some things, one thing after the other."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Ints


def flat(parts: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return all parts in one array, and where each begins, shape (parts + 1,)."""
    each = list(parts)
    begins = np.cumsum([0, *map(len, each)], dtype=np.int64)
    return np.array([number for part in each for number in part], dtype=np.int64), begins


def within(counts: Ints) -> Ints:
    """Return 0, 1, ... below each count, one count after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def range_numbers(begins: Ints, ends: Ints) -> Ints:
    """Return the numbers from each begin to below its end, one range after the other."""
    counts = ends - begins
    numbers: Ints = np.repeat(begins, counts) + within(counts)
    return numbers


def taken(begins: Ints, some: Ints) -> tuple[Ints, Ints]:
    """Return where chosen parts begin once the others are left out, and their values' places.

    ``begins`` is where all parts begin, shape (parts + 1,); the first result has one more entry
    than ``some``.
    """
    first, end = begins[some], begins[some + 1]
    return np.append(0, np.cumsum(end - first)), range_numbers(first, end)


def first_least(values: NDArray[np.float64], begins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the number of the first smallest value of every range, shape (ranges,).

    ``begins`` has the first value of each range; none is empty, and the last ends with the values.
    """
    lengths = np.diff(begins, append=len(values))
    least = np.flatnonzero(values == np.minimum.reduceat(values, begins).repeat(lengths))
    firsts: NDArray[np.intp] = least[np.searchsorted(least, begins)]
    return firsts
