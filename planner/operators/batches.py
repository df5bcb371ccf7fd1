"""What a model's forward is called with: batches that a script gives, and cuts of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from inspect import Parameter, signature
from typing import Any, TypeAlias

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from planner.operators.refusals import refused

GivenBatch: TypeAlias = Any
"""What forward is called with: a tuple of its arguments, or the only one."""
LEAST_SIZES = 3
"""Different numbers of samples: two tell how sizes depend on them, and one checks."""
MOST_SAMPLES = 128
"""Samples of the largest batch that a model is run with."""
NUM_CUTS = 9
"""Cuts of a batch that a model is run with, unless it has sequences of many lengths."""


@dataclass(frozen=True, slots=True)
class BatchArguments:
    """What one call of forward takes."""

    arguments: tuple[Any, ...]
    samples: int
    keywords: Mapping[str, Any] = field(default_factory=dict)
    made_up: bool = False

    @classmethod
    def of(cls, batch: GivenBatch, *, by_name: bool = False) -> "BatchArguments":
        """Return a batch that was given; ``by_name``: a dict is forward's keywords."""
        samples = _samples(batch)
        if by_name and isinstance(batch, Mapping):
            return cls((), samples, batch)
        return cls(batch if type(batch) is tuple else (batch,), samples)

    def on(self, device: str) -> "BatchArguments":
        """Return it on a device."""
        return self._mapped(lambda each: each.to(device), self.samples)

    def anew(self) -> "BatchArguments":
        """Return it without what jagged features keep of what was worked out of them."""
        return self._mapped(_anew, self.samples)

    def cut(self, samples: int, *, last: bool = False) -> "BatchArguments":
        """Return its first samples, or its last."""
        start = self.samples - samples if last else 0
        return self._mapped(_Cut(self.samples, start, start + samples), samples)

    def _mapped(self, function: Callable[[Any], Any], samples: int) -> "BatchArguments":
        arguments, keywords = (mapped(each, function) for each in (self.arguments, self.keywords))
        return BatchArguments(arguments, samples, keywords, self.made_up)

    def run(self, module: nn.Module) -> Any:  # noqa: ANN401 - whatever a model returns
        """Return what a model returns for it."""
        return module(*self.arguments, **self.keywords)


def takes_keywords(model: nn.Module) -> bool:
    """Tell whether forward takes its arguments by name only."""
    kinds = [each.kind for each in signature(model.forward).parameters.values()]
    return bool(kinds) and set(kinds) <= {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}


def leaves(value: object) -> Iterator[torch.Tensor]:
    """Yield the floating tensors of what a model returns."""
    found: list[torch.Tensor] = []

    def keep(each: Any) -> Any:  # noqa: ANN401 - a tensor or one of TorchRec's
        tensor = each if isinstance(each, torch.Tensor) else each.values()
        if tensor.is_floating_point():
            found.append(tensor)
        return each

    mapped(value, keep)
    yield from found


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - of any form
    """Return a structure with a function of its tensors, TorchRec's kinds of them among these."""
    if isinstance(value, torch.Tensor | KeyedJaggedTensor | KeyedTensor | JaggedTensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: mapped(each, function) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(each, function) for each in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(each, function) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return replace(value, **mapped(own, function))
    if (
        not isinstance(value, type | nn.Module)
        and hasattr(value, "to")
        and hasattr(value, "__dict__")
    ):
        own, value = vars(value), copy(value)  # a class of batches, as training pipelines take
        vars(value).update(mapped(own, function))
    return value


def _samples(batch: GivenBatch) -> int:
    """Return the samples of a batch: those of its jagged features, else its first tensor's rows."""
    found: list[Any] = []

    def keep(each: Any) -> Any:  # noqa: ANN401 - as above
        found.append(each)
        return each

    mapped(batch, keep)
    keyed = next((each for each in found if isinstance(each, KeyedJaggedTensor)), None)
    if keyed is not None:
        return int(keyed.stride())
    tensors = (each.values() if isinstance(each, KeyedTensor) else each for each in found)
    rows = (len(each) for each in tensors if isinstance(each, torch.Tensor) and each.dim())
    return next(rows, 0)


def _anew(value: Any) -> Any:  # noqa: ANN401 - a tensor or one of TorchRec's
    if not isinstance(value, KeyedJaggedTensor) or value.variable_stride_per_key():
        return value
    lengths, weights = value.lengths_or_none(), value.weights_or_none()
    offsets = value.offsets_or_none() if lengths is None else None
    return KeyedJaggedTensor(value.keys(), value.values(), weights, lengths, offsets)


class _Cut:
    """Takes samples from ``start`` to ``end`` of tensors of as many rows as a batch has samples."""

    def __init__(self, of: int, start: int, end: int) -> None:
        self.of, self.start, self.end = of, start, end

    def __call__(self, value: Any) -> Any:  # noqa: ANN401 - a tensor or one of TorchRec's
        """Return the samples of what has the batch's length, and all else as it is."""
        if isinstance(value, KeyedJaggedTensor):
            return self._keyed(value) if value.stride() == self.of else value
        if isinstance(value, KeyedTensor):
            values = self(value.values())
            return KeyedTensor(value.keys(), value.length_per_key(), values)
        if isinstance(value, JaggedTensor):
            return self._jagged(value)
        return value[self.start : self.end] if value.dim() and len(value) == self.of else value

    def _keyed(self, value: KeyedJaggedTensor) -> KeyedJaggedTensor:
        parts = {key: self._jagged(each) for key, each in value.to_dict().items()}
        return KeyedJaggedTensor.from_jt_dict(parts)

    def _jagged(self, value: JaggedTensor) -> JaggedTensor:
        if len(value.lengths()) != self.of:
            return value
        before = int(value.lengths()[: self.start].sum())
        lengths = value.lengths()[self.start : self.end]
        rows, weights = slice(before, before + int(lengths.sum())), value.weights_or_none()
        return JaggedTensor(
            values=value.values()[rows],
            lengths=lengths,
            weights=None if weights is None else weights[rows],
        )


def given_batches(
    batches: Sequence[GivenBatch], number: int = NUM_CUTS, *, by_name: bool = False
) -> list[BatchArguments]:
    """Return the batches to run a model with; the last one is to check.

    They are those given, if they have enough different numbers of samples and few of them, or else
    so many cuts of the largest, of first and last samples in turns: the longest sequence is not to
    be in all of them. ``by_name``: dicts are forward's keywords.

    Raises
    ------
    ReadingError
        There is none, or it has too few samples to see how sizes depend on them.

    """
    given = [BatchArguments.of(each, by_name=by_name) for each in batches]
    if len({each.samples for each in given}) >= LEAST_SIZES and all(
        each.samples <= MOST_SAMPLES for each in given
    ):
        return given
    largest = max(given, key=lambda each: each.samples, default=None)
    counts: Sequence[int] = ()
    if largest is not None:
        most = min(largest.samples, MOST_SAMPLES)
        counts = [max(2, round(share * most)) for share in _shares(number)]
    if largest is None or len(set(counts)) < LEAST_SIZES:
        raise refused(
            "the sample batches have too few samples to see how sizes depend on them",
            "give one of 16 or more, or several of different numbers of samples",
        )
    return [largest.cut(each, last=bool(turn % 2)) for turn, each in enumerate(counts)]


def _shares(number: int) -> Iterator[float]:
    """Yield the shares of a batch that its cuts have, all of it to a fifth; the last checks."""
    yield from (1.0 - 0.8 * each / (number - 2) for each in range(number - 1))
    yield 0.45
