"""Every option of every table as arrays, with the memory and cost of its shards.

Derived arrays are computed for all options at once, when first asked for: one by one, the 43,000
options of 674 tables in three kinds of memory would take seconds before a search begins.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import is_
from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array, Mask, Places
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.blocks import num_row_blocks
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import Workload
from costmodel.kernels.lookup_shards import KERNELS
from costmodel.memory.rank_memory import dense_part_ratio
from costmodel.memory.storage import shard_bytes
from costmodel.step.cuts import KINDS, TYPES, Cuts, OptionCodes, cuts_of, factors_of
from costmodel.step.loads import ShardLoads, shard_loads
from costmodel.step.shard_times import ColumnTimes, ShardTimer
from sharders.problem.options import TableOption, option_of

_EVERYWHERE = frozenset(kind for kind in TYPES if kind.everywhere)


class HeldBytes(NamedTuple):
    """Bytes that a shard holds."""

    total: Bytes
    """In HBM."""
    host: Bytes
    """In the node's host memory."""


@dataclass(frozen=True, eq=False)
class OptionArrays:
    """Options of every table, one table after the other; arrays have an entry for each option."""

    workload: Workload
    topology: Topology
    options: Sequence[Sequence[TableOption]]
    """Every table of the workload has at least one."""

    @cached_property
    def flat(self) -> tuple[TableOption, ...]:
        """All options in one tuple."""
        return tuple(chain.from_iterable(self.options))

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """Every table's index in the workload, by name."""
        return {table.name: index for index, table in enumerate(self.workload.tables)}

    @cached_property
    def begins(self) -> Places:
        """Where each table's options begin, shape (tables + 1,)."""
        return np.cumsum([0, *map(len, self.options)])

    @cached_property
    def codes(self) -> OptionCodes:
        """Their tables, types, kernels, column blocks and caches."""
        known: dict[int, Array] = {}  # like tables have the same options
        for own in self.options:
            if id(own) not in known:
                known[id(own)] = np.array([_numbers(option) for option in own]).T
        table = np.repeat(np.arange(len(self.options)), np.diff(self.begins))
        numbers = np.concatenate([known[id(own)] for own in self.options], axis=1)
        kind, kernel, count = numbers[:3].astype(np.intp)
        usual = np.array([each.cache_share for each in self.workload.tables])[table]
        cached = np.where(np.isnan(numbers[3]), usual, numbers[3])
        return OptionCodes(table, kind, kernel, count, cached)

    def places(self, plan: ShardingPlan) -> Places:
        """Return the place of every table's option in a plan; -1: it is not among them."""
        used = (option_of(plan.table(table.name), table) for table in self.workload.tables)
        return np.array([self.place(index, option) for index, option in enumerate(used)])

    def place(self, table: int, option: TableOption) -> int:
        """Return the place of a table's option, given the table's place.

        -1: it is not among them.
        """
        own = self.options[table]
        if id(own) not in self._known:
            self._known[id(own)] = {each: place for place, each in enumerate(own)}
        place = self._known[id(own)].get(option)
        return -1 if place is None else int(self.begins[table]) + place

    @cached_property
    def _known(self) -> dict[int, dict[TableOption, int]]:
        """Places of options among those of one table; like tables share them."""
        return {}

    def with_others(
        self, used: Sequence[frozenset[TableOption] | set[TableOption]]
    ) -> "OptionArrays":
        """Return arrays that have some further options of every table.

        Themselves if there are none.
        """
        options = []
        for own, some in zip(self.options, used, strict=True):
            others = some.difference(own)
            options.append((*own, *sorted(others, key=repr)) if others else own)
        if all(map(is_, options, self.options)):
            return self
        return OptionArrays(self.workload, self.topology, options)

    def with_other(self, table: int, option: TableOption) -> "OptionArrays":
        """Return arrays that have a further option of one table, given the table's place."""
        used = [frozenset[TableOption]() for _ in self.options]
        used[table] = frozenset({option})
        return self.with_others(used)

    def of_each_table(self, wanted: Mask) -> Mask:
        """Return the options that are wanted, or all of a table that would have none."""
        has = np.zeros(len(self.options), dtype=bool)
        has[self.codes.table[wanted]] = True
        some: Mask = wanted | ~has[self.codes.table]
        return some

    def of_types(self, types: Container[ShardingType]) -> Mask:
        """Return which options are of some sharding types."""
        wanted: Mask = np.array([kind in types for kind in TYPES])[self.codes.kind]
        return wanted

    @cached_property
    def is_placed(self) -> Mask:
        """Whether each option has given ranks."""
        placed = np.array([bool(table.ranks) for table in self.workload.tables])
        return placed[self.codes.table] & ~self.of_types(_EVERYWHERE)

    @cached_property
    def num_ranks(self) -> Places:
        """Number of ranks to choose for each (``TableOption.num_ranks``)."""
        given = self.is_placed | self.of_types(_EVERYWHERE)
        count: Places = np.where(given, 0, self.codes.num_column_shards)
        return count

    @cached_property
    def num_shards(self) -> Places:
        """Number of shards of each option."""
        blocks = np.array([num_row_blocks(self.topology, kind) for kind in TYPES])
        shards: Places = blocks[self.codes.kind] * self.codes.num_column_shards
        return shards

    @cached_property
    def cuts(self) -> Cuts:
        """The different shards of all options."""
        return cuts_of(self.workload, self.topology, self.codes)

    @cached_property
    def held(self) -> Array:
        """Bytes of every different shard in HBM and in host memory, shape (2, shards).

        Bytes of HBM are weighted by ``dense_part_ratio``, to be compared with the room of ranks.
        """
        shards = self.cuts.shards
        sizes = shard_bytes(
            factors_of(self.workload, self.topology, self.cuts, shards.cache_load_factor),
            shards.num_rows,
            shards.num_columns,
            shards.id_share,
        )
        ratio = dense_part_ratio(self.workload, self.topology)
        in_hbm = sizes.total
        if ratio != 1.0:
            in_hbm = np.maximum(in_hbm, (in_hbm - sizes.stashed) * ratio)
        return np.array([in_hbm, sizes.host])

    def block_bytes(self, option: int) -> list[tuple[HeldBytes, int]]:
        """Return (bytes, number) of the different shards of an option's column block, in order."""
        cut = self.cuts.of_option[option]
        own = slice(*self.cuts.first[cut : cut + 2].tolist())
        held, copies = self.held[:, own].T.tolist(), self.cuts.copies[own].tolist()
        return [(HeldBytes(*each), count) for each, count in zip(held, copies, strict=True)]

    @cached_property
    def total_bytes(self) -> Array:
        """HBM of all shards of each."""
        return self.over_shards(self.held[0])

    @cached_property
    def host_bytes(self) -> Array:
        """Host memory of all shards of each."""
        return self.over_shards(self.held[1])

    def over_shards(self, sizes: Array) -> Array:
        """Return a quantity of different shards summed over each option's shards, (options,)."""
        cuts = self.cuts
        block = np.add.reduceat(sizes * cuts.copies, cuts.first[:-1])
        total: Array = block[cuts.of_option] * self.codes.num_column_shards
        return total

    @cached_property
    def largest_bytes(self) -> Array:
        """HBM of the largest shard of each."""
        largest = np.maximum.reduceat(self.held[0], self.cuts.first[:-1])
        each: Array = largest[self.cuts.of_option]
        return each

    @cached_property
    def loads(self) -> ShardLoads:
        """Loads that every different shard adds to its rank."""
        return shard_loads(self.workload, self.topology, self.cuts.shards)

    @cached_property
    def shard_load(self) -> Array:
        """Seconds of lookup and exchange that every option's largest shard adds to its rank.

        By ``costmodel.step.shard_times``; the rows of a cache that come apart do not count.
        """
        cuts, codes = self.cuts, self.codes
        timer = ShardTimer(self.workload, self.topology)
        first = cuts.first[:-1]
        lookups = timer.lookups(self.loads.traffic[first], cuts.shards.is_weighted[first])
        exchanges = timer.exchanges
        per_column = np.array([exchanges.get(kind, ColumnTimes()).both for kind in TYPES])
        load = lookups[cuts.of_option]
        load += self.loads.columns[first][cuts.of_option] * per_column[codes.kind]
        replicated = np.flatnonzero(codes.kind == KINDS[ShardingType.DATA_PARALLEL])
        load[replicated] += timer.replicas.total[codes.table[replicated]]
        return load

    @cached_property
    def total_load(self) -> Array:
        """Seconds of lookup and exchange over all shards and ranks."""
        return self.shard_load * self.num_shards

    @cached_property
    def balanced_load(self) -> Seconds:
        """Load of a rank if every table had its cheapest option, and balance were perfect."""
        cheapest = np.minimum.reduceat(self.total_load, self.begins[:-1])
        return float(sum(cheapest.tolist())) / self.topology.world_size


def _numbers(option: TableOption) -> tuple[float, ...]:
    """Return type, kernel, column blocks and cache of an option; NaN: the table's own cache."""
    cached = option.cache_load_factor
    return (
        KINDS[option.sharding_type],
        KERNELS[option.compute_kernel],
        option.num_column_shards,
        np.nan if cached is None else cached,
    )
