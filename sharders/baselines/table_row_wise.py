"""Rows within nodes everywhere: the plan that EMBark is compared with (Liu et al., RecSys 2024).

References
----------
NVIDIA-Merlin/HugeCTR: benchmarks/embedding_collection/hugectr/sharding/generate_plan.py
(``table_row_wise``: tables in turn over the nodes, each with rows on all GPUs of its node).

"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from costmodel.domain.plan import ShardingType, TableSharding
from sharders.problem.first_fit import Loads, Occupancy, Ranks
from sharders.problem.options import TableOption
from sharders.problem.placement import place_or_pack
from sharders.problem.sharding_problem import (
    Budget,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

ROWS_WITHIN = (ShardingType.TABLE_ROW_WISE, ShardingType.ROW_WISE)
"""The types of the plan; on one node all ranks are those of the node."""


@dataclass(frozen=True, slots=True)
class TableRowWise:
    """Tables in turn over the nodes, as the workload lists them, rows over all GPUs of the node.

    A node without room is passed over. Tables that may not be so have their rows on all ranks, or
    else any other type. Ignores the seed.
    """

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the one plan."""
        del budget, rng
        topology, tables = problem.topology, problem.workload.tables
        ranks = np.arange(topology.world_size)

        def in_turn(index: int, occupancy: Occupancy) -> Ranks:
            del occupancy
            return np.roll(ranks, -(index % topology.num_nodes) * topology.local_world_size)

        def choices(index: int) -> Iterator[tuple[TableOption, Loads]]:
            options = problem.options[tables[index].name]
            return ((option, _none) for option in sorted(options, key=_preference))

        plan = place_or_pack(problem, range(len(tables)), choices, in_turn)
        step_time = problem.objective.step_time(plan)
        return SearchResult(
            plan=plan, step_time=step_time, status=SearchStatus.CONVERGED, evaluated=1
        )


def _preference(option: TableOption) -> tuple[bool, int, int]:
    kind = option.sharding_type
    place = ROWS_WITHIN.index(kind) if kind in ROWS_WITHIN else len(ROWS_WITHIN)
    return option.compute_kernel.value.startswith("fused_uvm"), place, option.num_column_shards


def _none(sharding: TableSharding) -> Sequence[float]:
    """Return no load: ranks are taken in turn."""
    return [0.0] * len(sharding.shards)
