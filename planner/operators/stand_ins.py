"""Modules that stand for embedding modules: outputs of the same form, of random numbers."""

import copy
import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollectionInterface,
    EmbeddingCollectionInterface,
    get_embedding_names_by_table,
)
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from costmodel.operators.operator_list import SequenceSize
from planner.operators.collectives import process_groups
from planner.operators.refusals import refused

_MANAGED = (ManagedCollisionEmbeddingBagCollection, ManagedCollisionEmbeddingCollection)
_PLAIN = (nn.EmbeddingBag, nn.Embedding)
_WRAPPERS = {
    "FeatureProcessedEmbeddingBagCollection",
    "PECEmbeddingCollection",
    "ITEPEmbeddingBagCollection",
    "ITEPEmbeddingCollection",
}
"""Modules around one collection, with outputs of its form."""
MOST_REAL_ELEMENTS = 2**28
"""Elements of parameters that are run as real tensors: some 1 GiB of FP32, four times with their
gradients and copies."""


@dataclass(slots=True)
class Given:
    """What stand-ins gave in one run: the batch's size, and the tensors."""

    samples: int = 0
    sequences: dict[str, SequenceSize] = field(default_factory=dict)
    """By feature, the longest sequence and all ids."""
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    """By the module's path, with a feature's where each has its own."""
    watch: Callable[[str, torch.Tensor], None] = lambda *_: None
    """Is told of each of them."""

    def clear(self) -> None:
        """Forget the last run."""
        self.samples = 0
        self.sequences.clear()
        self.outputs.clear()

    def made(self, name: str, *shape: int, device: torch.device | None = None) -> torch.Tensor:
        """Return a tensor of random numbers that has a gradient, and keep it."""
        number, unique = 1, name
        while unique in self.outputs:  # the module is called again
            number += 1
            unique = f"{name} ({number})"
        made = torch.rand(*shape, device=device).requires_grad_()
        self.outputs[unique] = made
        self.watch(unique, made)
        return made


class _StandIn(nn.Module):  # type: ignore[misc]  # torch has no types here
    """What it does is not recorded: the dense part begins with what it returns."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - a module's
        with _disable_current_modes():
            return super().__call__(*arguments, **keywords)


class _Bags(_StandIn):
    """Stands for an ``EmbeddingBagCollection``: a ``KeyedTensor``."""

    def __init__(
        self, path: str, collection: EmbeddingBagCollectionInterface, given: Given
    ) -> None:
        super().__init__()
        configs = collection.embedding_bag_configs()
        names = get_embedding_names_by_table(configs)
        self.path, self.given = path, given
        self.keys = list(itertools.chain(*names))
        self.widths = [
            config.embedding_dim for config, keys in zip(configs, names, strict=True) for _ in keys
        ]

    def forward(self, features: KeyedJaggedTensor, *_: object) -> KeyedTensor:
        samples, device = features.stride(), features.device()
        self.given.samples = max(self.given.samples, samples)
        values = self.given.made(self.path, samples, sum(self.widths), device=device)
        return KeyedTensor(keys=self.keys, length_per_key=self.widths, values=values)


class _Sequences(_StandIn):
    """Stands for an ``EmbeddingCollection``: jagged tensors by feature."""

    def __init__(self, path: str, collection: EmbeddingCollectionInterface, given: Given) -> None:
        super().__init__()
        configs = collection.embedding_configs()
        self.path, self.given = path, given
        self.outputs = [
            (name, feature, config.embedding_dim)
            for config, names in zip(configs, get_embedding_names_by_table(configs), strict=True)
            for name, feature in zip(names, config.feature_names, strict=True)
        ]

    def forward(self, features: KeyedJaggedTensor, *_: object) -> dict[str, JaggedTensor]:
        given, by_name = self.given, features.to_dict()
        given.samples = max(given.samples, features.stride())
        found = {}
        for name, feature, width in self.outputs:
            ids = by_name[feature]
            count, longest = ids.values().shape[0], 0
            if ids.lengths().numel() and not ids.lengths().is_meta:
                longest = int(ids.lengths().max())
            given.sequences[feature] = SequenceSize(longest, count)
            values = given.made(f"{self.path}.{name}", count, width, device=ids.values().device)
            found[name] = JaggedTensor(values=values, lengths=ids.lengths(), offsets=ids.offsets())
        return found


class _Remapped(_StandIn):
    """Stands for a collection with managed collisions: its output beside its remapped ids."""

    def __init__(self, inner: nn.Module, *, returns_ids: bool) -> None:
        super().__init__()
        self.inner, self.returns_ids = inner, returns_ids

    def forward(self, features: KeyedJaggedTensor, *_: object) -> tuple[Any, Any]:
        return self.inner(features), features if self.returns_ids else None


class _PlainRows(_StandIn):
    """Stands for an ``nn.Embedding`` or ``nn.EmbeddingBag`` whose table is planned."""

    def __init__(self, path: str, module: nn.Embedding | nn.EmbeddingBag, given: Given) -> None:
        super().__init__()
        self.path, self.given, self.width = path, given, module.embedding_dim
        self.is_bag = isinstance(module, nn.EmbeddingBag)
        self.include_last = bool(getattr(module, "include_last_offset", False))

    def forward(
        self, ids: torch.Tensor, offsets: torch.Tensor | None = None, *_: object
    ) -> torch.Tensor:
        shape = tuple(ids.shape)
        if self.is_bag:
            bags = ids.shape[0] if offsets is None else offsets.shape[0] - self.include_last
            shape = (bags,)
        return self.given.made(self.path, *shape, self.width, device=ids.device)


@dataclass(frozen=True, slots=True)
class DenseCopy:
    """A copy of a model that runs on a CPU, without its tables."""

    module: nn.Module
    given: Given
    num_dense_elements: int
    materialized: int
    """Parameters that were on the meta device, and are random numbers now."""
    on_meta: bool
    """Whether it has too many parameters for memory, and runs without data."""
    originals: frozenset[int]
    """Memory of the model's own parameters, which the copy must not read."""


