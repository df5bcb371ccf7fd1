"""Limiting a plan to the options that a script's own enumerator lists.

The options are read as constraints: sharding types, kernels of each, the narrowest column shards,
and other fields of a constraint. What constraints cannot express is named in the one warning.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import nn
from torchrec.distributed.planner.types import (
    Enumerator,
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
)

from costmodel.domain.plan import ComputeKernel, ShardingType, column_counts
from planner.torchrec.ignored import Said
from planner.torchrec.modules import FoundTable, Kernels, every_table, find_tables, full_name
from planner.torchrec.plan_conversion import PASSED_ON
from planner.torchrec.plan_request import PlanRequest, prefetching_pipeline
from planner.torchrec.table_reads import says_reads

_RAISED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
_COLUMNS = {kind.value for kind in ShardingType if kind.splits_columns}
_ROWS = {kind.value for kind in ShardingType if kind.splits_rows}


def limited(
    request: PlanRequest, enumerator: Enumerator, module: nn.Module, sharders: Sequence[Any]
) -> tuple[PlanRequest, list[Said]]:
    """Return the request limited to what an enumerator lists, and what of that is not followed.

    Where the request has no constraint for a table, the enumerator's counts.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        The enumerator fails, or lists nothing for a table that is to be planned.

    """
    names = {each.name for each in every_table(module, sharders, request.reading())}
    kept = {name: each for name, each in _own_constraints(enumerator).items() if name in names}
    request = replace(request, constraints={**kept, **request.constraints})
    tables = [
        each
        for each in find_tables(module, sharders, request.reading())
        if each.name not in request.fixed.plan.get(each.path, {})
    ]
    listed = _listed_options(enumerator, module, sharders)
    constraints, unheeded = dict(request.constraints), [*_of_no_table(enumerator, names)]
    for each in tables:
        options = listed.get(each.fqn)
        if not options:
            raise _no_option(enumerator, each)
        constraints[each.fqn] = _constraint(each.constraint, options, request.local_batch_size)
        if not each.unmodelled:
            said = f"{type(enumerator).__name__}.enumerate"
            reasons = _unheeded(options, request.local_batch_size)
            unheeded += [(said, reason, each.name) for reason in reasons]
    made = replace(
        request,
        constraints=constraints,
        listed={each.fqn: _kernels(listed[each.fqn]) for each in tables},
        pipeline=prefetching_pipeline(request.pipeline, constraints),
    )
    return made, unheeded


def _own_constraints(enumerator: Enumerator) -> Mapping[str, ParameterConstraints]:
    """Return the constraints that an enumerator was made with; none if it keeps none."""
    kept = getattr(enumerator, "__dict__", {}).get("_constraints") or {}
    return {name: each for name, each in kept.items() if each is not None}


def _of_no_table(enumerator: Enumerator, names: Collection[str]) -> Iterator[Said]:
    for name in _own_constraints(enumerator):
        if name not in names:
            yield f"{type(enumerator).__name__}.constraints", "the model has no such table", name


def _no_option(enumerator: Enumerator, found: FoundTable) -> PlannerError:
    return PlannerError(
        f"the enumerator, {type(enumerator).__name__}, lists no sharding option for table "
        f"`{found.fqn}`, and what it lists is what may be chosen",
        PlannerErrorType.STRICT_CONSTRAINTS,
    )


def _listed_options(
    enumerator: Enumerator, module: nn.Module, sharders: Sequence[Any]
) -> dict[str, list[ShardingOption]]:
    """Return the options that an enumerator lists, by module path and table."""
    try:
        options = list(enumerator.enumerate(module=module, sharders=list(sharders)))
    except _RAISED as error:
        raise PlannerError(
            f"the enumerator, {type(enumerator).__name__}, fails for this model: "
            f"{type(error).__name__}: {error}",
            PlannerErrorType.STRICT_CONSTRAINTS,
        ) from error
    listed: dict[str, list[ShardingOption]] = {}
    for option in options:
        listed.setdefault(full_name(option.path, option.name), []).append(option)
    return listed


def _kernels(options: Sequence[ShardingOption]) -> Kernels:
    kinds = dict.fromkeys(each.sharding_type for each in options)
    return {
        kind: frozenset(each.compute_kernel for each in options if each.sharding_type == kind)
        for kind in kinds
    }


def _constraint(
    given: ParameterConstraints | None, options: Sequence[ShardingOption], local_batch_size: int
) -> ParameterConstraints:
    """Return a table's constraint, narrowed to its listed options.

    The constraint's types and kernels stay; ``PlanRequest.listed`` has the kernels of each type.
    """
    made = given or ParameterConstraints()
    there = {field.name for field in fields(made)}
    said: dict[str, Any] = {
        "sharding_types": made.sharding_types or [*_kernels(options)],
        "compute_kernels": made.compute_kernels
        or [*dict.fromkeys(each.compute_kernel for each in options)],
        "min_partition": max(made.min_partition or 0, _narrowest(options)) or None,
        "cache_params": made.cache_params or _cache_option(options).cache_params,
    }
    if not says_reads(made, local_batch_size):
        said["pooling_factors"] = list(options[0].input_lengths)
        said["num_poolings"] = getattr(options[0], "num_poolings", None)
    for name in PASSED_ON:
        said[name] = getattr(made, name, None)
        if said[name] is None:
            said[name] = getattr(options[0], name, None)
    return replace(made, **{name: value for name, value in said.items() if name in there})


def _narrowest(options: Sequence[ShardingOption]) -> int:
    """Return the width of the narrowest column shards; 0: none are listed."""
    return min(map(_width, _by_columns(options)), default=0)


def _by_columns(options: Sequence[ShardingOption]) -> list[ShardingOption]:
    """Return the options that split columns."""
    return [each for each in options if each.sharding_type in _COLUMNS and each.shards]


def _width(option: ShardingOption) -> int:
    return max(int(shard.size[1]) for shard in option.shards)


def _cache_option(options: Sequence[ShardingOption]) -> ShardingOption:
    """Return the first option with a cache, whose parameters are the table's; else the first."""
    caching = ComputeKernel.FUSED_UVM_CACHING.value
    return next((each for each in options if each.compute_kernel == caching), options[0])


