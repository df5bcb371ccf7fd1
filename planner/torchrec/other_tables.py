"""Tables that no cost model knows: TorchRec's planner shards them before the others.

It has its own proposers and estimates. The memory that it estimates is withheld from the other
tables, and its time is a fixed cost: bytes over bandwidths (``EmbeddingPerfEstimator``), a rough
one.
"""

from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import (
    PlannerError,
    PlannerErrorType,
    ShardingOption,
    Storage,
)
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.types import EmbeddingModuleShardingPlan
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.units import MS, Bytes, Seconds
from planner.torchrec.modules import FoundTable, constraints_by_name, namesakes, only_these
from planner.torchrec.sharding_options import check_shards, chosen_options


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTables:
    """TorchRec's plan of the tables that no cost model knows, with its estimates."""

    plan: TorchRecPlan
    hbm_bytes: tuple[Bytes, ...]
    """TorchRec's estimate, by rank."""
    host_bytes: tuple[Bytes, ...]
    time: Seconds
    """TorchRec's estimate in seconds: the largest sum of shards' times on a rank."""


def plan_other_tables(
    module: nn.Module,
    sharders: Sequence[Any],
    tables: Sequence[FoundTable],
    topology: TorchRecTopology,
    fixed: TorchRecPlan,
    **settings: Any,  # noqa: ANN401 - of EmbeddingShardingPlanner
) -> OtherTables:
    """Return TorchRec's plan of these tables alone.

    Parameters
    ----------
    module, sharders
        The whole model, and all sharders.
    tables
        Those to plan.
    fixed
        Tables that it has are not planned, only counted.
    topology, settings
        What ``EmbeddingShardingPlanner`` is given.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        TorchRec finds no plan for them.

    """
    plan = only_tables(fixed, [(each.path, each.name) for each in tables])
    placed = [each for each in tables if each.name in plan.plan.get(each.path, {})]
    free = [each for each in tables if each.name not in plan.plan.get(each.path, {})]
    hbm, host, time = ([0.0] * topology.world_size for _ in range(3))

    def count(options: list[ShardingOption]) -> list[ShardingOption]:
        check_shards(options, topology)
        for shard in (shard for option in options for shard in option.shards):
            hbm[shard.rank] += float(shard.storage.hbm)
            host[shard.rank] += float(shard.storage.ddr)
            time[shard.rank] += float(shard.perf.total) * MS
        return options

    for group in _groups_by_constraint(placed):
        enumerator = EmbeddingEnumerator(
            topology, settings["batch_size"], constraints=constraints_by_name(group)
        )
        only = list(only_these(sharders, group))
        count(chosen_options(plan, module, only, enumerator, group, settings["batch_size"]))
    for group in _groups_by_constraint(free):
        planner = EmbeddingShardingPlanner(
            topology=_smaller_topology(topology, hbm, host),
            stats=[],
            debug=False,
            callbacks=[count],
            constraints=constraints_by_name(group),
            **settings,
        )
        plan = merged(plan, _planned(planner, module, list(only_these(sharders, group))))
    return OtherTables(
        plan=plan, hbm_bytes=tuple(hbm), host_bytes=tuple(host), time=max(time, default=0.0)
    )


def _planned(
    planner: EmbeddingShardingPlanner, module: nn.Module, sharders: list[Any]
) -> TorchRecPlan:
    try:
        return planner.plan(module, sharders)
    except RuntimeError as error:  # its enumerator's, where constraints leave a table nothing
        raise PlannerError(str(error), PlannerErrorType.STRICT_CONSTRAINTS) from error


def _groups_by_constraint(tables: Sequence[FoundTable]) -> Iterator[list[FoundTable]]:
    """Yield groups of tables in which no name has two constraints, as TorchRec needs."""
    left = list(tables)
    while left:
        later = list(namesakes(left))
        apart = {each.fqn for each in later}
        yield [each for each in left if each.fqn not in apart]
        left = later


def _smaller_topology(
    topology: TorchRecTopology, hbm: Sequence[Bytes], host: Sequence[Bytes]
) -> TorchRecTopology:
    """Return the topology with less memory, given the bytes to leave out by rank."""
    left = deepcopy(topology)
    for device, own, shared in zip(left.devices, hbm, host, strict=True):
        device.storage -= Storage(hbm=int(own), ddr=int(shared))
    return left


def only_tables(plan: TorchRecPlan, tables: Sequence[tuple[str, str]]) -> TorchRecPlan:
    """Return the part of a plan about some tables, given by module path and name."""
    modules: dict[str, EmbeddingModuleShardingPlan] = {}
    for path, name in tables:
        sharding = plan.plan.get(path, {}).get(name)
        if sharding is not None:
            modules.setdefault(path, EmbeddingModuleShardingPlan())[name] = sharding
    return TorchRecPlan(plan=modules)


def merged(plan: TorchRecPlan, other: TorchRecPlan) -> TorchRecPlan:
    """Return one plan with the tables of both."""
    modules = {path: copy(tables) for path, tables in plan.plan.items()}
    for path, tables in other.plan.items():
        if path in modules:
            modules[path].update(tables)
        else:
            modules[path] = tables
    return TorchRecPlan(plan=modules)
