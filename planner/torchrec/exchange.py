"""TorchRec plans as files that a training script loads with torch alone, and back into ours.

What a TorchRec plan says and our plan does not (module paths, cache parameters, rounding, bounds
checks, output types) is kept beside the plan, as plain data (``planner.files.plan_schema``). What
cannot be kept is refused, so that nothing is lost in either direction.
"""

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    ParameterSharding,
)
from torchrec.distributed.types import ShardingPlan as TorchRecPlan
from torchrec.types import DataType

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from planner.files.disk import write_bytes
from planner.torchrec.modules import full_name
from planner.torchrec.plan_conversion import TableLocation, from_torchrec, to_torchrec

DEVICE = "cuda"
_FLAGS = ("enforce_hbm", "stochastic_rounding")
_ENUMS = {"bounds_check_mode": BoundsCheckMode, "output_dtype": DataType}
_CACHE_VALUES = ("reserved_memory", "prefetch_pipeline")
_CACHE_ENUMS = {"algorithm": CacheAlgorithm, "precision": DataType}


def write_torchrec_file(path: str | Path, plan: TorchRecPlan) -> None:
    """Write a plan for ``torch.load(path, weights_only=False)``: torchrec's classes, none of ours.

    Raises
    ------
    InputError
        The file cannot be written.

    """
    content = io.BytesIO()
    torch.save(plan, content)
    write_bytes(path, content.getvalue())


def make_torchrec_plan(
    plan: ShardingPlan,
    places: Mapping[str, Any],
    device: str = DEVICE,
    local_world_size: int | None = None,
    workload: Workload | None = None,
) -> TorchRecPlan:
    """Return the plan in TorchRec's terms, with everything that the tables' places say.

    Parameters
    ----------
    plan
        A valid plan.
    places
        By table, as in a plan file (``planner.files.plan_schema.PlaceEntry``).
    device
        ``cuda`` or ``cpu``.
    local_world_size
        GPUs of a host, where the plan's nodes are NVLink domains of several hosts.
    workload
        What is planned: its tables say how much they cache where the plan does not.

    """
    locations = {
        name: TableLocation(module=place["module"], table=place["table"])
        for name, place in places.items()
    }
    made = to_torchrec(
        plan,
        locations,
        compute_device=device,
        local_world_size=local_world_size,
        workload=workload,
    )
    for sharding in plan.tables:
        location = locations[sharding.table]
        parameter: ParameterSharding = made.plan[location.module][location.table]
        try:
            _add(parameter, places[sharding.table])
        except KeyError as error:
            message = f"table `{sharding.table}`: TorchRec knows no {error}".replace("'", "`")
            raise PlanMismatchError(message) from error
    return made


def placed(locations: Mapping[str, TableLocation], places: Mapping[str, Any]) -> dict[str, Any]:
    """Return the places of tables at new locations; the rest is as in their old places."""
    return {
        name: {**places.get(name, {}), "module": location.module, "table": location.table}
        for name, location in locations.items()
    }


def take_torchrec_plan(
    plan: TorchRecPlan, workload: Workload, topology: Topology
) -> tuple[ShardingPlan, dict[str, Any]]:
    """Return a TorchRec plan in our terms, and the tables' places for a plan file.

    Raises
    ------
    PlanMismatchError
        It shards other tables than the workload's, or says what cannot be kept.

    """
    locations = table_locations(plan)
    _check_names(locations, workload)
    ours = from_torchrec(plan, locations, workload, topology)
    places = {}
    for name, location in locations.items():
        parameter = plan.plan[location.module][location.table]
        places[name] = {
            "module": location.module,
            "table": location.table,
            **_extra_data(name, parameter),
        }
    device, host = _device(plan), _host_size(plan, topology.local_world_size)
    again = make_torchrec_plan(ours, places, device, host)
    for name, location in locations.items():
        _check_same(
            name,
            plan.plan[location.module][location.table],
            again.plan[location.module][location.table],
        )
    said = {"device": device, "tables": places}
    return ours, said if host is None else {**said, "local_world_size": host}


def table_locations(plan: TorchRecPlan) -> dict[str, TableLocation]:
    """Return the location of every table by its name, or by module and name if it is not unique."""
    locations = [
        TableLocation(module=path, table=table)
        for path, tables in plan.plan.items()
        for table in tables
    ]
    times = Counter(location.table for location in locations)
    return {
        location.table
        if times[location.table] == 1
        else full_name(location.module, location.table): location
        for location in locations
    }


