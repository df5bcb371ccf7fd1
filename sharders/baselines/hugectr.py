"""HugeCTR's planner in spirit: split the costliest table repeatedly, placing by load each time.

It minimises traffic of memory and links, weighed against each other, and never the simulated step;
it is here to be compared with.

References
----------
NVIDIA-Merlin/HugeCTR: benchmarks/embedding_collection/hugectr/sharding (planner.py and
generate_plan.py: ``auto`` and ``hier_auto``, splits by columns, the cost of tables that differ in
width; train.py: what the options are by default), samples/dlrm (replicated tables; the script of
NVIDIA's MLPerf DLRM-DCNv2 submissions, on one node with ``auto``, on several with ``hier_auto``).

"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from random import Random
from typing import TypeAlias

from costmodel.base.units import MB, Bytes, Seconds
from costmodel.domain.blocks import num_row_blocks
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from sharders.problem.first_fit import Loads, OutOfRoomError, least_loaded, place
from sharders.problem.option_costs import OptionCost
from sharders.problem.options import TableOption
from sharders.problem.placement import place_or_pack
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

MEMORY_OVER_LINK_WORK = 8 / 2
"""``mem_comm_work_ratio``: bytes of memory per element looked up, over those sent."""
WITHIN_NODE_FACTOR = 3 / 2
"""Factor on the cost of exchanges of tables within nodes, for NVLink's part of them."""
REPLICATED_BELOW: Sequence[Bytes] = (0, 8 * MB)
"""``dp_sharding_threshold``, in bytes: smaller tables are on all ranks. By default 0, and that of
config_DGXH100_1x8x6912.sh."""
NARROWEST = 32
"""Columns at which a table is not split any more."""
ROUNDS = 20
"""``max_search_iter``: how often a table is split."""
FLAT = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.ROW_WISE)
WITHIN_NODES = (ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD, ShardingType.ROW_WISE)
COPIES = (ShardingType.DATA_PARALLEL,)
_Ladder: TypeAlias = Sequence[OptionCost]
"""A table's options from whole to split the most."""


@dataclass(frozen=True, slots=True)
class HugeCtrLike:
    """The fastest of the plans that HugeCTR's search goes through, by ranks and by nodes.

    A table is whole on a rank (on a node: its rows over the node's ranks), or in 2, 4, ... blocks
    of columns, or has its rows on all ranks; HugeCTR's rows on some ranks are of no type of
    TorchRec's. Every round places all tables by decreasing cost on the ranks that cost least so
    far and have room, then splits the costliest table; one that finds no room is split, too. The
    first plan has the rows of all tables on all ranks.

    HugeCTR takes the round whose costliest rank costs least. Here the simulated step decides: in
    TorchRec every sharding type in use brings collectives of its own, which HugeCTR's one exchange
    for all shards does not. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the fastest plan of all rounds, or of those within the budget."""
        del rng
        found: tuple[Seconds, ShardingPlan] | None = None
        evaluated, status = 0, SearchStatus.CONVERGED
        for plan in _plans(problem):
            if found is not None and budget.spent(evaluated):
                status = SearchStatus.LIMIT
                break
            step_time = problem.objective.step_time(plan)
            evaluated += 1
            if found is None or step_time < found[0]:
                found = step_time, plan
                budget.report(Progress(evaluated=evaluated, best=step_time))
        best, plan = found or _anyhow(problem)
        return SearchResult(plan=plan, step_time=best, status=status, evaluated=max(1, evaluated))


def _plans(problem: ShardingProblem) -> Iterator[ShardingPlan]:
    """Yield the plans of all rounds that find room."""
    modes = (FLAT, WITHIN_NODES) if problem.topology.num_nodes > 1 else (FLAT,)
    for least, kinds in product(REPLICATED_BELOW, modes):
        yield from _rounds(problem, _ladders(problem, kinds, least))


def _anyhow(problem: ShardingProblem) -> tuple[Seconds, ShardingPlan]:
    """Return a plan that fits and its step time, if no round found room.

    Raises
    ------
    InfeasibleError
        Tables do not fit, split the most, and no packing is found either.

    """
    finest = [ladder[::-1] for ladder in _ladders(problem, FLAT, 0)]
    plan = place_or_pack(problem, range(len(finest)), partial(_choices, finest), least_loaded)
    return problem.objective.step_time(plan), plan


