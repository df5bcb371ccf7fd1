"""Trains the networks of ``bench.learned.network`` on measured kernels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from bench.learned.network import (
    DIRECTIONS,
    FEATURES,
    Layer,
    LearnedEmbedding,
    standardised,
)

Array = NDArray[np.float64]

_HUBER = 0.1
"""Log error from which on the loss grows linearly: single points may be noise."""
_WEIGHT_DECAY = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredKernels:
    """Kernels as arrays: the tables of all, one after the other."""

    features: Array
    """Tables by ``FEATURES``."""
    kernel: NDArray[np.intp]
    """The kernel of every table."""
    seconds: Array
    """Kernels by forward and backward."""

    def part(self, chosen: NDArray[np.bool_]) -> "MeasuredKernels":
        """Return some of the kernels."""
        tables = chosen[self.kernel]
        number = np.cumsum(chosen) - 1
        return MeasuredKernels(
            features=self.features[tables],
            kernel=number[self.kernel[tables]],
            seconds=self.seconds[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a network is trained."""

    columns: tuple[str, ...] = FEATURES
    """Features it may look at."""
    with_head: bool = False
    """The paper's form; otherwise times of tables add up."""
    width: int = 64
    epochs: int = 120
    num_batches: int = 7
    learning_rate: float = 6e-3
    """The highest; it rises and falls once (Smith and Topin, super-convergence, 2018)."""
    seed: int = 0


def train(kernels: MeasuredKernels, training: Training) -> LearnedEmbedding:
    """Return the network that minimises the Huber loss of log times. Deterministic for a seed."""
    torch.manual_seed(training.seed)
    chosen = [FEATURES.index(name) for name in training.columns]
    values = kernels.features[:, chosen]
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    scale = np.where(deviation > 1e-3, deviation, 1.0)
    logs = np.log(kernels.seconds)
    constant = logs.mean(axis=0) if training.with_head else logs.min(axis=0)
    network = _Network(len(chosen), training)
    tables, mask = _padded(standardised(values, mean, scale), kernels.kernel, len(logs))
    with _one_thread():
        _fit(network, (tables, mask, torch.tensor(logs - constant, dtype=torch.float32)), training)
    return LearnedEmbedding(
        columns=training.columns,
        mean=mean,
        scale=scale,
        encoder=_layers(network.encoder),
        head=_layers(network.head),
        constant=constant + _array(network.constant),
    )


class _Network(torch.nn.Module):  # type: ignore[misc] # torch is untyped here
    """The network while it is trained, on kernels padded to equally many tables."""

    def __init__(self, num_inputs: int, training: Training) -> None:
        super().__init__()
        width, out = training.width, len(DIRECTIONS)
        head = training.with_head
        self.encoder = _linears(
            (num_inputs, width, width) if head else (num_inputs, width, width, out)
        )
        self.head = _linears((width, width, out) if head else ())
        self.constant = torch.nn.Parameter(torch.zeros(out), requires_grad=not head)

    def forward(self, tables: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        encoded = _run(self.encoder, tables)
        if len(self.head):
            total = (torch.nn.functional.silu(encoded) * mask).sum(1)
            return _run(self.head, total) + self.constant
        none = torch.zeros_like(encoded[:, :1])
        masked = torch.cat((none, encoded + (mask - 1.0) * 1e4), dim=1)
        return torch.logsumexp(masked, dim=1) + self.constant


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: the products are too small to share."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _linears(widths: Sequence[int]) -> torch.nn.ModuleList:
    return torch.nn.ModuleList([torch.nn.Linear(*pair) for pair in pairwise(widths)])


def _run(layers: torch.nn.ModuleList, values: torch.Tensor) -> torch.Tensor:
    for number, layer in enumerate(layers):
        values = layer(torch.nn.functional.silu(values) if number else values)
    return values


def _fit(network: _Network, data: tuple[torch.Tensor, ...], training: Training) -> None:
    tables, mask, logs = data
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=training.learning_rate, weight_decay=_WEIGHT_DECAY
    )
    steps = training.epochs * training.num_batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, training.learning_rate, total_steps=steps
    )
    for batch in _batches(len(logs), training):
        predicted = network(tables[batch], mask[batch])
        loss = torch.nn.functional.smooth_l1_loss(predicted, logs[batch], beta=_HUBER)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _batches(number: int, training: Training) -> Iterator[NDArray[np.intp]]:
    generator = np.random.default_rng(training.seed)
    for _ in range(training.epochs):
        yield from np.array_split(generator.permutation(number), training.num_batches)


def _padded(
    values: Array, kernel: NDArray[np.intp], num_kernels: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tables by kernel and place in it, and which places are taken."""
    counts = np.bincount(kernel, minlength=num_kernels)
    place = np.concatenate([np.arange(count) for count in counts])
    tables = np.zeros((num_kernels, int(counts.max()), values.shape[1]), dtype=np.float32)
    mask = np.zeros((*tables.shape[:2], 1), dtype=np.float32)
    order = np.argsort(kernel, kind="stable")
    tables[kernel[order], place] = values[order]
    mask[kernel[order], place] = 1.0
    return torch.tensor(tables), torch.tensor(mask)


def _layers(linears: torch.nn.ModuleList) -> tuple[Layer, ...]:
    return tuple(Layer(weight=_array(layer.weight).T, bias=_array(layer.bias)) for layer in linears)


def _array(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().numpy(), dtype=np.float64)
