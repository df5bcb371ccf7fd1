"""What one option of one table adds to the step, in seconds, were it alone.

``OptionArrays`` computes it; here are options with their costs, for sharders that look at tables
one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from costmodel.base.units import Seconds
from costmodel.domain.workload import EmbeddingTable
from sharders.problem.option_arrays import OptionArrays
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import ShardingProblem


@dataclass(frozen=True, kw_only=True)
class OptionCost:
    """Cost of an option, per shard and in all."""

    option: TableOption
    shard_load: Seconds
    """Lookup and exchange that the largest shard adds to its rank."""
    total_load: Seconds
    """The same over all shards and ranks."""


class Costs(Protocol):
    """Gives every option of every table a cost."""

    def cost(self, table: EmbeddingTable, option: TableOption) -> OptionCost:
        """Return the cost of one option of one table."""
        ...


@dataclass(frozen=True)
class OptionCosts:
    """Costs of every option of every table of a problem, taken from its arrays when asked for."""

    problem: ShardingProblem

    def cost(self, table: EmbeddingTable, option: TableOption) -> OptionCost:
        """Return the cost of one option of one table."""
        return self.some(table, [option])[0]

    def some(self, table: EmbeddingTable, options: Sequence[TableOption]) -> list[OptionCost]:
        """Return the costs of some options of one table."""
        known = self._of(table)
        for option in options:
            if option not in known:  # of a plan that others made: caches may have other sizes
                place, arrays = self.problem.places[table.name], self.problem.option_arrays
                known.update(_costs(arrays.with_other(place, option), place))
        return [known[option] for option in options]

    def all(self) -> Iterator[Sequence[OptionCost]]:
        """Yield the costs of every table's options."""
        for table in self.problem.workload.tables:
            costs = self._of(table)
            yield [costs[option] for option in self.problem.options[table.name]]

    def _of(self, table: EmbeddingTable) -> dict[TableOption, OptionCost]:
        known, arrays = self.problem.known_costs, self.problem.option_arrays
        if table.name not in known:
            known[table.name] = _costs(arrays, self.problem.places[table.name])
        return known[table.name]


def _costs(arrays: OptionArrays, index: int) -> dict[TableOption, OptionCost]:
    """Return the costs of a table's options, in their order."""
    own = slice(*arrays.begins[index : index + 2])
    loads = arrays.shard_load[own].tolist(), arrays.total_load[own].tolist()
    return {
        option: OptionCost(option=option, shard_load=shard, total_load=total)
        for option, shard, total in zip(arrays.options[index], *loads, strict=True)
    }
