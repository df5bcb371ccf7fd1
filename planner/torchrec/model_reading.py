"""Reading a TorchRec model: its tables, their allowed shardings, its optimizer and MLPs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mode
from typing import Any

import torch
from torch import nn
from torchrec import optim
from torchrec.distributed.planner.types import PlannerError
from torchrec.modules.embedding_modules import EmbeddingCollection

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import (
    UNREAD_DENSE,
    DataType,
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pooling,
)
from planner.operators.made_batches import table_configs
from planner.torchrec.communication import (
    fused_params,
    output_type,
    wire_types,
)
from planner.torchrec.dense_reading import DenseReading, read_dense
from planner.torchrec.error_types import INPUT_VALIDATION, refusing
from planner.torchrec.modules import (
    FoundTable,
    ModelReading,
    collection_of,
    every_table,
    on_device,
)
from planner.torchrec.overlooked import check_ids, nothing_left
from planner.torchrec.plan_conversion import TableLocation
from planner.torchrec.table_reads import table_reads

DATA_TYPES = {
    "FP32": DataType.FP32,
    "FP16": DataType.FP16,
    "BF16": DataType.BF16,
    "NFP8": DataType.FP8,
    "INT8": DataType.INT8,
    "UINT8": DataType.INT8,
}
"""Our data type by TorchRec's name."""
_OPTIMIZERS = {
    "sgd": Optimizer.SGD,
    "exactsgd": Optimizer.SGD,
    "larssgd": Optimizer.ADAGRAD,
    "rowwiseadagrad": Optimizer.ROWWISE_ADAGRAD,
    "exactrowwiseadagrad": Optimizer.ROWWISE_ADAGRAD,
    "emainplacerowwiseadagrad": Optimizer.ROWWISE_ADAGRAD,
    "adagrad": Optimizer.ADAGRAD,
    "exactadagrad": Optimizer.ADAGRAD,
    "adam": Optimizer.ADAM,
    "lamb": Optimizer.ADAM,
    "partialrowwiseadam": Optimizer.PARTIAL_ROWWISE_ADAM,
    "partialrowwiselamb": Optimizer.PARTIAL_ROWWISE_ADAM,
    # a number for every row and one for every weight, as momentum1 and momentum2
    # (fbgemm-gpu 1.8.0, split_table_batched_embeddings_ops_training.py 1228-1285)
    "ensemblerowwiseadagrad": Optimizer.PARTIAL_ROWWISE_ADAM,
    "none": Optimizer.SGD,
}
"""Our optimizer by lower-case name without underscores, of torch, TorchRec, and FBGEMM's
EmbOptimType. Optimizers that we do not have stand for one with as much state, unknown ones for
Adam, the largest."""
OPTIMIZER_CLASSES = {
    Optimizer.SGD: torch.optim.SGD,
    Optimizer.ROWWISE_ADAGRAD: optim.RowWiseAdagrad,
    Optimizer.ADAGRAD: torch.optim.Adagrad,
    Optimizer.ADAM: torch.optim.Adam,
    Optimizer.PARTIAL_ROWWISE_ADAM: optim.PartialRowWiseAdam,
}
"""Torch's or TorchRec's class of each of our optimizers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTables:
    """The tables of a model that can be sharded, those apart that the cost model does not know."""

    tables: tuple[EmbeddingTable, ...]
    locations: Mapping[str, TableLocation]
    optimizer: Optimizer
    dense: DenseModel
    dense_reading: DenseReading | None = None
    """What ``dense`` was read off; None: it was given."""
    output_type: DataType = DataType.FP32
    comms_forward: DataType | None = None
    comms_backward: DataType | None = None
    wrapper_bytes: float = 0.0
    """Bytes on every rank for modules around collections, such as remapped ids."""
    found: tuple[FoundTable, ...] = ()
    """All tables, including those that no cost model knows."""

    @property
    def others(self) -> tuple[FoundTable, ...]:
        """Tables that no cost model knows."""
        return tuple(each for each in self.found if each.unmodelled)


def read_model(
    module: nn.Module, sharders: Sequence[Any], reading: ModelReading
) -> ModelTables | None:
    """Return the tables that the sharders can shard on this device; None: there are none.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        An unsupported type of table, constraints that leave nothing, or linear layers that no
        dense model can have, where none is given.

    """
    every = list(every_table(module, sharders, reading))
    found = on_device(every, reading)
    if not found:
        return None
    model = _assembled(found, reading)
    if reading.dense is not None:
        return replace(model, dense=reading.training.on(reading.dense))
    dense = read_dense(module, every, model.tables, reading)
    return replace(model, dense=dense.model, dense_reading=dense)


def read_options(options: Sequence[Any], reading: ModelReading) -> ModelTables:
    """Return the tables of TorchRec's sharding options, without a dense model.

    All shardings are allowed: the options are choices already.
    """
    found = [option_table(option, reading) for option in options]
    return _assembled(found, reading)


def option_table(option: Any, reading: ModelReading) -> FoundTable:  # noqa: ANN401
    """Return the table of a ``ShardingOption``; no sharder restricts it."""
    path, module = option.module
    collection = collection_of(module)
    configs = {config.name: config for config in table_configs(collection)}
    return FoundTable(
        path=path,
        name=option.name,
        module=module,
        collection=collection,
        sharder=None,
        config=configs.get(option.name),
        parameter=option.tensor,
        constraint=reading.constraint(path, option.name),
        unmodelled="" if option.name in configs else f"{type(module).__name__} has no cost model",
    )


def _assembled(found: Sequence[FoundTable], reading: ModelReading) -> ModelTables:
    """Return tables with a dense part of one layer, a placeholder for the unread one."""
    ours = [each for each in found if not each.unmodelled]
    check_ids(reading.batches, ours)
    names = Counter(each.name for each in ours)
    locations = {
        each.name if names[each.name] == 1 else each.fqn: (
            TableLocation(module=each.path, table=each.name)
        )
        for each in ours
    }
    forward, backward = wire_types(ours)
    return ModelTables(
        tables=tuple(
            _table(name, each, reading) for name, each in zip(locations, ours, strict=True)
        ),
        locations=locations,
        optimizer=mode(map(_table_optimizer, ours)) if ours else Optimizer.SGD,
        dense=reading.training.applied(UNREAD_DENSE, ()),
        output_type=output_type(ours),
        comms_forward=forward,
        comms_backward=backward,
        wrapper_bytes=_wrapper_bytes(ours, reading.world_size),
        found=tuple(found),
    )


def _wrapper_bytes(found: Sequence[FoundTable], world_size: int) -> float:
    """Return the bytes on every rank of modules around collections.

    Tables of managed collision are split by rows as the embeddings are; others count whole, an
    upper limit.
    """
    total = 0.0
    for module in {id(each.module): each.module for each in found}.values():
        collection = collection_of(module)
        if collection is None or collection is module:
            continue
        own = {id(tensor) for tensor in collection.parameters()}
        kept = sum(
            tensor.numel() * tensor.element_size()
            for tensor in (*module.parameters(), *module.buffers())
            if id(tensor) not in own
        )
        shared = world_size if "ManagedCollision" in type(module).__name__ else 1
        total += kept / shared
    return total


def _table(name: str, found: FoundTable, reading: ModelReading) -> EmbeddingTable:
    """Return a found table as the model's workload has it."""
    config, constraint = found.config, found.constraint
    fixed = reading.fixed.get(found.path, {}).get(found.name)
    choices: Mapping[ShardingType, tuple[ComputeKernel, ...]] = {}
    if found.sharder is not None and fixed is None:
        choices = _without_guarded(
            sharding_choices(found, reading.compute_device, name), found, reading.compute_device
        )
    kernels = tuple(dict.fromkeys(kernel for each in choices.values() for kernel in each))
    with refusing(f"table `{name}`"):
        table = EmbeddingTable(
            name=name,
            num_embeddings=config.num_embeddings,
            embedding_dim=config.embedding_dim,
            feature_names=tuple(config.feature_names),
            data_type=_data_type(name, config),
            pooling=_pooling(config),
            weighted=_weighted(found, constraint),
            sharding_types=tuple(choices),
            compute_kernels=kernels,
            # our widths are multiples of 4, as FBGEMM's
            min_shard_dim=max(4, -(-(getattr(constraint, "min_partition", None) or 4) // 4) * 4),
            optimizer=_table_optimizer(found),
            cache_load_factor=_cache_load_factor(found, kernels),
            stash_weights=reading.stashes and getattr(config, "stash_weights", False),
            **table_reads(found, reading),
        )
        return table if fixed is None else _as_fixed(table, fixed)


def _as_fixed(table: EmbeddingTable, sharding: Any) -> EmbeddingTable:  # noqa: ANN401
    """Return the table with the sharding of a ``ParameterSharding`` as its only choice."""
    kind = ShardingType(sharding.sharding_type)
    cached = getattr(sharding.cache_params, "load_factor", None)
    return replace(
        table,
        sharding_types=(kind,),
        compute_kernels=(ComputeKernel(sharding.compute_kernel),),
        ranks=() if kind.everywhere else tuple(dict.fromkeys(sharding.ranks or ())),
        min_shard_dim=4,
        cache_load_factor=cached or table.cache_load_factor,
    )


def _cache_load_factor(found: FoundTable, kernels: Sequence[ComputeKernel]) -> float | None:
    """Return the share of rows to be cached, by the constraint or the sharder.

    TorchRec has its planner refuse a constraint's share that is not between 0 and 1
    (``validate_compute_kernels``, 1.9.2), and FBGEMM has no cache of nothing.
    """
    own = getattr(getattr(found.constraint, "cache_params", None), "load_factor", None)
    share = fused_params(found).get("cache_load_factor") if own is None else own
    beyond = share is not None and (share <= 0 or (own is not None and own >= 1))
    if beyond and ComputeKernel.FUSED_UVM_CACHING in kernels:
        raise ValueError(
            f"the load factor of its UVM cache must be between 0 and 1, got {share}; "
            'compute_kernels=["fused"] plans without a cache'
        )
    return share or None


def sharding_choices(
    found: FoundTable, compute_device: str, name: str
) -> dict[ShardingType, tuple[ComputeKernel, ...]]:
    """Return the kernels planned for each sharding type of a table (``planned_kernels``)."""
    offered = offered_kernels(found, compute_device)
    if not offered:
        raise nothing_left(found, compute_device, name)
    return planned_kernels(offered)


def planned_kernels(
    offered: Mapping[ShardingType, set[ComputeKernel]],
) -> dict[ShardingType, tuple[ComputeKernel, ...]]:
    """Return the sharding types and kernels that are planned, of those that are offered.

    All sharding types but ``data_parallel`` have the same kernels: where a sharder's differ, those
    that all types have. Types that share no kernel with the types before are left out.
    """
    dense = {ComputeKernel.DENSE}
    shared = set(ComputeKernel) - dense
    for kernels in offered.values():
        shared = shared & kernels or shared
    return {
        kind: tuple(
            each for each in ComputeKernel if each in (dense if kernels == dense else shared)
        )
        for kind, kernels in offered.items()
        if kernels == dense or kernels & shared
    }


def offered_kernels(
    found: FoundTable, compute_device: str
) -> dict[ShardingType, set[ComputeKernel]]:
    """Return the kernels of each sharding type that sharder, enumerator and constraint leave.

    ``dense`` is for ``data_parallel`` alone, and ``grid_shard`` only if the constraint names it, as
    in TorchRec's enumerator.
    """
    wanted_types = getattr(found.constraint, "sharding_types", None)
    wanted = set(getattr(found.constraint, "compute_kernels", None) or ComputeKernel)
    offered = {}
    for kind, there in found.offered(compute_device).items():
        if kind not in set(ShardingType) or kind not in (wanted_types or [kind]):
            continue
        if kind == ShardingType.GRID_SHARD and not wanted_types:
            continue
        kernels = there & wanted & set(ComputeKernel)
        dense = {ComputeKernel.DENSE}
        kernels = kernels & dense if kind == ShardingType.DATA_PARALLEL else kernels - dense
        if kernels:
            offered[ShardingType(kind)] = set(map(ComputeKernel, kernels))
    return offered


def _without_guarded(
    choices: dict[ShardingType, tuple[ComputeKernel, ...]],
    found: FoundTable,
    compute_device: str,
) -> dict[ShardingType, tuple[ComputeKernel, ...]]:
    """Return the choices without those that only a constraint may ask for by name.

    Replicated unpooled tables fail on CPU: FBGEMM's dense lookup always pools there (fbgemm-gpu-cpu
    1.8.0; pytorch/torchrec#1255). TorchRec does not split rows of feature-processed tables unasked
    either (``GUARDED_SHARDING_TYPES_FOR_FP_MODULES``, 1.9.2).
    """
    if found.listed is None and getattr(found.constraint, "sharding_types", None):
        return choices
    kept = dict(choices)
    if compute_device == "cpu" and isinstance(found.collection, EmbeddingCollection):
        kept.pop(ShardingType.DATA_PARALLEL, None)
    if found.listed is None and "FeatureProcessed" in type(found.module).__name__:
        kept = {kind: kernels for kind, kernels in kept.items() if not kind.splits_rows}
    return kept or choices


def _pooling(config: object) -> Pooling:
    kind = getattr(config, "pooling", None)
    return Pooling.NONE if kind is None else Pooling(kind.value.lower())


def _weighted(found: FoundTable, constraint: object) -> bool:
    """Return whether ids have weights, their own or a feature processor's."""
    asked = getattr(found.collection, "is_weighted", None)
    processed = "FeatureProcessed" in type(found.module).__name__
    own = bool(callable(asked) and asked())
    return own or processed or bool(getattr(constraint, "is_weighted", False))


def _data_type(name: str, config: Any) -> DataType:  # noqa: ANN401
    known = DATA_TYPES.get(config.data_type.name)
    if known is None:
        raise PlannerError(
            f"table `{name}` has data type {config.data_type.name}; supported are "
            f"{', '.join(DATA_TYPES)}",
            INPUT_VALIDATION,
        )
    return known


def _table_optimizer(found: FoundTable) -> Optimizer:
    """Return the table's optimizer, set in the backward or by the sharder's fused parameters.

    FBGEMM's default is SGD.
    """
    name = optimizer_name(found) or "SGD"
    return _OPTIMIZERS.get(_plain(name), Optimizer.ADAM)


def unmodelled_optimizers(found: Iterable[FoundTable]) -> Iterator[tuple[str, str, str]]:
    """Yield (optimizer, reason, table) of optimizers that count as another one."""
    for table in found:
        name = optimizer_name(table)
        if name and not table.unmodelled and _plain(name) not in _OPTIMIZERS:
            yield f"optimizer {name}", "not modelled: counted as Adam, the slowest", table.name


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def optimizer_name(found: FoundTable) -> str:
    """Return the name of the optimizer that updates a table in the backward; empty: none is set."""
    classes = getattr(found.parameter, "_optimizer_classes", None)
    if classes:
        return str(classes[0].__name__)
    name = str(getattr(fused_params(found).get("optimizer"), "name", ""))
    return "" if name == "NONE" else name  # FBGEMM's, which leaves updates to the training loop
