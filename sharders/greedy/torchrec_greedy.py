"""TorchRec's planner in spirit: its cost of a shard, its walk over options, its partitioner.

What it minimises is bytes over constant bandwidths, and never the simulated step; it is here to be
compared with. TorchRec's own planner needs the live module (``EmbeddingShardingPlanner``).

References
----------
torchrec 1.9.2, distributed/planner: shard_estimators.py (``EmbeddingPerfEstimator``), proposers.py
(``GreedyProposer``), partitioners.py (``GreedyPerfPartitioner``), constants.py.

"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from costmodel.base.units import GIB, BytesPerSecond, Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from sharders.problem.option_costs import OptionCost
from sharders.problem.options import TableOption, option_of
from sharders.problem.placement import (
    Loads,
    OutOfRoomError,
    different_bytes,
    least_loaded,
    place,
    place_tables,
)
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

HBM_BANDWIDTH: BytesPerSecond = 897 * GIB
INTRA_NODE_BANDWIDTH: BytesPerSecond = 600 * GIB
INTER_NODE_BANDWIDTH: BytesPerSecond = 12.5 * GIB
HOST_BANDWIDTH: BytesPerSecond = 51 * GIB
"""Defaults of torchrec's constants.py (HBM_MEM_BW, INTRA_NODE_BANDWIDTH, CROSS_NODE_BANDWIDTH,
DDR_MEM_BW), whatever the machine."""
BACKWARD_FACTOR = 2.0
"""``BWD_COMPUTE_MULTIPLIER``."""
MIN_WIDTH = 128
"""``MIN_CW_DIM``: the narrowest column shard its enumerator makes by default."""
MOST_PROPOSALS = 1000
"""Its own limits are 10,000 proposals and a minute or so."""


@dataclass(frozen=True, slots=True)
class TorchRecGreedy:
    """Walks every table's options from the fastest on, the table with the most storage first.

    Each combination is partitioned: by decreasing storage, every shard to the rank with the least
    cost so far that has room. The combination with the smallest cost of its slowest rank wins. If
    none can be partitioned, tables are placed in the first of their options that fits, or else so
    that storage is balanced. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Propose until no table has another option, or the budget is spent."""
        del rng
        candidates = [_candidates(problem, table) for table in problem.workload.tables]
        at = [0] * len(candidates)
        storage: list[float] = []
        best: tuple[Seconds, ShardingPlan] | None = None
        proposed, status = 0, SearchStatus.CONVERGED
        while True:
            plan = _partition(
                problem, [[candidate[i]] for candidate, i in zip(candidates, at, strict=True)]
            )
            proposed += 1
            if plan is not None:
                rating = _rating(problem, candidates, plan)
                best = min(best or (rating, plan), (rating, plan), key=lambda pair: pair[0])
            elif best is None:  # at once, not at the end: it takes as long as a proposal
                best = inf, _fitting(problem, candidates)
            if budget.spent(proposed) or proposed >= MOST_PROPOSALS:
                status = SearchStatus.LIMIT
                break
            storage = storage or [_storage(problem, i, o[0]) for i, o in enumerate(candidates)]
            following = _largest_with_more(candidates, at, storage)
            if following is None:
                break
            at[following] += 1
            storage[following] = _storage(problem, following, candidates[following][at[following]])
        step_time = problem.objective.step_time(best[1])
        budget.report(Progress(evaluated=proposed, best=step_time))
        return SearchResult(plan=best[1], step_time=step_time, status=status, evaluated=proposed)


def shard_cost(problem: ShardingProblem, table: EmbeddingTable, option: TableOption) -> Seconds:
    """Return TorchRec's cost of one shard: bytes over constant bandwidths.

    (ids + rows looked up + outputs) / memory bandwidth, three times for forward and backward
    outputs / link bandwidth, once each way
    all-reduce of a replicated table / inter-node bandwidth, wherever the ranks are
    """
    workload, topology = problem.workload, problem.topology
    kind = option.sharding_type
    replicated = kind is ShardingType.DATA_PARALLEL
    samples = workload.local_batch_size * (1 if replicated else topology.world_size)
    blocks = option.num_shards(topology) // option.num_column_shards
    row_shards = blocks if kind.splits_rows else 1
    width = table.embedding_dim / option.num_column_shards
    ids = samples * table.pooling_factor / row_shards
    outputs = samples * table.output_rows_per_sample * width * workload.output_type.num_bytes
    moved = ids * (workload.index_bytes + width * table.data_type.num_bytes) + outputs
    in_host = option.compute_kernel.value.startswith("fused_uvm")
    compute = moved / (HOST_BANDWIDTH if in_host else HBM_BANDWIDTH) * (1 + BACKWARD_FACTOR)
    if topology.world_size == 1:
        return compute
    if replicated:
        return compute + table.weight_bytes / INTER_NODE_BANDWIDTH
    across = INTER_NODE_BANDWIDTH if topology.num_nodes > 1 else INTRA_NODE_BANDWIDTH
    if not kind.within_node:
        return compute + 2 * outputs / across
    inside = outputs / INTRA_NODE_BANDWIDTH
    return compute + 2 * (inside + outputs / topology.local_world_size / across)


def _candidates(problem: ShardingProblem, table: EmbeddingTable) -> list[OptionCost]:
    """Return a table's options as TorchRec enumerates them, the fastest first."""
    every = problem.options[table.name]
    usual = [
        option
        for option in every
        if (table.embedding_dim // option.num_column_shards >= MIN_WIDTH or _is_whole(option))
        and (option.sharding_type is not ShardingType.GRID_SHARD or table.sharding_types)
    ]
    costs = []
    for option in usual or every:
        cost = shard_cost(problem, table, option)
        total = cost * option.num_shards(problem.topology)
        costs.append(OptionCost(option=option, shard_load=cost, total_load=total))
    return sorted(costs, key=lambda cost: cost.total_load)


def _is_whole(option: TableOption) -> bool:
    return option.num_column_shards == 1


def _largest_with_more(
    candidates: Sequence[Sequence[OptionCost]], at: Sequence[int], storage: Sequence[float]
) -> int | None:
    """Return the table that takes most storage, of those with an option left to try."""
    left = [i for i in range(len(candidates)) if at[i] + 1 < len(candidates[i])]
    return max(left, key=storage.__getitem__, default=None)


def _storage(problem: ShardingProblem, index: int, cost: OptionCost) -> float:
    sizes = different_bytes(problem, problem.workload.tables[index], cost.option)
    return sum(size.total * count for size, count in sizes)


def _partition(
    problem: ShardingProblem, candidates: Sequence[Sequence[OptionCost]]
) -> ShardingPlan | None:
    try:
        return _first_fit(problem, candidates)
    except OutOfRoomError:
        return None


def _fitting(problem: ShardingProblem, candidates: Sequence[Sequence[OptionCost]]) -> ShardingPlan:
    """Return a plan in which tables may take any option, or else one that balances storage."""
    plan = _partition(problem, candidates)
    return plan or place_tables(problem, lambda table: table.weight_bytes, least_loaded)


def _first_fit(
    problem: ShardingProblem, candidates: Sequence[Sequence[OptionCost]]
) -> ShardingPlan:
    """Place tables by decreasing storage of their largest shard, on the ranks that cost least."""

    def largest(index: int) -> float:
        option = candidates[index][0].option
        sizes = different_bytes(problem, problem.workload.tables[index], option)
        return max(size.total for size, _ in sizes)

    def choices(index: int) -> Iterator[tuple[TableOption, Loads]]:
        for cost in candidates[index]:
            yield cost.option, _even(cost.shard_load)

    order = sorted(range(len(candidates)), key=lambda i: (-largest(i), i))
    return place(problem, order, choices, least_loaded)


def _even(load: Seconds) -> Loads:
    def loads(sharding: TableSharding) -> list[float]:
        return [load] * len(sharding.shards)

    return loads


def _rating(
    problem: ShardingProblem, candidates: Sequence[Sequence[OptionCost]], plan: ShardingPlan
) -> Seconds:
    """Return the cost of the slowest rank."""
    load = [0.0] * problem.topology.world_size
    for table, options in zip(problem.workload.tables, candidates, strict=True):
        sharding = plan.table(table.name)
        option = option_of(sharding, table)
        cost = next(each.shard_load for each in options if each.option == option)
        for rank in sharding.ranks:
            load[rank] += cost
    return max(load)
