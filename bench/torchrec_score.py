"""What TorchRec itself makes of a workload: its planner's plan, and its rating of any plan."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.torchrec.plan_conversion import from_torchrec
from planner.validation.trained_model import build_model, table_locations
from planner.validation.trainer import AnySharder

_SPLIT = {ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID_SHARD}


def torchrec_plan(workload: Workload, topology: Topology) -> ShardingPlan:
    """Return the plan that TorchRec's planner makes for this machine, as its users call it.

    On a CPU its sharder offers data_parallel, table_wise, column_wise and table_column_wise; it is
    told the tables' pooling factors.
    """
    model = build_model(workload)
    locations = table_locations(model, workload)
    constraints = {
        locations[table.name].table: ParameterConstraints(pooling_factors=_pooling_factors(table))
        for table in workload.tables
    }
    with _quiet():
        planner = EmbeddingShardingPlanner(
            topology=_topology(topology),
            batch_size=workload.local_batch_size,
            constraints=constraints,
        )
        made = planner.plan(model, [EmbeddingBagCollectionSharder()])
    return from_torchrec(made, locations, workload, topology)


def torchrec_score(workload: Workload, topology: Topology, plan: ShardingPlan) -> float:
    """Return how TorchRec rates a plan: the busiest rank's sum of its shards' costs (seconds)."""
    model = build_model(workload)
    locations = table_locations(model, workload)
    constraints = {
        locations[each.table].table: _as_planned(workload.table(each.table), each)
        for each in plan.tables
    }
    with _quiet():
        enumerator = EmbeddingEnumerator(
            topology=_topology(topology),
            batch_size=workload.local_batch_size,
            constraints=constraints,
        )
        found = {each.name: each for each in enumerator.enumerate(model, [AnySharder()])}
        for sharding in plan.tables:
            option = found[locations[sharding.table].table]
            for shard, ours in zip(option.shards, sharding.shards, strict=True):
                shard.rank = ours.rank
        rating: float = NoopPerfModel(_topology(topology)).rate(list(found.values()))
    return rating / 1e3


def _as_planned(table: EmbeddingTable, sharding: TableSharding) -> ParameterConstraints:
    """Return constraints that leave one option: a table's sharding in the plan."""
    narrow = {"min_partition": sharding.shards[0].num_columns}
    return ParameterConstraints(
        sharding_types=[sharding.sharding_type.value],
        compute_kernels=[sharding.compute_kernel.value],
        pooling_factors=_pooling_factors(table),
        **(narrow if sharding.sharding_type in _SPLIT else {}),
    )


def _pooling_factors(table: EmbeddingTable) -> list[float]:
    return [table.pooling_factor / table.num_features] * table.num_features


def _topology(topology: Topology) -> TorchRecTopology:
    return TorchRecTopology(
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
        compute_device="cpu",
        ddr_cap=int(topology.hardware.gpu.memory_bytes),
        created_by_factory=True,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def torchrec_scores(
    workload: Workload, topology: Topology, plans: Mapping[str, ShardingPlan]
) -> dict[str, float]:
    """Return TorchRec's rating of every plan."""
    return {name: torchrec_score(workload, topology, plan) for name, plan in plans.items()}
