"""The tables of a TorchRec model, their modules, and whether the cost model knows them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from torch import nn
from torchrec.distributed.planner.utils import sharder_name
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DenseModel
from planner.operators.made_batches import table_configs
from planner.torchrec.dense_training import DenseTraining
from planner.torchrec.observed_inputs import SampleBatch
from planner.torchrec.setting_treatments import WRAPPERS

Kernels: TypeAlias = Mapping[str, frozenset[str]]
"""Compute kernels by sharding type, both by TorchRec's names."""
_KERNELS = frozenset(ComputeKernel)
_REPLICATED = {ShardingType.DATA_PARALLEL}


def full_name(path: str, table: str) -> str:
    """Return a table's name after its module's path, as ``ShardingOption.fqn`` has it."""
    return f"{path}.{table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """Everything besides the model that reading it depends on."""

    compute_device: str
    local_batch_size: int
    world_size: int = 1
    constraints: Mapping[str, Any] = field(default_factory=dict)
    """``ParameterConstraints`` by table, or by module path and table (``path.table``)."""
    listed: Mapping[str, Kernels] = field(default_factory=dict)
    """Kernels that an enumerator lists, by module path and table; other tables have what sharders
    offer."""
    batches: Sequence[SampleBatch] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """``ParameterSharding`` of tables that keep theirs, by module path and table."""
    stashes: bool = True
    """Whether the training loop stashes weights of tables configured for it."""
    dense: DenseModel | None = None
    """The dense model; None: it is read."""
    forward_batches: Sequence[Any] = ()
    """Batches as the model's forward takes them, to see what it runs."""
    training: DenseTraining = field(default_factory=DenseTraining)
    """How the dense part is trained."""

    def constraint(self, path: str, table: str) -> Any:  # noqa: ANN401 - ParameterConstraints
        """Return a table's constraint, the one by path first; None: it has none."""
        return self.constraints.get(full_name(path, table), self.constraints.get(table))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table that a sharder can shard, before it has a name that is unique in the model."""

    path: str
    name: str
    module: nn.Module
    """The module that the sharder shards."""
    collection: nn.Module | None
    """The collection with the table: the module, or the one that it wraps; None: unknown."""
    sharder: Any
    config: Any
    """The table's configuration; None where there is no collection."""
    parameter: Any
    constraint: Any
    listed: Kernels | None = None
    """Kernels that an enumerator lists for it; None: no enumerator was given."""
    unmodelled: str = ""
    """Why the cost model does not know it; empty: it does."""

    @property
    def fqn(self) -> str:
        """Module path and table name."""
        return full_name(self.path, self.name)

    def offered(self, compute_device: str) -> Kernels:
        """Return the kernels of each sharding type before any constraint."""
        if self.listed is not None:
            return self.listed
        return _offered(self.sharder, compute_device)


def find_tables(
    module: nn.Module, sharders: Sequence[Any], reading: ModelReading
) -> list[FoundTable]:
    """Return the tables of all modules that have a sharder and are on the device.

    Modules inside one that has a sharder are not looked at, as in TorchRec's enumerator.
    """
    return on_device(every_table(module, sharders, reading), reading)


def on_device(tables: Iterable[FoundTable], reading: ModelReading) -> list[FoundTable]:
    """Return the tables that are on the device planned for."""
    return [each for each in tables if _is_on(each, reading)]


def every_table(
    module: nn.Module, sharders: Sequence[Any], reading: ModelReading
) -> Iterator[FoundTable]:
    """Yield the tables that the sharders can shard, on any device."""
    by_type = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop(0)
        sharder = by_type.get(sharder_name(type(child)))
        if sharder is None:
            prefix = f"{path}." if path else ""
            waiting.extend((prefix + name, each) for name, each in child.named_children())
            continue
        collection = collection_of(child)
        configs = {config.name: config for config in table_configs(collection)}
        for name, parameter in sharder.shardable_parameters(child).items():
            constraint = reading.constraint(path, name)
            config = configs.get(name)
            fixed = reading.fixed.get(path, {}).get(name)
            yield FoundTable(
                path=path,
                name=name,
                module=child,
                collection=collection,
                sharder=sharder,
                config=config,
                parameter=parameter,
                constraint=constraint,
                listed=reading.listed.get(full_name(path, name)),
                unmodelled=_unmodelled(
                    child, config, sharder, _asked(fixed, constraint), reading.compute_device
                ),
            )


