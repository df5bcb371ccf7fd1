"""An objective for tests of what does not depend on the step: loads alone."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import usable_bytes
from costmodel.memory.storage import RESERVE_SHARE
from planner.examples import example_hardware
from sharders.problem.sharding_problem import ShardingProblem


@dataclass(frozen=True, slots=True)
class LoadObjective:
    """A stand-in for the step time: columns looked up on the most loaded rank, at 1 TB/s."""

    workload: Workload

    def step_time(self, plan: ShardingPlan) -> Seconds:
        """Return the time of the most loaded rank."""
        load = [0.0] * plan.world_size
        for sharding in plan.tables:
            table = self.workload.table(sharding.table)
            replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
            samples = self.workload.local_batch_size * (1 if replicated else plan.world_size)
            per_element = samples * table.pooling_factor * 4 / 1e12 / table.num_embeddings
            for shard in sharding.shards:
                load[shard.rank] += per_element * shard.num_rows * shard.num_columns
        return max(load)


def with_room(workload: Workload, topology: Topology, room: float) -> ShardingProblem:
    """Return a problem whose ranks have so many bytes for tables."""
    missing = (room - usable_bytes(workload, topology)) / (1 - RESERVE_SHARE)
    hardware = example_hardware(topology.hardware.gpu.memory_bytes + missing)
    return ShardingProblem.of(
        workload, replace(topology, hardware=hardware), objective=LoadObjective(workload)
    )


def with_tables(problem: ShardingProblem, tables: Iterable[EmbeddingTable]) -> ShardingProblem:
    """Return a problem on the same ranks, of other tables."""
    workload = replace(problem.workload, tables=tuple(tables))
    return ShardingProblem.of(workload, problem.topology, objective=LoadObjective(workload))
