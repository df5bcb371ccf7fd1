"""NVIDIA's planner of its MLPerf DLRM-DCNv2 submissions, which chooses by its own cost.

Written anew from what the public code does (mlcommons/training_results_v5.1@441d65f,
NVIDIA/benchmarks/dlrm_dcnv2/implementations/hugectr: sharding, train.py and the configurations; the
same since v3.0 but for replicated tables). ``hugectr`` takes the fastest of many plans by the
simulated step; these sharders take one that never saw a step, as NVIDIA's planner does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log2
from random import Random

import numpy as np

from costmodel.base.units import GB, Bytes
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.baselines.hugectr import MEMORY_OVER_LINK_WORK, ROUNDS
from sharders.problem.first_fit import Loads, least_loaded
from sharders.problem.options import TableOption
from sharders.problem.placement import place_or_pack
from sharders.problem.sharding_problem import (
    Budget,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

REPLICATED_BELOW: dict[bool, Bytes] = {False: 0.008 * GB, True: 0.0125 * GB}
"""``DP_SHARDING_THRESHOLD``: tables of fewer bytes, with their optimizer's state, are on all ranks;
on one node (config_GB200_2x4x6912.sh of v5.1, config_DGXH200_1x8x6912.sh of v4.0) and on several
(config_DGXH100_8x8x2112.sh of v3.1, config_DGXH100_16x8x1056.sh of v4.0)."""
WHOLE_AND_CUT = {
    False: (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE),
    True: (ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD),
}
"""What stands for rows on one place, and on some, of GPUs and of nodes."""


@dataclass(frozen=True, slots=True)
class HugeCtrAuto:
    """NVIDIA's ``auto``: rows of a table over as many GPUs as its lookups need.

    Every round puts the shards of all tables, those with most lookups first, on the GPUs that cost
    least so far and have room; then the table whose shards look up most has its rows over twice as
    many GPUs, up to all. Of twenty rounds, and the plan with the rows of all tables everywhere,
    that counts whose costliest GPU costs least: lookups, and for every shard what it sends,
    weighed by how much faster memory is than links. Small tables are replicated.

    TorchRec has no rows over some of the GPUs: there, as many blocks of columns stand for them,
    which hold and look up as much, and send less; or, of tables too narrow, rows over all. The rest
    is placed as above, by the problem's memory. Ignores the seed.
    """

    memory_over_link: float | None = None
    """``mem_comm_bw_ratio``; None: of the problem's machine."""
    replicated_below: Bytes | None = None
    """``dp_sharding_threshold``, in bytes; None: ``REPLICATED_BELOW``."""
    by_nodes: bool = False

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the one plan."""
        del rng
        places = self.places(problem)
        plan = _plan(problem, places, num_splits(places, budget))
        step_time = problem.objective.step_time(plan)
        return SearchResult(
            plan=plan, step_time=step_time, status=SearchStatus.CONVERGED, evaluated=1
        )

    def places(self, problem: ShardingProblem) -> "SplitPlaces":
        """Return what NVIDIA's planner knows of a problem."""
        topology, tables = problem.topology, problem.workload.tables
        hardware, on_several = topology.hardware, topology.num_nodes > 1
        link = hardware.inter_node if on_several else hardware.intra_node
        ratio = self.memory_over_link or hardware.gpu.memory_bandwidth / link.bandwidth
        below = self.replicated_below
        sizes = [_held(problem.workload, table) for table in tables]
        replicated = [
            size < (REPLICATED_BELOW[on_several] if below is None else below)
            and any(map(_is_replicated, problem.options[table.name]))
            for size, table in zip(sizes, tables, strict=True)
        ]
        apart = sum(size for size, alone in zip(sizes, replicated, strict=True) if alone)
        of_nodes = self.by_nodes and on_several
        return SplitPlaces(
            of_nodes=of_nodes,
            num_places=topology.num_nodes if of_nodes else topology.world_size,
            room=(min(problem.rooms) - apart) * (topology.local_world_size if of_nodes else 1),
            lookups=[table.pooling_factor * table.embedding_dim for table in tables],
            sent=[ratio / MEMORY_OVER_LINK_WORK * table.embedding_dim for table in tables],
            sizes=sizes,
            replicated=replicated,
        )


@dataclass(frozen=True, slots=True)
class HugeCtrHierAuto(HugeCtrAuto):
    """NVIDIA's ``hier_auto``: as ``HugeCtrAuto``, but of nodes, each with rows on all of its GPUs.

    Rows over some of the nodes are as many blocks of columns over them (``grid_shard``). On one
    node, where NVIDIA's refuses, it is ``auto``. Ignores the seed.
    """

    by_nodes: bool = True


