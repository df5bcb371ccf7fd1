"""Reading a TorchRec model: its tables, what may be done with them, its optimizer and MLPs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torchrec.distributed.planner.constants import POOLING_FACTOR
from torchrec.distributed.planner.types import PlannerError, PlannerErrorType
from torchrec.distributed.planner.utils import sharder_name
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, DenseModel, EmbeddingTable, Optimizer, Pooling
from planner.torchrec.observed_inputs import SampleBatch, observe
from planner.torchrec.plans import Home

_DATA_TYPES = {
    "FP32": DataType.FP32,
    "FP16": DataType.FP16,
    "BF16": DataType.BF16,
    "FP8": DataType.FP8,
    "INT8": DataType.INT8,
    "UINT8": DataType.INT8,
}
_OPTIMIZERS = {
    "sgd": Optimizer.SGD,
    "exactsgd": Optimizer.SGD,
    "larssgd": Optimizer.ADAGRAD,
    "rowwiseadagrad": Optimizer.ROWWISE_ADAGRAD,
    "exactrowwiseadagrad": Optimizer.ROWWISE_ADAGRAD,
    "adagrad": Optimizer.ADAGRAD,
    "exactadagrad": Optimizer.ADAGRAD,
    "adam": Optimizer.ADAM,
    "partialrowwiseadam": Optimizer.PARTIAL_ROWWISE_ADAM,
    "partialrowwiselamb": Optimizer.PARTIAL_ROWWISE_ADAM,
}
"""By lower-case name without underscores: classes of torch and TorchRec, FBGEMM's EmbOptimType.
Those without a name here stand for one with as much state; unknown ones for Adam, the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """What else is needed to read a model."""

    compute_device: str
    local_batch_size: int
    constraints: Mapping[str, Any] = field(default_factory=dict)
    """``ParameterConstraints`` by table."""
    batches: Sequence[SampleBatch] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTables:
    """The tables of a model that can be sharded."""

    tables: tuple[EmbeddingTable, ...]
    homes: Mapping[str, Home]
    optimizer: Optimizer
    dense: DenseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A table of a module, before it has a name that is unique in the model."""

    path: str
    module: Any
    sharder: Any
    config: Any
    parameter: Any


def read_model(module: nn.Module, sharders: Sequence[Any], reading: ModelReading) -> ModelTables:
    """Return every table that the sharders can shard on this device.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        No tables, an unsupported module or type of table, constraints that leave nothing.

    """
    found = [each for each in _walk(module, sharders) if _in_group(each, reading)]
    if not found:
        kinds = ", ".join(sorted({type(each).__name__ for each in sharders})) or "none"
        raise PlannerError(
            f"the model has no embedding tables that the sharders can shard; given: {kinds}",
            PlannerErrorType.INPUT_VALIDATION,
        )
    return _assembled(found, reading, _dense_model(module, {each.path for each in found}))


def read_options(options: Sequence[Any], reading: ModelReading) -> ModelTables:
    """Return the tables that TorchRec's sharding options are about, without the dense model.

    Nothing restricts what may be done with them: the options are choices already.
    """
    found = []
    for option in options:
        path, module = option.module
        configs = {config.name: config for config in _configs(path, module)}
        found.append(
            _Found(
                path=path,
                module=module,
                sharder=None,
                config=configs[option.name],
                parameter=option.tensor,
            )
        )
    return _assembled(found, reading, DenseModel(num_dense_features=1, bottom_mlp=(), top_mlp=(1,)))


def _assembled(found: Sequence[_Found], reading: ModelReading, dense: DenseModel) -> ModelTables:
    names = Counter(each.config.name for each in found)
    homes = {
        each.config.name if names[each.config.name] == 1 else f"{each.path}.{each.config.name}": (
            Home(module=each.path, table=each.config.name)
        )
        for each in found
    }
    states = [_optimizer(each) for each in found]
    return ModelTables(
        tables=tuple(_table(name, each, reading) for name, each in zip(homes, found, strict=True)),
        homes=homes,
        # one optimizer per workload: with several, the one whose state needs most room
        optimizer=max(states, key=lambda each: each.state_bytes_per_row(128)),
        dense=dense,
    )


def _walk(module: nn.Module, sharders: Sequence[Any]) -> Iterator[_Found]:
    """Find modules that have a sharder, as TorchRec's enumerator does: it looks in no further."""
    by_type = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop(0)
        sharder = by_type.get(sharder_name(type(child)))
        if sharder is None:
            prefix = f"{path}." if path else ""
            waiting.extend((prefix + name, each) for name, each in child.named_children())
            continue
        configs = {config.name: config for config in _configs(path, child)}
        for name, parameter in sharder.shardable_parameters(child).items():
            yield _Found(
                path=path, module=child, sharder=sharder, config=configs[name], parameter=parameter
            )