def dense_copy(model: nn.Module, tables: Collection[str] = ()) -> DenseCopy:
    """Return a copy of a model with stand-ins in its tables' places.

    Parameters
    ----------
    model
        It stays as it is.
    tables
        Paths of ``nn.Embedding`` and ``nn.EmbeddingBag`` modules that are planned as tables.
        TorchRec's collections always are.

    Raises
    ------
    ReadingError
        It cannot be copied.

    """
    given, memo = Given(), dict[int, Any]()
    replaced = dict(_stand_ins(model, "", given, tables))
    inside = {id(p) for module in replaced for p in module.parameters()}
    memo.update({id(module): stand_in for module, stand_in in replaced.items()})
    dense = [p for p in model.parameters() if id(p) not in inside]
    if any(map(nn.parameter.is_lazy, dense)):
        raise refused("it has lazy layers, which have no parameters before their first batch")
    elements = sum(p.numel() for p in dense)
    on_meta = elements > MOST_REAL_ELEMENTS
    away = "meta" if on_meta else "cpu"
    memo.update({
        id(each): nn.Parameter(each.detach().to(away), each.requires_grad)
        for each in dense
        if each.device.type not in {away, "meta"}
    })
    memo.update((id(group), group) for group in process_groups(model))
    try:
        copied = memo[id(model)] if id(model) in memo else copy.deepcopy(model, memo)
    except Exception as error:  # whatever it is, the model's own way to be copied raised it
        raise refused(f"it cannot be copied: {error}") from error
    if on_meta:
        return DenseCopy(copied.to("meta"), given, elements, 0, on_meta, frozenset())
    materialized = _materialize(copied)
    originals = frozenset(map(memory_of, dense))
    return DenseCopy(copied.to("cpu"), given, elements, materialized, on_meta, originals)


def memory_of(tensor: torch.Tensor) -> int:
    """Return what tells the memory of tensors apart, on the meta device too."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - torch has no other name of it


def _stand_ins(
    module: nn.Module, path: str, given: Given, tables: Collection[str]
) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield modules with tables, outermost ones only, and what stands in for each."""
    stand_in = _stand_in(module, path, given, tables)
    if stand_in is not None:
        yield module, stand_in
        return
    for name, child in module.named_children():
        yield from _stand_ins(child, f"{path}.{name}" if path else name, given, tables)


def _stand_in(
    module: nn.Module, path: str, given: Given, tables: Collection[str]
) -> nn.Module | None:
    """Return what stands in for a module with tables; None: it has none."""
    if isinstance(module, _MANAGED) or type(module).__name__ in _WRAPPERS:
        inner = (
            _stand_in(each, path, given, ()) for each in module.modules() if each is not module
        )
        found = next((each for each in inner if each is not None), None)
        if found is None or not isinstance(module, _MANAGED):
            return found
        returns_ids = bool(vars(module).get("_return_remapped_features", False))
        return _Remapped(found, returns_ids=returns_ids)
    if isinstance(module, EmbeddingBagCollectionInterface):
        return _Bags(path, module, given)
    if isinstance(module, EmbeddingCollectionInterface):
        return _Sequences(path, module, given)
    if isinstance(module, _PLAIN) and path in tables:
        return _PlainRows(path, module, given)
    return None


def _materialize(model: nn.Module) -> int:
    """Give parameters and buffers of the meta device values; return how many parameters."""
    made = dict[int, nn.Parameter]()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta and id(parameter) not in made:
                values = torch.empty(parameter.shape, dtype=parameter.dtype).normal_(0, 0.05)
                made[id(parameter)] = nn.Parameter(values, parameter.requires_grad)
            if parameter.is_meta:
                module.register_parameter(name, made[id(parameter)])
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:
                setattr(module, name, torch.zeros(buffer.shape, dtype=buffer.dtype))
    return len(made)
