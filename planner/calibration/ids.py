"""Drawing the ids of a batch by a Zipf law, hashed over the table."""

from typing import Any

import torch

_HEAD = 4096
"""Number of ranks with exact probabilities; beyond, the power law is integrated."""
_MULTIPLIER = 2_654_435_761
"""A prime (Knuth's multiplicative hash): rank times it, modulo the rows, is a permutation unless
the number of rows is a multiple of it."""


def draw_ids(num_ids: int, num_embeddings: int, zipf: float, generator: Any) -> Any:  # noqa: ANN401
    """Return ids drawn with probability in proportion to rank ** -zipf.

    A hash scatters the ranks.
    """
    device = generator.device
    uniform = torch.rand(num_ids, generator=generator, device=device, dtype=torch.float64)
    if zipf == 0:
        return (uniform * num_embeddings).long().clamp_(max=num_embeddings - 1)
    head = min(_HEAD, num_embeddings)
    ranks = torch.arange(1, head + 1, device=device, dtype=torch.float64)
    mass = (ranks**-zipf).cumsum(0)
    start = head + 0.5
    tail = _integral(start, num_embeddings + 0.5, zipf)
    target = uniform * (float(mass[-1]) + tail)
    drawn = torch.searchsorted(mass, target)
    beyond = _inverse(start, (target - mass[-1]).clamp_(min=0), zipf) - 0.5
    rank = torch.where(drawn < head, drawn, beyond.long())
    rank.clamp_(max=num_embeddings - 1)
    return rank * _MULTIPLIER % num_embeddings


def draw_lengths(num_samples: int, pooling_factor: float, generator: Any) -> Any:  # noqa: ANN401
    """Return ids per sample, the two whole numbers around the pooling factor, with its mean."""
    whole = int(pooling_factor)
    device = generator.device
    more = torch.rand(num_samples, generator=generator, device=device) < pooling_factor - whole
    return whole + more.long()


def _integral(low: float, high: float, exponent: float) -> float:
    """Return the integral of x ** -exponent."""
    if high <= low:
        return 0.0
    if abs(exponent - 1) < 1e-9:
        return float(torch.log(torch.tensor(high / low, dtype=torch.float64)))
    power = 1 - exponent
    return float((high**power - low**power) / power)


def _inverse(low: float, mass: Any, exponent: float) -> Any:  # noqa: ANN401 - tensors
    """Return the end of the interval from ``low`` over which the integral is ``mass``."""
    if abs(exponent - 1) < 1e-9:
        return low * torch.exp(mass)
    power = 1 - exponent
    # rounding may leave the last draws beyond the range of the power's inverse
    return (low**power + power * mass).clamp_(min=1e-300) ** (1 / power)