@dataclass(frozen=True, slots=True)
class SplitPlaces:
    """GPUs or nodes, what a table costs them and takes of them."""

    of_nodes: bool
    num_places: int
    room: Bytes
    """Bytes that a place has for tables."""
    lookups: Sequence[float]
    """Elements looked up per sample, by table."""
    sent: Sequence[float]
    """What a shard sends, in elements looked up, by table."""
    sizes: Sequence[Bytes]
    """Bytes of whole tables, with the optimizer's state."""
    replicated: Sequence[bool]

    def shard_cost(self, table: int, count: int) -> float:
        """Return the cost of one of so many shards of a table; 0 of them: it is replicated."""
        return self.lookups[table] / count + self.sent[table] if count else 0.0

    def costliest(self, counts: Sequence[int]) -> tuple[float, int | None]:
        """Place all shards; return what the costliest place has, or the table without room."""
        cost, free = np.zeros(self.num_places), np.full(self.num_places, float(self.room))
        for table in self.by_lookups(counts):
            size = self.sizes[table] / counts[table]
            order = np.argsort(cost, kind="stable")
            places = order[free[order] >= size][: counts[table]]
            if len(places) < counts[table]:
                return inf, table
            cost[places] += self.shard_cost(table, counts[table])
            free[places] -= size
        return float(cost.max()), None

    def by_lookups(self, counts: Sequence[int]) -> list[int]:
        """Return the tables that are not replicated, those whose shards look up most first."""
        split = [table for table, count in enumerate(counts) if count]
        return sorted(split, key=lambda table: -self.lookups[table] / counts[table])


def num_splits(places: SplitPlaces, budget: Budget) -> list[int]:
    """Return over how many GPUs (or nodes) each table has its rows; 0: it is replicated."""
    counts = [0 if alone else 1 for alone in places.replicated]
    best = [0 if alone else places.num_places for alone in places.replicated]
    lowest = sum(places.shard_cost(table, count) for table, count in enumerate(best))
    for done in range(ROUNDS):
        if budget.spent(done):
            break
        cost, refused = places.costliest(counts)
        if cost < lowest:
            lowest, best = cost, list(counts)
        tables = places.by_lookups(counts) if refused is None else [refused]
        wanted = next((each for each in tables if 2 * counts[each] <= places.num_places), None)
        if wanted is None:
            break
        counts[wanted] *= 2
    return best


def _held(workload: Workload, table: EmbeddingTable) -> Bytes:
    """Return the bytes of a whole table and of its optimizer's state."""
    state = workload.optimizer_of(table).state_bytes_per_row(table.embedding_dim)
    return table.weight_bytes + table.num_embeddings * state


def _plan(problem: ShardingProblem, places: SplitPlaces, counts: Sequence[int]) -> ShardingPlan:
    """Return the plan with tables split as nearly so as TorchRec can, costliest shards first."""
    costs = [places.shard_cost(number, count) for number, count in enumerate(counts)]
    tables = problem.workload.tables

    def choices(index: int) -> Iterator[tuple[TableOption, Loads]]:
        nearest = partial(_farness, places, counts[index])
        for option in sorted(problem.options[tables[index].name], key=nearest):
            yield option, partial(_even, costs[index])

    order = sorted(range(len(counts)), key=lambda index: -costs[index])
    return place_or_pack(problem, order, choices, least_loaded)


def _farness(places: SplitPlaces, count: int, option: TableOption) -> tuple[bool, bool, float, int]:
    """Return how unlike rows over so many places an option is, as a key to sort by.

    Host memory comes last, then types that are not NVIDIA's; of equally many shards too few and
    too many, the many.
    """
    kind, blocks = option.sharding_type, option.num_column_shards
    hosted = option.compute_kernel.value.startswith("fused_uvm")
    if not count or _is_replicated(option):
        return hosted, bool(count) or not _is_replicated(option), 0.0, blocks
    whole, cut = WHOLE_AND_CUT[places.of_nodes]
    over = places.num_places if kind is ShardingType.ROW_WISE else blocks
    usual = kind in {ShardingType.ROW_WISE, whole if blocks == 1 else cut}
    return hosted, not usual, abs(log2(over / count)), -over


def _is_replicated(option: TableOption) -> bool:
    return option.sharding_type is ShardingType.DATA_PARALLEL


def _even(load: float, sharding: TableSharding) -> list[float]:
    """Return the same load for every shard."""
    return [load] * len(sharding.shards)
