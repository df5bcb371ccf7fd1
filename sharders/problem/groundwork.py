"""Values that every search of a workload on a topology needs, with any objective and start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from costmodel.base.units import Bytes
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import host_bytes_usable, rank_rooms
from costmodel.step.synthesis import Templates
from sharders.problem.option_arrays import HeldBytes, OptionArrays
from sharders.problem.option_costs import OptionCosts
from sharders.problem.options import TableOption, options_by_name

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Groundwork:
    """Options of a workload's tables, with their costs and memory, and the room of ranks.

    All of it follows from the workload and the topology, and each value is computed once, when
    first asked for. An objective and known plans change none of it: they belong to the
    ``ShardingProblem``, and problems that differ in them share one ``Groundwork``.
    """

    workload: Workload
    topology: Topology
    one_block: bool = False
    """Whether whole tables may share the collectives of split ones (``options_by_name``)."""
    _bytes: dict[tuple[str, TableOption], tuple[HeldBytes, ...]] = field(
        default_factory=dict, init=False, repr=False
    )
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def rooms(self) -> tuple[Bytes, ...]:
        """HBM that every rank has for shards."""
        return rank_rooms(self.workload, self.topology)

    @cached_property
    def capacity(self) -> Bytes:
        """HBM that a rank has for shards; where ranks differ, the one that has most."""
        return max(self.rooms)

    @property
    def total_capacity(self) -> Bytes:
        """HBM that all ranks together have for shards."""
        return sum(self.rooms)

    @cached_property
    def host_capacity(self) -> Bytes:
        """Host memory that a node has for UVM tables."""
        return host_bytes_usable(self.topology)

    @cached_property
    def options(self) -> Mapping[str, tuple[TableOption, ...]]:
        """Every table's legal options, by name."""
        return options_by_name(self.workload, self.topology, one_block=self.one_block)

    @property
    def num_options(self) -> int:
        """Number of options of all tables together."""
        return sum(map(len, self.options.values()))

    @cached_property
    def arrays(self) -> OptionArrays:
        """All options as arrays."""
        options = [self.options[table.name] for table in self.workload.tables]
        return OptionArrays(self.workload, self.topology, options)

    @cached_property
    def costs(self) -> OptionCosts:
        """What every option costs, for sharders that look at tables one by one."""
        return OptionCosts(self.arrays)

    @cached_property
    def templates(self) -> Templates:
        """Steps of plans with different sharding groups."""
        return Templates(self.workload, self.topology)

    def option_bytes(self, table: EmbeddingTable, option: TableOption) -> tuple[HeldBytes, ...]:
        """Return the bytes of every shard an option makes; they do not depend on the ranks."""
        key = (table.name, option)
        if key not in self._bytes:
            arrays, index = self.arrays, self.arrays.index_of[table.name]
            if arrays.place(index, option) < 0:  # of a plan that others made: see with_other
                arrays = arrays.with_other(index, option)
            block = arrays.block_bytes(arrays.place(index, option))
            sizes = [size for size, count in block for _ in range(count)]
            self._bytes[key] = tuple(sizes * option.num_column_shards)
        return self._bytes[key]

    def once(self, make: Callable[["Groundwork"], Made]) -> Made:
        """Return the result of a function of this groundwork, called once and kept."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made
