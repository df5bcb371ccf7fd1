"""CPU times of calls whose operands rotate over memory near or far."""

import statistics
import time
from collections.abc import Callable
from itertools import cycle
from math import prod

import torch

NEAR, FAR = 2**19, 48 * 2**20
"""Bytes that the L2 cache of a core holds, and that no cache does."""
_ARENA = 160 * 2**20
_MOST_COPIES = 400
SAMPLES = 9

Call = Callable[[], object]


def cpu_time(call: Call) -> float:
    """Return the median CPU time of a call."""
    call()
    begin = time.thread_time_ns()
    call()
    once = time.thread_time_ns() - begin
    inner = max(1, min(50, int(2e5 / max(once, 1))))
    samples = []
    for _ in range(SAMPLES):
        begin = time.thread_time_ns()
        for _ in range(inner):
            call()
        samples.append((time.thread_time_ns() - begin) / inner * 1e-9)
    return statistics.median(samples)


class _Arena:
    """Memory that inputs are cut from, one behind the other, so that each comes from afar."""

    def __init__(self) -> None:
        self.data = torch.empty(_ARENA // 4)
        self.at = 0
        self.rotated = NEAR
        self.refill()

    def refill(self) -> None:
        """Fill it with numbers between 0.1 and 1.1: safe to divide by, far from denormal."""
        torch.rand(self.data.shape, out=self.data).add_(0.1)

    def turn(self) -> None:
        """Begin again where enough was cut."""
        self.at = 0 if 4 * self.at >= self.rotated else self.at

    def cut(self, *shape: int, pad: int = 0) -> torch.Tensor:
        """Return the next tensor; rows are ``pad`` elements apart."""
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if pad:
            strides[0] += pad
        span = -(-(strides[0] * shape[0] + 16) // 16) * 16
        cut = self.data.as_strided(shape, strides, self.at)
        self.at += span
        return cut


ARENA = _Arena()
PLACES = (("seconds", NEAR), ("far_seconds", FAR))
"""Names of times in results, and over how much memory operands rotate."""


def rotating(make: Callable[[], tuple[torch.Tensor, ...]], function: Callable[..., object]) -> Call:
    """Return calls of a function with one set of inputs after the other."""
    ARENA.at = 0
    first = make()
    size = sum(t.numel() * t.element_size() for t in first)
    copies = min(_MOST_COPIES, int(ARENA.rotated / max(size, 1)))
    inputs = [first]
    for _ in range(copies):
        ARENA.turn()
        inputs.append(make())
    pool = cycle(inputs)
    return lambda: function(*next(pool))