def _unheeded(options: Sequence[ShardingOption], local_batch_size: int) -> Iterator[str]:
    """Yield what a table's options say that the plan may not follow."""
    widths = {_width(each) for each in _by_columns(options)}
    columns = int(options[0].tensor.shape[1])
    planned = {columns // count for count in column_counts(columns, min(widths, default=columns))}
    if widths and planned - widths - {columns}:
        yield "column shards wider than those it lists may be chosen, too"
    if any(_shard_rows(each) not in {None, _even_rows(each)} for each in options):
        yield "rows are split evenly"
    first = _cache_option(options)
    alike = [each for each in options if each.compute_kernel == first.compute_kernel]
    if len({each.cache_load_factor for each in alike}) > 1:
        yield f"of the shares of rows to cache, {first.cache_load_factor} alone is planned"
    if {each.batch_size for each in options} != {local_batch_size}:
        yield f"its batch size: {local_batch_size}, the planner's, is planned for"
    if any(each.dependency for each in options):
        yield "tables that it makes depend on each other may be placed apart"
    if any(shard.rank is not None for each in options for shard in each.shards):
        yield "ranks that it gives shards are not kept"


def _shard_rows(option: ShardingOption) -> int | None:
    """Return the rows of an option's largest shard; None: rows are not split."""
    if option.sharding_type not in _ROWS or not option.shards:
        return None
    return max(int(shard.size[0]) for shard in option.shards)


def _even_rows(option: ShardingOption) -> int:
    """Return the rows of an option's largest shard if all shards had the same."""
    first = option.shards[0].offset[1]
    blocks = len([shard for shard in option.shards if shard.offset[1] == first])
    rows = int(option.tensor.shape[0])
    return -(-rows // blocks)
