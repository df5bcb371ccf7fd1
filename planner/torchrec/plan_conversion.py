"""Sharding plans between our terms and TorchRec's, lossless in both directions.

It needs torch and torchrec.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from torchrec.distributed.sharding_plan import placement
from torchrec.distributed.types import (
    CacheParams,
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardMetadata,
)
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import (
    ComputeKernel,
    Shard,
    ShardingPlan,
    ShardingType,
    Shards,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import EmbeddingTable, Pipeline, Workload

PASSED_ON = (
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "output_dtype",
    "key_value_params",
)
"""Fields of ``ParameterConstraints`` that are copied to ``ParameterSharding``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLocation:
    """Where in a model a table lives."""

    module: str
    """Path of the module; empty for the root."""
    table: str
    """The table's name in that module."""

    def is_in(self, plan: TorchRecPlan) -> bool:
        """Return whether a plan has the table."""
        return self.table in plan.plan.get(self.module, {})


def to_torchrec(
    plan: ShardingPlan,
    locations: Mapping[str, TableLocation],
    *,
    compute_device: str = "cuda",
    local_world_size: int | None = None,
    constraints: Mapping[str, Any] | None = None,
    workload: Workload | None = None,
) -> TorchRecPlan:
    """Return the plan in the form that ``DistributedModelParallel`` takes.

    Parameters
    ----------
    plan
        A valid plan.
    locations
        Where each of its tables lives.
    compute_device
        ``cuda`` or ``cpu``: part of every shard's placement.
    local_world_size
        GPUs of a host, where the plan's nodes are domains of several hosts.
    constraints
        ``ParameterConstraints`` by table: cache parameters, rounding, bounds checks and output
        types are passed on to the table's sharding.
    workload
        What is planned: its tables say how much they cache where neither the plan nor a constraint
        does.

    """
    own = {table.name: table.cache_load_factor for table in (workload.tables if workload else ())}
    modules: dict[str, EmbeddingModuleShardingPlan] = {}
    for sharding in plan.tables:
        location = locations[sharding.table]
        module = modules.setdefault(location.module, EmbeddingModuleShardingPlan())
        given = constraints or {}
        constraint = given.get(sharding.table, given.get(location.table))
        module[location.table] = _to_parameter(
            sharding,
            compute_device,
            local_world_size or plan.local_world_size,
            constraint,
            own.get(sharding.table),
        )
    return TorchRecPlan(plan=modules)


def from_torchrec(
    plan: TorchRecPlan,
    locations: Mapping[str, TableLocation],
    workload: Workload,
    topology: Topology,
) -> ShardingPlan:
    """Return a TorchRec plan in our terms, tables in the workload's order.

    Parameters
    ----------
    plan
        Of TorchRec.
    locations
        Where each of the workload's tables lives.
    workload, topology
        What is planned, and over what; TorchRec's plan knows neither a replicated table's size
        nor the number of ranks.

    Raises
    ------
    PlanMismatchError
        The plan lacks a table, or uses a sharding type or kernel that has no name here.

    """
    return ShardingPlan(
        tables=tuple(
            _from_parameter(_parameter(plan, locations[table.name]), table, topology)
            for table in workload.tables
        ),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )


def _to_parameter(
    sharding: TableSharding,
    device: str,
    local_world_size: int,
    constraint: object,
    own_share: float | None,
) -> ParameterSharding:
    """Return TorchRec's form of how a table is sharded, with its caches' settings."""
    spec = None
    if sharding.sharding_type is not ShardingType.DATA_PARALLEL:
        spec = EnumerableShardingSpec([
            ShardMetadata(
                shard_sizes=[shard.num_rows, shard.num_columns],
                shard_offsets=[shard.row_offset, shard.column_offset],
                placement=placement(device, shard.rank, local_world_size),
            )
            for shard in sharding.shards
        ])
    return ParameterSharding(
        sharding_type=sharding.sharding_type.value,
        compute_kernel=sharding.compute_kernel.value,
        ranks=list(sharding.ranks),
        sharding_spec=spec,
        cache_params=_cache_params(sharding, constraint, own_share),
        **{name: getattr(constraint, name, None) for name in PASSED_ON},
    )


def _cache_params(
    sharding: TableSharding, constraint: object, own_share: float | None
) -> CacheParams | None:
    """Return the constraint's cache parameters, with the plan's share of cached rows.

    The plan's own share comes first, then the constraint's, then the table's.
    """
    given = getattr(constraint, "cache_params", None)
    share = sharding.cache_load_factor
    cached = sharding.compute_kernel is ComputeKernel.FUSED_UVM_CACHING
    if share is None and cached and getattr(given, "load_factor", None) is None:
        share = own_share
    if share is None:
        return given
    params = copy(given) if given is not None else CacheParams()
    params.load_factor = share
    return params


def let_prefetch(plan: TorchRecPlan, pipeline: Pipeline) -> TorchRecPlan:
    """Set the plan's UVM caches to be filled ahead, if the pipeline does so.

    FBGEMM locks the rows of batches in flight only where a table's ``prefetch_pipeline`` says that
    there are two. A constraint's setting stays.
    """
    if pipeline is Pipeline.PREFETCH:
        for module in plan.plan.values():
            for parameter in module.values():
                params = parameter.cache_params or CacheParams()
                cached = parameter.compute_kernel == ComputeKernel.FUSED_UVM_CACHING.value
                if cached and params.prefetch_pipeline is None:
                    parameter.cache_params = replace(params, prefetch_pipeline=True)
    return plan


def _parameter(plan: TorchRecPlan, location: TableLocation) -> ParameterSharding:
    module = plan.plan.get(location.module)
    if module is None or location.table not in module:
        raise PlanMismatchError(
            f"the TorchRec plan has no table `{location.table}` in module `{location.module}`"
        )
    return module[location.table]


def _from_parameter(
    parameter: ParameterSharding, table: EmbeddingTable, topology: Topology
) -> TableSharding:
    try:
        kind = ShardingType(parameter.sharding_type)
        kernel = ComputeKernel(parameter.compute_kernel)
    except ValueError as error:
        raise PlanMismatchError(f"table `{table.name}`: {error}".replace("'", "`")) from None
    cache = parameter.cache_params
    return TableSharding(
        table=table.name,
        sharding_type=kind,
        compute_kernel=kernel,
        shards=_shards(parameter, kind, table, topology),
        cache_load_factor=None if cache is None else cache.load_factor,
    )


def _shards(
    parameter: ParameterSharding, kind: ShardingType, table: EmbeddingTable, topology: Topology
) -> Shards:
    if parameter.sharding_spec is None:
        if kind is not ShardingType.DATA_PARALLEL:
            return ()
        return make_shards(
            kind,
            table.num_embeddings,
            table.embedding_dim,
            ranks=(),
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
        )
    return tuple(
        Shard(
            rank=shard.placement.rank(),
            row_offset=shard.shard_offsets[0],
            num_rows=shard.shard_sizes[0],
            column_offset=shard.shard_offsets[1],
            num_columns=shard.shard_sizes[1],
        )
        for shard in parameter.sharding_spec.shards
    )
