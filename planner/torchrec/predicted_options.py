"""Predicted memory and time of a plan as estimates of TorchRec's sharding options.

TorchRec adds up what its options say of their shards: memory and time of a rank, and as critical
path the largest of the ranks' lookups, and of the communication of each module and sharding type.
So a rank's prediction is shared out among its shards, by their elements, and the sums are its own.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod

import numpy as np
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from costmodel.base.arrays import Array
from costmodel.base.units import MS
from costmodel.memory.rank_memory import RankMemory, memory_per_rank
from costmodel.step.graph import Stage
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.timeline import Timeline
from planner.torchrec.solving import Solution

_EXCHANGES = (Stage.ALL_TO_ALL, Stage.REDUCE_SCATTER, Stage.ALL_GATHER)
_BACKWARD = "gradients"
"""Last word of the name of exchanges of the backward pass."""


def predicted_options(
    options: Sequence[ShardingOption], solution: Solution
) -> list[ShardingOption]:
    """Return a plan's options with the predicted memory and time instead of TorchRec's estimates.

    Options of tables that the cost model does not know stay as they are. Memory is all of a rank's:
    dense part, inputs and activations included. Time is of the embeddings, nothing overlapped.
    """
    known = set(solution.locations.values())
    places = {(each.module, each.table) for each in known}
    ours = [option for option in options if (option.path, option.name) in places]
    shares = _shares(ours)
    memory = memory_per_rank(solution.workload, solution.topology, solution.plan)
    times = _rank_times(plan_timeline(solution.workload, solution.topology, solution.plan))
    own = {id(option) for option in ours}
    return [
        _predicted(option, shares, memory, times) if id(option) in own else option
        for option in options
    ]


class _Shares:
    """How a rank's memory and time are shared out: by the elements of its shards."""

    def __init__(self, options: Sequence[ShardingOption]) -> None:
        self._of_rank: dict[int, float] = defaultdict(float)
        self._of_group: dict[tuple[str, str, int], float] = defaultdict(float)
        self._groups: dict[tuple[str, str], float] = defaultdict(float)
        for option in options:
            for shard in option.shards:
                elements = _elements(shard)
                self._of_rank[shard.rank] += elements
                self._of_group[*_group(option), shard.rank] += elements
                self._groups[_group(option)] += elements

    def of_rank(self, shard: Shard) -> float:
        """Return a shard's share of what its rank has."""
        return _elements(shard) / self._of_rank[shard.rank]

    def of_exchanges(self, option: ShardingOption, shard: Shard) -> float:
        """Return a shard's share of its rank's exchanges.

        Each module and sharding type has the same share on all ranks, as TorchRec adds up the
        largest of each.
        """
        group = _group(option)
        of_group = self._groups[group] / sum(self._groups.values())
        return of_group * _elements(shard) / self._of_group[*group, shard.rank]


def _shares(options: Sequence[ShardingOption]) -> _Shares:
    return _Shares(options)


def _group(option: ShardingOption) -> tuple[str, str]:
    return option.path, option.sharding_type


def _elements(shard: Shard) -> float:
    """Return a shard's elements; one of no rows counts as one, so that its rank has shares."""
    return float(max(1, prod(shard.size)))


def _rank_times(timeline: Timeline) -> Mapping[str, Array]:
    """Return milliseconds of each rank by field of ``Perf``; shape (ranks,) each."""
    busy = timeline.busy_times
    none = np.zeros(timeline.graph.world_size)

    def of_stage(*stages: Stage) -> Array:
        found: Array = sum((t for (_, stage), t in busy.items() if stage in stages), none)
        return found / MS

    is_exchange: Callable[[Stage], bool] = _EXCHANGES.__contains__
    groups = [group for group in timeline.graph.groups() if is_exchange(group.first.stage)]
    back = [group for group in groups if group.first.name.endswith(_BACKWARD)]
    forth = [group for group in groups if not group.first.name.endswith(_BACKWARD)]
    return {
        "fwd_compute": of_stage(Stage.LOOKUP_FORWARD),
        "fwd_comms": timeline.work_times(forth) / MS,
        "bwd_compute": of_stage(Stage.LOOKUP_BACKWARD),
        "bwd_comms": timeline.work_times(back) / MS,
        "input_dist_comms": of_stage(Stage.INPUT_DIST),
    }


def _predicted(
    option: ShardingOption,
    shares: _Shares,
    memory: Sequence[RankMemory],
    times: Mapping[str, Array],
) -> ShardingOption:
    """Return a copy of an option with the predictions for its shards."""
    made = copy(option)
    made.shards = []
    for shard in option.shards:
        own, sent = shares.of_rank(shard), shares.of_exchanges(option, shard)
        kept = memory[shard.rank]
        made.shards.append(
            Shard(
                size=shard.size,
                offset=shard.offset,
                rank=shard.rank,
                storage=Storage(hbm=round(kept.total * own), ddr=round(kept.host * own)),
                perf=Perf(**{
                    name: float(ms[shard.rank]) * (own if name.endswith("compute") else sent)
                    for name, ms in times.items()
                }),
            )
        )
    return made