def _configs(path: str, module: nn.Module) -> Sequence[Any]:
    configs: Sequence[Any]
    if isinstance(module, EmbeddingBagCollection):
        configs = module.embedding_bag_configs()
    elif isinstance(module, EmbeddingCollection):
        configs = module.embedding_configs()
    else:
        raise PlannerError(
            f"module `{path}` is a {type(module).__name__}, which cannot be planned by iteration "
            "time; EmbeddingBagCollection and EmbeddingCollection can (leave its sharder out to "
            "keep the module unsharded)",
            PlannerErrorType.INPUT_VALIDATION,
        )
    return configs


def _in_group(found: _Found, reading: ModelReading) -> bool:
    constraint = reading.constraints.get(found.config.name)
    group = getattr(constraint, "device_group", None)
    return group is None or group == reading.compute_device


def _table(name: str, found: _Found, reading: ModelReading) -> EmbeddingTable:
    config, constraint = found.config, reading.constraints.get(found.config.name)
    choices: Mapping[ShardingType, tuple[ComputeKernel, ...]] = {}
    if found.sharder is not None:
        choices = _without_broken(
            sharding_choices(found.sharder, reading.compute_device, name, constraint),
            found.module,
            reading.compute_device,
            constraint,
        )
    observed = observe(reading.batches, config.feature_names) if reading.batches else None
    pooling_factor = _pooling_factor(config, constraint, reading.local_batch_size)
    if pooling_factor is None:
        pooling_factor = observed.pooling_factor if observed else float(len(config.feature_names))
    cache = getattr(constraint, "cache_params", None)
    options: dict[str, Any] = {"inputs": observed.inputs} if observed else {}
    if cache is not None and cache.load_factor:
        options["cache_load_factor"] = cache.load_factor
    try:
        return EmbeddingTable(
            name=name,
            num_embeddings=config.num_embeddings,
            embedding_dim=config.embedding_dim,
            pooling_factor=pooling_factor,
            feature_names=tuple(config.feature_names),
            data_type=_data_type(name, config),
            pooling=_pooling(config),
            weighted=_weighted(found.module, constraint),
            sharding_types=tuple(choices),
            compute_kernels=tuple(dict.fromkeys(k for each in choices.values() for k in each)),
            # our widths are multiples of 4, as FBGEMM's
            min_shard_dim=max(4, -(-(getattr(constraint, "min_partition", None) or 4) // 4) * 4),
            **options,
        )
    except ValueError as error:
        raise PlannerError(f"table `{name}`: {error}", PlannerErrorType.INPUT_VALIDATION) from error


def sharding_choices(
    sharder: Any,  # noqa: ANN401 - a ModuleSharder
    compute_device: str,
    name: str,
    constraint: Any,  # noqa: ANN401 - ParameterConstraints
) -> dict[ShardingType, tuple[ComputeKernel, ...]]:
    """Return the sharding types and kernels that sharder and constraint leave a table.

    ``grid_shard`` only if the constraint names it, as in TorchRec's enumerator. The kernels of
    all sharding types but ``data_parallel`` are the same: where a sharder's differ, types whose
    kernels have nothing in common with those of the types before are left out.
    """
    wanted_types = getattr(constraint, "sharding_types", None)
    wanted_kernels = getattr(constraint, "compute_kernels", None)
    choices: dict[ShardingType, tuple[ComputeKernel, ...]] = {}
    shared: set[str] = set(ComputeKernel)
    for kind in sharder.sharding_types(compute_device):
        if kind not in set(ShardingType) or kind not in (wanted_types or [kind]):
            continue
        if kind == ShardingType.GRID_SHARD and not wanted_types:
            continue
        replicated = kind == ShardingType.DATA_PARALLEL
        offered = set(sharder.compute_kernels(kind, compute_device))
        offered &= set(wanted_kernels or ComputeKernel)
        offered &= {"dense"} if replicated else shared - {"dense"}
        if offered:
            shared = shared if replicated else offered
            choices[ShardingType(kind)] = ()
    if not choices:
        raise _nothing_left(sharder, compute_device, name, constraint)
    sharded = tuple(kernel for kernel in ComputeKernel if kernel in shared)
    return {
        kind: (ComputeKernel.DENSE,) if kind is ShardingType.DATA_PARALLEL else sharded
        for kind in choices
    }


def _without_broken(
    choices: dict[ShardingType, tuple[ComputeKernel, ...]],
    module: nn.Module,
    compute_device: str,
    constraint: object,
) -> dict[ShardingType, tuple[ComputeKernel, ...]]:
    """Leave out what is offered and fails: unpooled tables, replicated, on CPU, unless asked for.

    FBGEMM's dense lookup pools on CPU whatever it is told (seen in fbgemm-gpu-cpu 1.8.0;
    pytorch/torchrec#1255).
    """
    asked = getattr(constraint, "sharding_types", None)
    if compute_device != "cpu" or not isinstance(module, EmbeddingCollection) or asked:
        return choices
    kept = dict(choices)
    kept.pop(ShardingType.DATA_PARALLEL, None)
    return kept or choices


def _nothing_left(
    sharder: object, compute_device: str, name: str, constraint: object
) -> PlannerError:
    offered = [
        f"{kind} ({', '.join(sharder.compute_kernels(kind, compute_device))})"  # type: ignore[attr-defined]
        for kind in sharder.sharding_types(compute_device)  # type: ignore[attr-defined]
    ]
    types = getattr(constraint, "sharding_types", None) or ["any"]
    kernels = getattr(constraint, "compute_kernels", None) or ["any"]
    return PlannerError(
        f"table `{name}` cannot be sharded: its constraints allow sharding types "
        f"{', '.join(types)} with kernels {', '.join(kernels)}; on {compute_device} "
        f"{type(sharder).__name__} offers {'; '.join(offered)}, of which `dense` suits "
        "data_parallel only",
        PlannerErrorType.STRICT_CONSTRAINTS,
    )


def _pooling_factor(config: Any, constraint: Any, local_batch_size: int) -> float | None:  # noqa: ANN401
    """Return ids per sample from the constraint; None if it does not say.

    One factor for several features holds for each of them. A feature that is pooled more than
    once per sample, or has a batch size of its own, is scaled accordingly.
    """
    factors = list(getattr(constraint, "pooling_factors", None) or [POOLING_FACTOR])
    if factors == [POOLING_FACTOR]:
        return None
    if len(factors) == 1:
        factors *= len(config.feature_names)
    poolings = constraint.num_poolings or [1.0] * len(factors)
    batches = constraint.batch_sizes or [local_batch_size] * len(factors)
    ids = (
        factor * times * batch
        for factor, times, batch in zip(factors, poolings, batches, strict=True)
    )
    return float(sum(ids)) / local_batch_size


def _pooling(config: object) -> Pooling:
    kind = getattr(config, "pooling", None)
    return Pooling.NONE if kind is None else Pooling(kind.value.lower())


def _weighted(module: object, constraint: object) -> bool:
    asked = getattr(module, "is_weighted", None)
    return bool(callable(asked) and asked()) or bool(getattr(constraint, "is_weighted", False))


def _data_type(name: str, config: Any) -> DataType:  # noqa: ANN401
    known = _DATA_TYPES.get(config.data_type.name)
    if known is None:
        raise PlannerError(
            f"table `{name}` has data type {config.data_type.name}; supported are "
            f"{', '.join(_DATA_TYPES)}",
            PlannerErrorType.INPUT_VALIDATION,
        )
    return known


def _optimizer(found: _Found) -> Optimizer:
    """Return the table's optimizer: set in the backward, or by the sharder's fused parameters.

    FBGEMM's default is SGD.
    """
    classes = getattr(found.parameter, "_optimizer_classes", None)
    fused = getattr(found.sharder, "fused_params", None) or {}
    name = classes[0].__name__ if classes else getattr(fused.get("optimizer"), "name", "SGD")
    return _OPTIMIZERS.get(name.lower().replace("_", ""), Optimizer.ADAM)


def _dense_model(module: nn.Module, embedding_paths: set[str]) -> DenseModel:
    """Return the model's linear layers as MLPs: those below ``dense_arch`` are the bottom."""
    layers = [
        (path, layer)
        for path, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and path not in embedding_paths
    ]
    bottom = [layer for path, layer in layers if "dense_arch" in path]
    top = [layer for path, layer in layers if "dense_arch" not in path]
    return DenseModel(
        num_dense_features=bottom[0].in_features if bottom else 1,
        bottom_mlp=tuple(layer.out_features for layer in bottom),
        top_mlp=tuple(layer.out_features for layer in top) or (1,),
    )
