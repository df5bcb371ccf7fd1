"""Batches made up for a model whose forward takes sparse features and dense numbers."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, get_type_hints

import torch
from torch import nn
from torchrec.datasets.utils import Batch
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollectionInterface,
    EmbeddingCollectionInterface,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planner.operators.batches import BatchArguments
from planner.operators.recording import Recorder
from planner.operators.refusals import GIVE_A_BATCH, ReadingError, refused
from planner.operators.stand_ins import DenseCopy


class MadeSize(NamedTuple):
    """How large a made batch is."""

    samples: int
    longest: int = 0
    """Ids of the longest sequence."""
    ids: int = 0
    """Ids of all sequences of one feature."""
    own: tuple[tuple[int, int], ...] = ()
    """The two of each feature that is a sequence, where they differ."""


SIZES = (
    MadeSize(24, 11, 80), MadeSize(40, 11, 120), MadeSize(24, 17, 80), MadeSize(40, 17, 150),
    MadeSize(56, 13, 150), MadeSize(30, 19, 210), MadeSize(64, 23, 333), MadeSize(36, 15, 99),
    MadeSize(50, 21, 261),
)  # fmt: skip
"""Sizes of batches whose sequences have one length: eight for the five terms, one to check."""
PLAIN_SIZES = (MadeSize(24), MadeSize(40), MadeSize(50))
"""The same where no feature is a sequence."""
MOST_APART = 6
"""Sequences that have lengths of their own, three terms each; more have one."""
_LABELS = ("label", "target")
"""In the names of parameters of forward that are a number per sample."""


@dataclass(frozen=True, slots=True)
class _Feature:
    name: str
    num_embeddings: int
    is_sequence: bool = False
    is_weighted: bool = False


def sizes_apart(number: int) -> list[MadeSize]:
    """Return sizes of batches whose sequences, so many, have lengths of their own.

    There are two more than the terms that they are to tell apart.
    """
    draw, found = Random(0), []  # noqa: S311 - the same every time
    for _ in range(4 + 3 * number):
        samples, own = draw.randrange(24, 64, 2), []
        for _ in range(number):
            longest = draw.randrange(8, 24)
            own.append((longest, samples + longest + draw.randrange(100)))
        found.append(MadeSize(samples, *own[0], tuple(own)))
    return found


def num_sequences(model: nn.Module) -> int:
    """Return how many features of a model's embedding modules are sequences."""
    return sum(each.is_sequence for each in _features(model))


def made_batches(
    model: nn.Module, copy: DenseCopy, sizes: Sequence[MadeSize] = ()
) -> list[BatchArguments]:
    """Return batches of the features of a model's embedding modules, of the sizes told.

    Without sizes they are as many as are needed to see how those of tensors depend on them, and
    one more to check.

    Sequences have the same lengths in all features, unless a size says otherwise; other features
    have one id for each sample. As many dense numbers are given as the first layer that reads them
    takes.

    Raises
    ------
    ReadingError
        Forward takes something else.

    """
    features = _features(model)
    forward = _Forward(model, features)
    width = _dense_width(copy, forward.batch(PLAIN_SIZES[0]._replace(longest=1)))
    has_sequences = any(each.is_sequence for each in features)
    sizes = sizes or (SIZES if has_sequences else PLAIN_SIZES)
    return [forward.batch(size, width) for size in sizes]


def _features(model: nn.Module) -> tuple[_Feature, ...]:
    """Return the features of all tables of a model, each once."""
    found: dict[str, _Feature] = {}
    for module in model.modules():
        configs = table_configs(module)
        is_sequence = isinstance(module, EmbeddingCollectionInterface)
        weighted = not is_sequence and bool(configs) and bool(module.is_weighted())
        for config in configs:
            for name in config.feature_names:
                known = found.get(name, _Feature(name, config.num_embeddings))
                found[name] = _Feature(
                    name,
                    min(known.num_embeddings, config.num_embeddings),
                    known.is_sequence or is_sequence,
                    known.is_weighted or weighted,
                )
    return tuple(found.values())


def table_configs(module: nn.Module | None) -> Sequence[Any]:
    """Return the configurations of a collection's tables; of other modules none."""
    configs: Sequence[Any] = ()
    if isinstance(module, EmbeddingBagCollectionInterface):
        configs = module.embedding_bag_configs()
    elif isinstance(module, EmbeddingCollectionInterface):
        configs = module.embedding_configs()
    return configs