def _check_names(locations: Mapping[str, TableLocation], workload: Workload) -> None:
    wanted = {table.name for table in workload.tables}
    for name in sorted(locations.keys() ^ wanted):
        has, lacks = ("workload", "plan") if name in wanted else ("plan", "workload")
        raise PlanMismatchError(
            f"the {has} has a table `{name}` that the {lacks} lacks",
            hint="give the workload that the plan was made for",
        )


def _extra_data(name: str, parameter: ParameterSharding) -> dict[str, Any]:
    """Return, as plain data, what a table's TorchRec sharding says and our plan does not."""
    lost = [
        label
        for label, value in (
            ("key_value_params", parameter.key_value_params),
            ("cache statistics", getattr(parameter.cache_params, "stats", None)),
            (
                "multipass_prefetch_config",
                getattr(parameter.cache_params, "multipass_prefetch_config", None),
            ),
        )
        if value is not None
    ]
    if lost:
        raise PlanMismatchError(
            f"table `{name}` has {', '.join(lost)}, which no plan file can keep"
        )
    said = dict(_plain(parameter, (*_FLAGS, *_ENUMS)))
    if parameter.cache_params is not None:
        said["cache"] = dict(_plain(parameter.cache_params, (*_CACHE_VALUES, *_CACHE_ENUMS)))
    return said


def _plain(source: object, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield (field, value) of an object's set fields, enumerations by name."""
    for name in names:
        value = getattr(source, name, None)
        if value is not None:
            yield name, value.name if isinstance(value, Enum) else value


def _add(parameter: ParameterSharding, place: Mapping[str, Any]) -> None:
    """Set the extra data of a place in a TorchRec sharding: the inverse of ``_extra_data``."""
    for name in _FLAGS:
        setattr(parameter, name, place.get(name))
    for name, kind in _ENUMS.items():
        if name in place:
            setattr(parameter, name, kind[place[name]])
    cache = place.get("cache")
    if cache is None:
        return
    parameter.cache_params = parameter.cache_params or CacheParams()
    for name in _CACHE_VALUES:
        setattr(parameter.cache_params, name, cache.get(name))
    for name, kind in _CACHE_ENUMS.items():
        if name in cache:
            setattr(parameter.cache_params, name, kind[cache[name]])


def _device(plan: TorchRecPlan) -> str:
    for tables in plan.plan.values():
        for parameter in tables.values():
            if parameter.sharding_spec is not None:
                device: str = parameter.sharding_spec.shards[0].placement.device().type
                return device
    return DEVICE


def _host_size(plan: TorchRecPlan, node_size: int) -> int | None:
    """Return the number of GPUs of a host, where a node has several: its GPU r is ``cuda:r``.

    None: the GPUs are numbered through the node.
    """
    placements = [
        shard.placement
        for tables in plan.plan.values()
        for parameter in tables.values()
        if parameter.sharding_spec is not None
        for shard in parameter.sharding_spec.shards
    ]
    indices = [(each.rank(), each.device().index) for each in placements]
    known = [(rank, index) for rank, index in indices if index is not None]
    if all(rank % node_size == index for rank, index in known):
        return None
    fits = (
        size
        for size in range(1, node_size)
        if node_size % size == 0 and all(rank % size == index for rank, index in known)
    )
    return next(fits, None)


def _check_same(name: str, given: ParameterSharding, again: ParameterSharding) -> None:
    """Raise PlanMismatchError if converting a table's sharding to ours and back changes it."""
    if given == again:
        return
    for part in vars(given):
        before, after = getattr(given, part), getattr(again, part)
        if before != after:
            raise PlanMismatchError(
                f"table `{name}`: its {part} {_short(before)} would come back as {_short(after)}",
                hint="GPUs and nodes must be those that the plan was made for",
            )


def _short(value: object) -> str:
    """Return a value, or where its shards are, in at most 82 characters."""
    shards = getattr(value, "shards", None)
    text = ", ".join(str(shard.placement) for shard in shards) if shards else str(value)
    return f"`{text}`" if len(text) <= 80 else f"`{text[:77]}...`"
