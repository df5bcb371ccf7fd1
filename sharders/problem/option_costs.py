"""Costs of one option of one table alone, in seconds.

``OptionArrays`` computes them; here are options with their costs, for sharders that look at tables
one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodel.base.units import Seconds
from costmodel.domain.workload import EmbeddingTable
from sharders.problem.option_arrays import OptionArrays
from sharders.problem.options import TableOption


@dataclass(frozen=True, kw_only=True)
class OptionCost:
    """An option with its cost, per shard and in all."""

    option: TableOption
    shard_load: Seconds
    """Lookup and exchange that the largest shard adds to its rank."""
    total_load: Seconds
    """Lookup and exchange of all shards and ranks."""


@dataclass(frozen=True, eq=False)
class OptionCosts:
    """Costs of options, taken from the arrays when asked for, and kept."""

    arrays: OptionArrays
    _known: dict[str, dict[TableOption, OptionCost]] = field(
        default_factory=dict, init=False, repr=False
    )
    """By the table's name."""

    def cost(self, table: EmbeddingTable, option: TableOption) -> OptionCost:
        """Return the cost of one option of one table."""
        return self.some(table, [option])[0]

    def some(self, table: EmbeddingTable, options: Sequence[TableOption]) -> list[OptionCost]:
        """Return the costs of some options of one table."""
        known = self._of(table)
        for option in options:
            if option not in known:  # of a plan that others made: caches may have other sizes
                index = self.arrays.index_of[table.name]
                known.update(_costs(self.arrays.with_other(index, option), index))
        return [known[option] for option in options]

    def all_of(self, table: EmbeddingTable) -> list[OptionCost]:
        """Return the costs of one table's options, in their order."""
        own = self.arrays.options[self.arrays.index_of[table.name]]
        return self.some(table, own)

    def _of(self, table: EmbeddingTable) -> dict[TableOption, OptionCost]:
        if table.name not in self._known:
            index = self.arrays.index_of[table.name]
            self._known[table.name] = _costs(self.arrays, index)
        return self._known[table.name]


def _costs(arrays: OptionArrays, index: int) -> dict[TableOption, OptionCost]:
    """Return the costs of a table's options, in their order."""
    own = slice(*arrays.begins[index : index + 2])
    loads = arrays.shard_load[own].tolist(), arrays.total_load[own].tolist()
    return {
        option: OptionCost(option=option, shard_load=shard, total_load=total)
        for option, shard, total in zip(arrays.options[index], *loads, strict=True)
    }