class _Forward:
    """Makes what a model's forward takes."""

    def __init__(self, model: nn.Module, features: Sequence[_Feature]) -> None:
        self.features = features
        self.kinds = list(_kinds(model))

    def batch(self, size: MadeSize, width: int = 1) -> BatchArguments:
        """Return a batch with so many dense numbers of a sample."""
        generator = torch.Generator().manual_seed(size.samples)
        made = [self._made(kind, size, width, generator) for kind in self.kinds]
        return BatchArguments(tuple(made), size.samples, made_up=True)

    def _made(
        self, kind: str, size: MadeSize, width: int, generator: torch.Generator
    ) -> torch.Tensor | KeyedJaggedTensor | Batch:
        """Return random values of one kind of argument."""
        if kind == "sparse":
            return self._sparse(size, generator)
        if kind == "labels":
            return torch.randint(0, 2, (size.samples,), generator=generator).float()
        dense = torch.rand(size.samples, width, generator=generator)
        if kind == "dense":
            return dense
        labels = torch.randint(0, 2, (size.samples,), generator=generator)
        return Batch(dense, self._sparse(size, generator), labels)

    def _sparse(self, size: MadeSize, generator: torch.Generator) -> KeyedJaggedTensor:
        """Return random ids of all features: one a sample, or several of sequences."""
        ones = torch.ones(size.samples, dtype=torch.int32)
        shared = lengths(size) if size.longest > 1 else ones
        own = iter(lengths(MadeSize(size.samples, *each)) for each in size.own)
        each_length = [
            (next(own) if size.own else shared) if each.is_sequence else ones
            for each in self.features
        ]
        ids = [
            torch.randint(0, each.num_embeddings, (int(length.sum()),), generator=generator)
            for each, length in zip(self.features, each_length, strict=True)
        ]
        values = torch.cat(ids)
        weighted = any(each.is_weighted for each in self.features)
        return KeyedJaggedTensor(
            keys=[each.name for each in self.features],
            values=values,
            lengths=torch.cat(each_length),
            weights=torch.rand(len(values), generator=generator) if weighted else None,
        )


def lengths(size: MadeSize) -> torch.Tensor:
    """Return lengths of sequences that come to the ids, the first one the longest."""
    made = [size.longest] + [1] * (size.samples - 1)
    left, at = size.ids - sum(made), 0
    while left > 0:
        at = at + 1 if at + 1 < size.samples else 1
        more = min(left, (at * 7 + left) % 3, size.longest - made[at])
        made[at] += more
        left -= more
    return torch.tensor(made, dtype=torch.int32)


def _kinds(model: nn.Module) -> Iterator[str]:
    """Yield what each parameter of forward without a default takes."""
    forward = model.forward
    try:
        hints = get_type_hints(forward)
    except (NameError, TypeError, AttributeError):  # of names that are imported for types alone
        hints = {}
    for name, parameter in inspect.signature(forward).parameters.items():
        hint = hints.get(name, parameter.annotation)
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        if parameter.default is not parameter.empty:
            continue
        kind = _kind(name, hint)
        if kind is None:
            called = getattr(hint, "__name__", str(hint))
            told = "" if hint is parameter.empty else f" ({called})"
            raise refused(f"its forward takes `{name}`{told}", GIVE_A_BATCH)
        yield kind


def _kind(name: str, hint: object) -> str | None:
    """Return what an argument of forward is, by its type and name; None: not known."""
    if hint is KeyedJaggedTensor:
        return "sparse"
    if hint is Batch:
        return "batch"
    if hint is torch.Tensor:
        return "labels" if any(each in name for each in _LABELS) else "dense"
    return None


class _WidthFound(Exception):  # noqa: N818 - it ends a run, as StopIteration does
    """The first layer that reads the dense numbers takes so many."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.width = width


def _dense_width(copy: DenseCopy, batch: BatchArguments) -> int:
    """Return how many dense numbers of a sample a model takes.

    It is run with one, up to the first layer that is given fewer inputs than it takes: they are
    what it lacks, and that one.
    """
    hooks = [
        module.register_forward_pre_hook(_check_width)
        for module in copy.module.modules()
        if _inputs(module)
    ]
    batch = batch.on("meta") if copy.on_meta else batch
    try:
        with Recorder(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            batch.run(copy.module)
    except _WidthFound as found:
        return found.width
    except ReadingError:
        raise
    except Exception:  # noqa: BLE001 - the run with that width says what is wrong, and where
        return 1
    finally:
        for hook in hooks:
            hook.remove()
    return 1


def _inputs(module: nn.Module) -> int:
    """Return the width of what a layer takes; 0 of others than linear layers and norms."""
    if isinstance(module, nn.Linear):
        return int(module.in_features)
    if isinstance(module, nn.BatchNorm1d):
        return int(module.num_features)
    return int(module.normalized_shape[-1]) if isinstance(module, nn.LayerNorm) else 0


def _check_width(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    given = arguments[0].shape[-1]
    if 0 < given < _inputs(module):
        raise _WidthFound(1 + _inputs(module) - given)
