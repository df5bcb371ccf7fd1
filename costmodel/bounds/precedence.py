"""Which operations of a template can be on one cycle in every plan that has them.

An operation that a plan lacks takes its dependencies with it. A collective of one group waits for
the compute stream, and one of another group is queued behind it: that puts the second behind the
compute stream in plans that have the first group, and in no others. So two operations count as
ordered only if operations of every plan, and of the groups that bring the two, order them.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.step.groups import GroupKey
from costmodel.step.template import Issued, TemplateOp

Flags: TypeAlias = NDArray[np.bool_]
NUM_TRIES = 8
"""Number of the heaviest operations from which a search for a heavy cycle begins."""


def compatible_ops(ops: Mapping[int, TemplateOp], present: Collection[GroupKey] = ()) -> Flags:
    """Return which pairs of operations are on a cycle of every plan that has both.

    Of two operations the later one has to follow the earlier one of the same step, and the earlier
    one of the next step the later one of this step. Operations of which each two do so are a cycle
    in every plan, less what it lacks of them.

    Parameters
    ----------
    ops
        Operations on streams of the device by number, in the order in which they are issued.
    present
        Groups that all plans in question have.

    Returns
    -------
        By place in ``ops``, symmetric, shape (operations, operations).

    """
    # More groups only add operations, and so order, so what every plan has is least ordered where
    # a group is alone, and operations of two groups where there are no others.
    groups = {group for op in ops.values() for group in op.part_of}.difference(present)
    always = np.array([not groups.issuperset(op.part_of) or not op.part_of for op in ops.values()])
    compatible = np.ones((len(ops), len(ops)), dtype=np.bool_)
    for pair in combinations_with_replacement(sorted(groups), 2) if groups else [()]:
        one, other = (
            np.array([group in op.part_of for op in ops.values()]) for group in pair or (None, None)
        )
        if len(set(pair)) < 2:
            one = other = always | one
        places = np.flatnonzero(one | other)
        block = np.ix_(places, places)
        concerned = np.outer(one[places], other[places])
        reached = _reached(ops, {*present, *pair}, places)
        compatible[block] &= reached | ~(concerned | concerned.T)
    return compatible


def _reached(
    ops: Mapping[int, TemplateOp], present: Collection[GroupKey], places: NDArray[np.intp]
) -> Flags:
    """Return which operations at some places are the same or one behind the other in a step.

    Of plans with exactly these groups; of shape (places, places).
    """
    step = [(place, number) for place, number in enumerate(ops) if ops[number].exists(present)]
    size = len(ops)
    before = [0] * (2 * size)
    last: dict[str, int] = {}
    for offset in (0, size):
        done: dict[int, int] = {}
        for place, number in step:
            op = ops[number]
            events = [
                last.get(e.resource) if isinstance(e, Issued) else done.get(e) for e in op.after
            ]
            for earlier in (*events, last.get(op.resource)):
                if earlier is not None:
                    before[offset + place] |= before[earlier] | 1 << earlier
            last[op.resource] = done[number] = offset + place
    same, following = (
        _flags([before[offset + place] for place in places], size)[:, places]
        for offset in (0, size)
    )
    both = np.tril(same & following.T, -1)
    return both | both.T | np.eye(len(places), dtype=np.bool_)


def _flags(bits: Sequence[int], size: int) -> Flags:
    """Return the lowest ``size`` bits of each number, shape (numbers, size)."""
    width = -(-size // 8)
    low = (1 << size) - 1
    raw = b"".join((each & low).to_bytes(width, "little") for each in bits)
    rows = np.frombuffer(raw, np.uint8).reshape(-1, width)
    return np.unpackbits(rows, axis=1, count=size, bitorder="little").astype(np.bool_)


def heaviest_compatible(
    members: Sequence[int], weights: Sequence[float], compatible: Sequence[int]
) -> list[int]:
    """Return members of which all pairs are compatible, in order: the heaviest of a few sets.

    Each set begins with another one of the heaviest members, and takes heavy ones before others.

    Parameters
    ----------
    members
        Places, ascending.
    weights, compatible
        Of every place: its weight, and the bits of the places that it is compatible with.

    """
    order = sorted(members, key=weights.__getitem__)[::-1]
    best: list[int] = []
    heaviest = -1.0
    for first in order[:NUM_TRIES]:
        possible = compatible[first]
        kept = [first]
        for candidate in order:
            if possible >> candidate & 1 and candidate != first:
                kept.append(candidate)
                possible &= compatible[candidate]
        weight = sum(weights[place] for place in kept)
        if weight > heaviest:
            best, heaviest = kept, weight
        if len(kept) == len(members):
            break
    return sorted(best)
