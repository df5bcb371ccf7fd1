"""Candidates of all tables by number, with arrays of their costs and memory."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sharders.torchrec.search_space import Candidate, SearchSpace

Integers: TypeAlias = npt.NDArray[np.int64]


class Candidates:
    """Numbered candidates; tables with the same ones share numbers."""

    def __init__(self, space: SearchSpace) -> None:
        numbers: dict[int, int] = {}
        self.found: list[Candidate] = []
        for candidate in (each for table in space.candidates for each in table):
            if id(candidate) not in numbers:
                numbers[id(candidate)] = len(self.found)
                self.found.append(candidate)
        self.of_table = [[numbers[id(each)] for each in table] for table in space.candidates]
        """Numbers of every table's candidates, in the order in which they are offered."""
        storages = [each.total_storage for each in self.found]
        self.load = np.array([each.perf.total * each.num_shards for each in self.found])
        """Cost of all shards of each candidate together."""
        self.hbm = np.array([each.hbm for each in storages], dtype=np.int64)
        """Bytes in HBM of all shards of each."""
        self.host = np.array([each.host for each in storages], dtype=np.int64)
        """Bytes in host memory of all shards of each."""
