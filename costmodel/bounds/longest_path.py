"""The longest path to an operation, along what each one before it waits for.

Compiled when the package is built (types are in ``longest_path.pxd``); the same file runs
interpreted. Programs of sets of sharding types look for some 150 of them each.
"""

import numpy as np

from costmodel.base.arrays import Array, Ints


class PathsToLast:
    """Operations, each waiting for earlier ones only, and the longest path to the last one."""

    def __init__(self, places: Ints, first: Ints, waits: Ints) -> None:
        """Take the operations.

        Parameters
        ----------
        places
            Where each operation's duration is, (operations,).
        first
            Where what it waits for begins in ``waits``, (operations + 1,).
        waits
            Operations, by their own number here.

        """
        self.places, self.first, self.waits = places, first, waits
        self.ends = np.zeros(len(places))
        """End of every operation, in seconds."""
        self.came_from = np.zeros(len(places), dtype=np.int64)
        """The operation whose end each one waited for last; -1: none."""

    def longest(self, times: Array) -> float:
        """Return the seconds of the longest path; ``times`` are durations by place."""
        for number in range(len(self.places)):
            latest, end = -1, 0.0
            for at in range(self.first[number], self.first[number + 1]):
                each = self.waits[at]
                if (
                    latest < 0
                    or self.ends[each] > end
                    or (self.ends[each] == end and each > latest)
                ):
                    latest, end = each, self.ends[each]
            self.came_from[number] = latest
            self.ends[number] = end + times[self.places[number]]
        return self.ends[len(self.places) - 1]

    def path(self) -> list[int]:
        """Return the places on the path found last."""
        at, path = len(self.places) - 1, []
        while at >= 0:
            path.append(int(self.places[at]))
            at = self.came_from[at]
        return path[::-1]