def shard_cost(problem: ShardingProblem, table: EmbeddingTable, option: TableOption) -> float:
    """Return HugeCTR's cost of one shard of a table: elements of memory and links per sample.

    Its lookups gather ids x columns elements, and it sends its columns, which cost as much more as
    memory is faster than the link; copies on all ranks cost nothing. Its ids are those of its rows.
    """
    if option.sharding_type is ShardingType.DATA_PARALLEL:
        return 0.0
    topology = problem.topology
    hardware, columns = topology.hardware, table.embedding_dim / option.num_column_shards
    row_blocks = num_row_blocks(topology, option.sharding_type)
    link = hardware.inter_node if topology.num_nodes > 1 else hardware.intra_node
    sent = columns * hardware.gpu.memory_bandwidth / link.bandwidth
    if option.sharding_type.within_node:
        sent *= WITHIN_NODE_FACTOR / topology.local_world_size
    return MEMORY_OVER_LINK_WORK * table.pooling_factor / row_blocks * columns + sent


def _ladders(
    problem: ShardingProblem, kinds: Sequence[ShardingType], least: Bytes
) -> list[_Ladder]:
    return [
        _ladder(problem, table, COPIES if table.weight_bytes < least else kinds)
        for table in problem.workload.tables
    ]


def _ladder(
    problem: ShardingProblem, table: EmbeddingTable, kinds: Sequence[ShardingType]
) -> list[OptionCost]:
    """Return the options of a table from whole to split the most; others if it has none of these.

    Host memory is for tables that have nothing else: HugeCTR's planner knows none.
    """
    every = problem.options[table.name]
    in_hbm = [each for each in every if not each.compute_kernel.value.startswith("fused_uvm")]
    usual = [each for each in in_hbm if each.sharding_type in kinds and _is_wide(table, each)]
    costs = []
    for option in usual or in_hbm or every:
        cost, shards = shard_cost(problem, table, option), option.num_shards(problem.topology)
        costs.append(OptionCost(option=option, shard_load=cost, total_load=cost * shards))
    return sorted(costs, key=lambda cost: cost.option.num_shards(problem.topology))


def _is_wide(table: EmbeddingTable, option: TableOption) -> bool:
    """Return whether an option halves columns without splitting narrow ones."""
    blocks = option.num_column_shards
    return blocks == 1 or (
        blocks.bit_count() == 1 and 2 * table.embedding_dim // blocks > NARROWEST
    )


def _rounds(problem: ShardingProblem, ladders: Sequence[_Ladder]) -> Iterator[ShardingPlan]:
    """Yield the plans in which tables are split ever more, those that cost most first."""
    tables = problem.workload.tables
    numbers = {table.name: number for number, table in enumerate(tables)}
    finest, at = [len(ladder) - 1 for ladder in ladders], [0] * len(ladders)
    with suppress(OutOfRoomError):
        yield _placed(problem, ladders, finest)
    for _ in range(ROUNDS):
        splittable = [number for number in range(len(at)) if at[number] < finest[number]]
        try:
            yield _placed(problem, ladders, at)
        except OutOfRoomError as refused:
            splittable = [each for each in splittable if each == numbers[refused.table.name]]
        if not splittable:
            return
        at[max(splittable, key=lambda each: ladders[each][at[each]].shard_load)] += 1


def _placed(
    problem: ShardingProblem, ladders: Sequence[_Ladder], at: Sequence[int]
) -> ShardingPlan:
    """Return a plan with tables placed by decreasing cost, each on the cheapest ranks so far."""
    chosen = [[ladder[place]] for ladder, place in zip(ladders, at, strict=True)]
    order = sorted(range(len(chosen)), key=lambda index: -chosen[index][0].shard_load)
    return place(problem.groundwork, order, partial(_choices, chosen), least_loaded)


def _choices(ladders: Sequence[_Ladder], index: int) -> Iterator[tuple[TableOption, Loads]]:
    for cost in ladders[index]:
        yield cost.option, partial(_even, cost.shard_load)


def _even(load: float, sharding: TableSharding) -> list[float]:
    """Return the same load for every shard."""
    return [load] * len(sharding.shards)
