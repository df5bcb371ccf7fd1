"""Embedding kernels from a small neural network, evaluated with plain arrays.

Two forms, after Lin et al.: every table of a kernel goes through one encoder, whose results are
added up over the tables of the kernel.

* ``head``, the paper's: the sum goes through a second network, which gives log times;
* ``sum``, ours: the encoder gives log times of tables, and a kernel takes a constant and the sum of
  its tables' times. Tables then never make a kernel faster, and far fewer points teach it.

Networks are trained by ``bench.learned.training``, with torch. A layer is ``x W + b``; between
layers stands SiLU, x / (1 + exp(-x)).

References
----------
Lin et al., arXiv 2404.12674, section III-C: shared encoder, sum over tables, features log of batch,
rows, ids per sample and columns, and the 17 bins of reuse factors.

"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import Optimizer
from costmodel.inputs.reuse import NUM_BINS

Array = NDArray[np.float64]

KINDS = (*(optimizer.value for optimizer in Optimizer), ComputeKernel.DENSE.value)
"""What a backward does with gradients: one of the fused optimizers, or writes them out."""
SIZES = ("log_rows", "log_columns", "log_pooling", "log_samples")
REUSE = ("log_reuse", *(f"bin_{bin_}" for bin_ in range(NUM_BINS)))
FEATURES = (*SIZES, *REUSE, *KINDS)
"""Columns of the features of a table."""
DIRECTIONS = ("forward", "backward")
FARTHEST = 5.0
"""Standard deviations from the mean at which a feature stops: of 1,024 measured points only bins of
many hits lie beyond."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """One linear layer."""

    weight: Array
    """Inputs by outputs."""
    bias: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedEmbedding:
    """A trained network."""

    columns: tuple[str, ...]
    """Features it looks at."""
    mean: Array
    """Mean of every such feature over the points that trained it."""
    scale: Array
    """Standard deviation of it."""
    encoder: tuple[Layer, ...]
    head: tuple[Layer, ...]
    """The paper's second network; empty for the form ``sum``."""
    constant: Array
    """Log seconds: ``sum``: of an empty kernel, forward and backward; ``head``: added to all."""

    def log_seconds(self, features: Array, kernel: NDArray[np.intp], num_kernels: int) -> Array:
        """Return the log seconds of kernels, forward and backward: shape (num_kernels, 2).

        Parameters
        ----------
        features
            A row for every table, a column for each of ``FEATURES``.
        kernel
            The kernel that every table belongs to.
        num_kernels
            How many there are; one without tables takes the constant (``sum``) only.

        """
        chosen = [FEATURES.index(name) for name in self.columns]
        encoded = _network(self.encoder, standardised(features[:, chosen], self.mean, self.scale))
        if self.head:
            total = np.zeros((num_kernels, encoded.shape[1]))
            np.add.at(total, kernel, _silu(encoded))
            return _network(self.head, total) + self.constant
        seconds = np.tile(np.exp(self.constant), (num_kernels, 1))
        np.add.at(seconds, kernel, np.exp(encoded + self.constant))
        logs: Array = np.log(seconds)
        return logs


def standardised(features: Array, mean: Array, scale: Array) -> Array:
    """Return features in standard deviations from their mean, none beyond five.

    Most tables have no rows in most of the bins of many hits; the first that has some would lie
    far outside everything a network has seen.
    """
    near: Array = np.clip((features - mean) / scale, -FARTHEST, FARTHEST)
    return near


def table_features(
    *,
    num_rows: float,
    num_columns: float,
    num_lookups: float,
    num_samples: float,
    rows_by_hits: Sequence[float],
    kind: str,
) -> tuple[float, ...]:
    """Return the features of one table in one kernel.

    Parameters
    ----------
    num_rows, num_columns
        Of the table, or the shard of it.
    num_lookups
        Ids of the batch that fall on it.
    num_samples
        Samples of the batch.
    rows_by_hits
        Distinct rows of the batch in the 17 reuse bins.
    kind
        One of ``KINDS``.

    """
    distinct = max(float(sum(rows_by_hits)), 1.0)
    lookups = max(num_lookups, 1.0)
    return (
        log(num_rows),
        log(num_columns),
        log(lookups / num_samples),
        log(num_samples),
        log(max(lookups / distinct, 1.0)),
        *(rows / distinct for rows in rows_by_hits),
        *(float(kind == name) for name in KINDS),
    )


def _network(layers: Sequence[Layer], values: Array) -> Array:
    for number, layer in enumerate(layers):
        values = (_silu(values) if number else values) @ layer.weight + layer.bias
    return values


def _silu(values: Array) -> Array:
    result: Array = values / (1.0 + np.exp(-np.clip(values, -60.0, 60.0)))
    return result
