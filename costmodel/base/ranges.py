"""Several numbers for each of some things, in one array, one thing after the other."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Ints


def flat(parts: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return all parts one after the other, and where each begins (one more entry)."""
    each = list(parts)
    begins = np.cumsum([0, *map(len, each)], dtype=np.int64)
    return np.array([number for part in each for number in part], dtype=np.int64), begins


def within(counts: Ints) -> Ints:
    """Return the numbers from 0 up to each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def range_numbers(begins: Ints, ends: Ints) -> Ints:
    """Return all numbers of some ranges, one range after the other."""
    counts = ends - begins
    numbers: Ints = np.repeat(begins, counts) + within(counts)
    return numbers


def taken(begins: Ints, some: Ints) -> tuple[Ints, Ints]:
    """Return where parts begin if only some are left (one more entry), and the places of these.

    ``begins``: where all parts begin, one more entry than parts.
    """
    first, end = begins[some], begins[some + 1]
    return np.append(0, np.cumsum(end - first)), range_numbers(first, end)


def first_least(values: NDArray[np.float64], begins: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the number of the first least value of every range, shape (ranges,).

    ``begins``: the first value of each, none of them empty; the last range ends with the values.
    """
    lengths = np.diff(begins, append=len(values))
    least = np.flatnonzero(values == np.minimum.reduceat(values, begins).repeat(lengths))
    firsts: NDArray[np.intp] = least[np.searchsorted(least, begins)]
    return firsts