def only_these(sharders: Sequence[Any], tables: Sequence[FoundTable]) -> Iterator[Any]:
    """Yield copies of the sharders that offer these tables alone."""
    names: dict[int, set[str]] = {}
    for table in tables:
        names.setdefault(id(table.module), set()).add(table.name)

    for sharder in sharders:
        restricted = copy(sharder)
        vars(restricted)["shardable_parameters"] = _offering(sharder, names)
        yield restricted


def _offering(sharder: Any, names: Mapping[int, set[str]]) -> Any:  # noqa: ANN401 - ModuleSharder
    """Return a sharder that offers only the named tables of each module."""

    def shardable_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
        wanted = names.get(id(module), set())
        offered = sharder.shardable_parameters(module).items() if wanted else ()
        return {name: parameter for name, parameter in offered if name in wanted}

    return shardable_parameters


def constraints_by_name(tables: Iterable[FoundTable]) -> dict[str, Any]:
    """Return constraints by table name alone, as TorchRec looks them up.

    A name with a different constraint in several modules has none.
    """
    tables = list(tables)
    apart = {each.name for each in namesakes(tables)}
    return {
        each.name: each.constraint
        for each in tables
        if each.constraint is not None and each.name not in apart
    }


def namesakes(tables: Iterable[FoundTable]) -> Iterator[FoundTable]:
    """Yield the tables whose name an earlier one has with another constraint."""
    first: dict[str, FoundTable] = {}
    for each in tables:
        if first.setdefault(each.name, each).constraint != each.constraint:
            yield each


def collection_of(module: nn.Module) -> nn.Module | None:
    """Return the collection that a module is or wraps; None: no known one."""
    if type(module).__name__ in WRAPPERS:
        inner = (each for each in module.modules() if each is not module)
        return next((each for each in inner if _is_collection(each)), None)
    return module if _is_collection(module) else None


def _is_collection(module: nn.Module) -> bool:
    return isinstance(module, EmbeddingBagCollection | EmbeddingCollection)


class _Asked(NamedTuple):
    """What a fixed plan or a constraint asks for; an empty field of a constraint: anything."""

    kinds: set[str]
    kernels: set[str]


def _asked(fixed: Any, constraint: Any) -> _Asked:  # noqa: ANN401 - TorchRec's
    """Return the sharding types and kernels that a fixed plan or a constraint asks for."""
    if fixed:
        return _Asked({fixed.sharding_type}, {fixed.compute_kernel})
    named = (getattr(constraint, name, None) for name in ("sharding_types", "compute_kernels"))
    return _Asked(*(set(each or ()) for each in named))


def _unmodelled(
    module: nn.Module,
    config: Any,  # noqa: ANN401 - EmbeddingBagConfig
    sharder: Any,  # noqa: ANN401 - ModuleSharder
    asked: _Asked,
    compute_device: str,
) -> str:
    """Return why a table has no cost model; empty if it has one.

    FBGEMM's fused lookups take widths of multiples of 4 alone, its dense ones on CPUs any
    (fbgemm_gpu 1.8.0, split_table_batched_embeddings_ops_training.py 185; for GPUs
    embedding_forward_split_template.cu 496).
    """
    if config is None:
        return f"{type(module).__name__} has no cost model"
    width = config.embedding_dim
    if width % 4 and asked.kinds == _REPLICATED and compute_device == "cpu":
        return f"its width, {width}, is no multiple of 4"
    if getattr(config, "use_virtual_table", False):
        return "it is a virtual table"
    offered = frozenset[str]().union(*_offered(sharder, compute_device).values())
    left = (asked.kernels or offered) & offered
    if left and not left & _KERNELS:
        return f"compute kernel {', '.join(sorted(left))} has no cost model"
    return ""


def _offered(sharder: Any, compute_device: str) -> Kernels:  # noqa: ANN401 - a ModuleSharder
    """Return the kernels that a sharder offers for each sharding type."""
    return {
        kind: frozenset(sharder.compute_kernels(kind, compute_device))
        for kind in sharder.sharding_types(compute_device)
    }


def _is_on(found: FoundTable, reading: ModelReading) -> bool:
    group = getattr(found.constraint, "device_group", None)
    return group is None or group == reading.compute_device
