"""The time that stretches cover, of several owners at once."""

import numpy as np

from costmodel.base.arrays import Array, Places


def covered(owners: Places, begins: Array, ends: Array, num_owners: int) -> Array:
    """Return for how long each owner has at least one of its stretches, shape (owners,).

    Stretches that overlap count once; those that end before they begin count nothing.

    Parameters
    ----------
    owners, begins, ends
        One entry for every stretch, in any order.
    num_owners
        n: owners are numbers below it.

    """
    order = np.lexsort((begins, owners))
    of, begin, end = owners[order], begins[order], ends[order]
    by_end = np.lexsort((ends, owners))
    place = np.empty(len(order), dtype=np.intp)
    place[by_end] = np.arange(len(order))
    # the latest end so far, of an owner's own: places of later owners are higher, ends need not be
    latest = ends[by_end][np.maximum.accumulate(place[order])]
    first = np.append(True, of[1:] != of[:-1])[: len(of)]
    reached = np.where(first, -np.inf, np.roll(latest, 1))
    new = (end - np.maximum(begin, reached)).clip(min=0.0)
    return np.bincount(of, weights=new, minlength=num_owners).astype(np.float64)
