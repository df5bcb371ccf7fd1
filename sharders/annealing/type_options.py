"""The option that every table gets for a given sharding type."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.step.cuts import TYPES
from sharders.engine.search_engine import Engine

SPLIT_ABOVE = 0.5
"""Largest share of a balanced rank's load of a shard: tables get the cheapest option of their type
with smaller shards, or else the one with the smallest."""


class TypeOptions:
    """The option of each table for each sharding type."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The engine's numbers of the options, (types, tables); -1: the table has none."""
        tables = self.engine.search.tables
        first, kind = np.asarray(tables.options), np.asarray(tables.kind)
        shard_cost = np.asarray(tables.shard_cost)
        table = np.repeat(np.arange(tables.num_tables), np.diff(first))
        cost = np.where(self._is_small, tables.cost, np.inf)
        order = np.lexsort((shard_cost, cost, kind, table))
        _, best = np.unique((table * len(TYPES) + kind)[order], return_index=True)
        numbers = np.full((len(TYPES), tables.num_tables), -1, dtype=np.int64)
        numbers[kind[order[best]], table[order[best]]] = order[best]
        return numbers

    @cached_property
    def prices(self) -> NDArray[np.float64]:
        """Costs of the options alone, (types, tables).

        Options of large shards cost more than all others.

        It is infinite where a table has none.
        """
        cost = np.asarray(self.engine.search.tables.cost)
        priced = np.where(self._is_small, cost, cost + cost.max())
        return np.where(self.numbers >= 0, priced[self.numbers], np.inf)

    @property
    def _is_small(self) -> NDArray[np.bool_]:
        """Return which options have small enough shards."""
        limit = SPLIT_ABOVE * self.engine.problem.groundwork.arrays.balanced_load
        is_small: NDArray[np.bool_] = np.asarray(self.engine.search.tables.shard_cost) <= limit
        return is_small
