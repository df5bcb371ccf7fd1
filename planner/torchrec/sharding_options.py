"""A plan as TorchRec's sharding options, for its statistics, callbacks and loaders."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from torch import nn
from torchrec.distributed.planner.constants import POOLING_FACTOR
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import (
    Enumerator,
    PlannerError,
    PlannerErrorType,
    Shard,
    ShardingOption,
)
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.types import ParameterSharding
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.plan import Shard as PlannedShard
from costmodel.domain.validity import tiling_problem
from planner.torchrec.error_types import INPUT_VALIDATION, INVALID_RANK_ASSIGNMENT
from planner.torchrec.modules import FoundTable, only_these
from planner.torchrec.plan_conversion import PASSED_ON


def chosen_options(
    plan: TorchRecPlan,
    module: nn.Module,
    sharders: Sequence[Any],
    enumerator: Enumerator,
    tables: Sequence[FoundTable],
    local_batch_size: int,
) -> list[ShardingOption]:
    """Return the options of a plan, with TorchRec's estimates of memory and time.

    They are copies of the enumerator's options, which have input lengths, dependencies and names of
    features, with the plan's shards. Tables that the enumerator refuses have an option of our own.
    """
    try:
        options = enumerator.enumerate(module=module, sharders=list(sharders))
    except (RuntimeError, ValueError):
        options = list(_module_by_module(module, sharders, enumerator, tables, local_batch_size))
    offered: dict[tuple[str, str], list[ShardingOption]] = {}
    for option in options:
        offered.setdefault((option.path, option.name), []).append(option)
    chosen = [
        _placed(offered[path, name], sharding, len(plan_ranks(sharding)))
        for path, name in offered
        for sharding in (_sharding(plan, path, name),)
        if sharding is not None
    ]
    enumerator.populate_estimates(chosen)
    return chosen


def _module_by_module(
    module: nn.Module,
    sharders: Sequence[Any],
    enumerator: Enumerator,
    tables: Sequence[FoundTable],
    local_batch_size: int,
) -> Iterator[ShardingOption]:
    """Yield the enumerator's options of each module; our own options where it refuses a module.

    TorchRec refuses MCHManagedCollisionModule on more than one rank (1.9.2).
    """
    by_module: dict[int, list[FoundTable]] = {}
    for table in tables:
        by_module.setdefault(id(table.module), []).append(table)
    for group in by_module.values():
        try:
            only = list(only_these(sharders, group))
            yield from enumerator.enumerate(module=module, sharders=only)
        except (RuntimeError, ValueError):
            yield from (_own_option(each, local_batch_size) for each in group)
    # where estimates look sharders up
    enumerator.enumerate(module=module, sharders=list(only_these(sharders, ())))


def _own_option(found: FoundTable, local_batch_size: int) -> ShardingOption:
    """Return an option of a table, not placed yet."""
    return ShardingOption(
        name=found.name,
        tensor=found.parameter,
        module=(found.path, found.module),
        input_lengths=getattr(found.constraint, "pooling_factors", None) or [POOLING_FACTOR],
        batch_size=local_batch_size,
        sharding_type=ShardingType.TABLE_WISE.value,
        partition_by=get_partition_by_type(ShardingType.TABLE_WISE.value),
        compute_kernel=ComputeKernel.FUSED.value,
        shards=[],
    )


def _sharding(plan: TorchRecPlan, path: str, name: str) -> ParameterSharding | None:
    module = plan.plan.get(path)
    return None if module is None else module.get(name)


def plan_ranks(sharding: ParameterSharding) -> list[int]:
    """Return the rank of every shard."""
    return list(sharding.ranks or ())


def _placed(
    offered: Sequence[ShardingOption], sharding: ParameterSharding, num_shards: int
) -> ShardingOption:
    """Return the offered option most like a table's sharding, with the sharding's shards."""

    def difference(option: ShardingOption) -> tuple[bool, bool, int]:
        return (
            option.sharding_type != sharding.sharding_type,
            option.compute_kernel != sharding.compute_kernel,
            abs(len(option.shards) - num_shards),
        )

    option = min(offered, key=difference)
    option.sharding_type, option.compute_kernel = sharding.sharding_type, sharding.compute_kernel
    option.partition_by = get_partition_by_type(sharding.sharding_type)
    option.cache_params = sharding.cache_params
    for name in PASSED_ON:
        setattr(option, name, getattr(sharding, name))
    if sharding.sharding_type == ShardingType.DATA_PARALLEL or sharding.sharding_spec is None:
        whole = list(option.tensor.shape)
        option.shards = [
            Shard(size=whole, offset=[0, 0], rank=rank) for rank in plan_ranks(sharding)
        ]
    else:
        option.shards = [
            Shard(
                size=list(shard.shard_sizes),
                offset=list(shard.shard_offsets),
                rank=shard.placement.rank(),
            )
            for shard in sharding.sharding_spec.shards
        ]
    return option


def loaded_options(
    loader: Any,  # noqa: ANN401 - a PlanLoader
    search_space: Sequence[ShardingOption],
    context_hash: str,
) -> list[ShardingOption]:
    """Return the options of a stored plan, found by TorchRec's hash of each.

    Empty: there is no plan.

    A hash is that of an option that the enumerator offers, which then gets the stored shards; or
    that of the stored option itself, as shares of cached rows and numbers of columns may not be
    offered.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        The plan was made for another topology, batch size, constraints or model.

    """
    _check_made_for(loader.plan_context_hash(), context_hash)
    stored: dict[int, ShardingOption] = dict(loader.load() or {})
    chosen: dict[str, ShardingOption] = {}
    for option in search_space:
        same = stored.pop(option.storage_hash(), None)
        if same is not None:
            option.shards = same.shards
            chosen[option.fqn] = option
    tables = {option.fqn: option for option in search_space}
    for key, option in stored.items():
        if option.fqn not in tables or option.fqn in chosen or option.storage_hash() != key:
            raise PlannerError(
                f"the plan loader has an option with hash {key}, of `{option.fqn}`, which is none "
                "of this model's tables' options; leave plan_loader out to plan anew",
                PlannerErrorType.PLAN_LOADING_FAILED,
            )
        chosen[option.fqn] = _like(tables[option.fqn], option)
    return list(chosen.values())


def _like(offered: ShardingOption, stored: ShardingOption) -> ShardingOption:
    """Return the option of one table, sharded as another option is."""
    option = copy(offered)
    option.sharding_type, option.compute_kernel = stored.sharding_type, stored.compute_kernel
    option.cache_params, option.shards = stored.cache_params, stored.shards
    return option


def _check_made_for(stored: str | None, here: str) -> None:
    if stored is not None and stored != here:
        raise PlannerError(
            "planner input mismatch: the plan that the plan loader has is for something else; "
            "topology, batch size, storage reservation, constraints and model have hash "
            f"{here} here, its own is {stored}; leave plan_loader out to plan anew",
            PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH,
        )


def plan_after_callbacks(
    options: list[ShardingOption], callbacks: Sequence[Any], topology: TorchRecTopology
) -> TorchRecPlan:
    """Return the plan of the options that callbacks return.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        A callback returns no options, or shards on ranks that there are not, or of another table.

    """
    for callback in callbacks:
        name = getattr(callback, "__name__", type(callback).__name__)
        returned: object = callback(list(options))
        if not isinstance(returned, list):
            raise PlannerError(
                f"callback `{name}` returned a {type(returned).__name__}, not a list of options",
                INPUT_VALIDATION,
            )
        left = {option.fqn for option in returned}
        lost = [option.fqn for option in options if option.fqn not in left]
        if lost:
            raise PlannerError(
                f"callback `{name}` returned no option of table `{lost[0]}`: a plan has all",
                INPUT_VALIDATION,
            )
        options = returned
    check_shards(options, topology)
    return to_sharding_plan(options, topology)


def check_shards(options: Sequence[ShardingOption], topology: TorchRecTopology) -> None:
    """Raise if a shard is on no rank of the topology, or shards do not make up the table.

    The former as ``validate_rank_assignment`` (torchrec 1.9.2), which needs a process group.
    """
    there = range(topology.world_size)
    for option in options:
        strangers = [shard.rank for shard in option.shards if shard.rank not in there]
        if strangers:
            raise PlannerError(
                f"table `{option.fqn}` has a shard on rank {strangers[0]}, "
                f"there are {topology.world_size} ranks",
                INVALID_RANK_ASSIGNMENT,
            )
        if option.sharding_type == ShardingType.DATA_PARALLEL:
            continue
        rows, columns = option.tensor.shape
        problem = tiling_problem(rows, columns, planned_shards(option))
        if problem:
            raise PlannerError(f"table `{option.fqn}`: {problem}", INPUT_VALIDATION)


def planned_shards(option: ShardingOption) -> tuple[PlannedShard, ...]:
    """Return the shards of an option; where no ranks are chosen yet, on one after the other."""
    return tuple(
        PlannedShard(
            rank=place if shard.rank is None else shard.rank,
            row_offset=shard.offset[0],
            num_rows=shard.size[0],
            column_offset=shard.offset[1],
            num_columns=shard.size[1],
        )
        for place, shard in enumerate(option.shards)
    )
