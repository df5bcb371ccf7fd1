"""Predicted memory and time of a plan as estimates of TorchRec's sharding options.

TorchRec adds up what its options say of their shards: memory and time of a rank, and as critical
path the largest of the ranks' lookups, and of the communication of each module and sharding type.
So a rank's prediction is shared out among its shards, and the sums are its own: memory by their
elements, lookups by the elements that are read, exchanges by the outputs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod

from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from costmodel.base.arrays import Array
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import RankMemory, memory_per_rank
from costmodel.step.operation_timeline import plan_timeline
from planner.torchrec.rank_times import rank_times
from planner.torchrec.solving import Solution


def predicted_options(
    options: Sequence[ShardingOption], solution: Solution
) -> list[ShardingOption]:
    """Return a plan's options with the predicted memory and time instead of TorchRec's estimates.

    Options of tables that the cost model does not know stay as they are. Memory is all of a rank's:
    dense part, inputs and activations included. Time is of the embeddings, nothing overlapped.
    """
    names = {(each.module, each.table): name for name, each in solution.locations.items()}
    tables = {
        id(option): solution.workload.table(names[place])
        for option in options
        if (place := (option.path, option.name)) in names
    }
    ours = [option for option in options if id(option) in tables]
    shares = tuple(_Shares(ours, tables, weight) for weight in (_held, _read, _sent))
    memory = memory_per_rank(solution.workload, solution.topology, solution.plan)
    times = rank_times(plan_timeline(solution.workload, solution.topology, solution.plan))
    return [
        _predicted(option, shares, memory, times) if id(option) in tables else option
        for option in options
    ]


def _held(table: EmbeddingTable, shard: Shard) -> float:
    """Return a shard's elements; a shard of no rows has one, as its rank has to share."""
    del table
    return float(max(1, prod(shard.size)))


def _read(table: EmbeddingTable, shard: Shard) -> float:
    """Return the elements that are read of a shard for a sample."""
    rows = float(max(1, shard.size[0])) / table.num_embeddings
    return table.pooling_factor * rows * float(shard.size[1])


def _sent(table: EmbeddingTable, shard: Shard) -> float:
    """Return the elements that a shard's outputs have for a sample."""
    return table.output_rows_per_sample * float(shard.size[1])


class _Shares:
    """How what a rank has is shared out among its shards, by some weight of each."""

    def __init__(
        self,
        options: Sequence[ShardingOption],
        tables: Mapping[int, EmbeddingTable],
        weight: Callable[[EmbeddingTable, Shard], float],
    ) -> None:
        self._tables, self._of_table = tables, weight
        self._of_rank: dict[int, float] = defaultdict(float)
        self._of_group: dict[tuple[str, str, int], float] = defaultdict(float)
        self._groups: dict[tuple[str, str], float] = defaultdict(float)
        for option in options:
            for shard in option.shards:
                own = self._weight(option, shard)
                self._of_rank[shard.rank] += own
                self._of_group[*_group(option), shard.rank] += own
                self._groups[_group(option)] += own

    def _weight(self, option: ShardingOption, shard: Shard) -> float:
        return self._of_table(self._tables[id(option)], shard)

    def of_rank(self, option: ShardingOption, shard: Shard) -> float:
        """Return a shard's share of what its rank has."""
        return self._weight(option, shard) / self._of_rank[shard.rank]

    def of_group(self, option: ShardingOption, shard: Shard) -> float:
        """Return a shard's share of what its rank has, where groups have the same on all ranks.

        A group is a module and a sharding type, of which TorchRec adds up the largest.
        """
        group = _group(option)
        whole = self._groups[group] / sum(self._groups.values())
        return whole * self._weight(option, shard) / self._of_group[*group, shard.rank]


def _group(option: ShardingOption) -> tuple[str, str]:
    return option.path, option.sharding_type


def _predicted(
    option: ShardingOption,
    shares: Sequence[_Shares],
    memory: Sequence[RankMemory],
    times: Mapping[str, Array],
) -> ShardingOption:
    """Return a copy of an option with the predictions for its shards."""
    held, read, sent = shares
    made = copy(option)
    made.shards = []
    for shard in option.shards:
        rank, kept = shard.rank, held.of_rank(option, shard)
        looked_up, exchanged = read.of_rank(option, shard), sent.of_group(option, shard)
        own = {
            name: float(ms[rank]) * (looked_up if name.endswith("compute") else exchanged)
            for name, ms in times.items()
        }
        hbm, ddr = memory[rank].total * kept, memory[rank].host * kept
        storage = Storage(hbm=round(hbm), ddr=round(ddr))
        made.shards.append(
            Shard(
                size=shard.size, offset=shard.offset, rank=rank, storage=storage, perf=Perf(**own)
            )
        )
    return made
