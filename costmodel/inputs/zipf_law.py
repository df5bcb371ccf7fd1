"""Distinct rows under Zipf laws, of many tables or ranges of rows at once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array
from costmodel.inputs.unique_curves import GRID

SINGLES = 64
"""Number of ranks that are classes of their own."""
_FINE, _COARSE = np.arange(SINGLES + 1.0), np.floor(np.exp2(np.arange(6.0, 48.0, 0.125)))
_EDGES: Array = np.concatenate((_FINE, _COARSE[_COARSE > SINGLES]))
PER_OCTAVE = 4
"""Points of the grid in an octave."""
AT_ONCE = 32
"""Number of laws computed together, whose classes fit in a processor's cache."""
LIKELIEST = 1 - 1e-12


class ZipfRange(NamedTuple):
    """A Zipf law over a table's rows, and a range of these rows."""

    exponent: float
    num_embeddings: int
    first_row: int
    num_rows: int


def zipf_classes(law: ZipfRange) -> tuple[Array, Array]:
    """Return rows and probability mass of classes of rows of similar popularity.

    The first 64 ranks are classes of their own; from there on eight classes per octave, whose
    mass is the integral of k ** -exponent from half a rank before to half a rank after.
    """
    rows, mass = _classes([law])
    has = rows[0] > 0
    return rows[0, has], mass[0, has]


def zipf_unique(law: ZipfRange, num_lookups: float) -> float:
    """Return the sum over row classes of (rows in the class) x (1 - (1 - p) ** n)."""
    rows, mass = zipf_classes(law)
    log_missed = np.log1p(-np.minimum(mass / rows, LIKELIEST))
    return float(-np.expm1(num_lookups * log_missed) @ rows)


def tabulated(laws: Sequence[ZipfRange]) -> Array:
    """Return the distinct rows of each law at every n of ``GRID``, shape (laws, points).

    A row is hit by twice as many lookups with the probability h (2 - h), if h is that of being hit.
    """
    unique = np.zeros((len(laws), len(GRID)))
    order = sorted(range(len(laws)), key=lambda place: laws[place].num_rows)
    for first in range(0, len(laws), AT_ONCE):
        some = order[first : first + AT_ONCE]
        unique[some] = np.concatenate(list(_by_octave([laws[place] for place in some])), axis=1)[
            :, : len(GRID)
        ]
    return unique


def _by_octave(laws: Sequence[ZipfRange]) -> Iterator[Array]:
    """Yield the distinct rows at the points of each octave."""
    rows, mass = _classes(laws)
    chance = np.divide(mass, rows, out=np.ones_like(mass), where=rows > 0)
    log_missed = np.log1p(-np.minimum(chance, LIKELIEST))
    hit = -np.expm1(GRID[:PER_OCTAVE, None] * log_missed[:, None, :])
    for _ in range(0, len(GRID), PER_OCTAVE):
        yield (hit @ rows[:, :, None])[:, :, 0]
        hit *= 2.0 - hit


def _classes(laws: Sequence[ZipfRange]) -> tuple[Array, Array]:
    """Return rows and mass of the classes of some laws, shape (laws, classes), padded with 0."""
    exponent, length, first, number = (np.array(each)[:, None] for each in zip(*laws, strict=True))
    edges = np.append(_EDGES[: np.searchsorted(_EDGES, length.max())], np.inf)
    part = np.clip(edges, first, first + number)
    mass = _mass(part, exponent)
    whole = mass if (number == length).all() else _mass(np.clip(edges, 0, length), exponent)
    return np.diff(part), mass / whole.sum(axis=1, keepdims=True)


def _mass(edges: Array, exponent: Array) -> Array:
    """Return the probability mass between edges, up to a factor."""
    coarse = np.diff(_power_integral(edges[:, SINGLES:] + 0.5, exponent))
    ranks = edges[:, : SINGLES + 1]
    return np.concatenate((np.diff(ranks) * (ranks[:, :-1] + 1.0) ** -exponent, coarse), axis=1)


def _power_integral(x: Array, exponent: Array) -> Array:
    """Return the antiderivative of ``x ** -exponent``, element by element."""
    is_one = np.abs(exponent - 1) < 1e-9
    left = np.where(is_one, 1.0, 1 - exponent)
    power: Array = np.where(is_one, np.log(x), x**left / left)
    return power
