"""Losses of a training run, step by step, and how far two runs of one model are apart."""

from collections.abc import Mapping, Sequence

Losses = Sequence[float]
"""One of every step."""


def largest_difference(one: Mapping[str, Losses], other: Mapping[str, Losses]) -> float | None:
    """Return the largest relative difference of two runs' losses over their ranks and steps.

    Each difference is relative to the larger of both; None: there is nothing to compare, or they
    have not the same ranks and steps.
    """
    if {rank: len(one[rank]) for rank in one} != {rank: len(other[rank]) for rank in other}:
        return None
    apart = [
        relative(*pair)
        for rank, losses in one.items()
        for pair in zip(losses, other[rank], strict=True)
    ]
    return max(apart, default=None)


def relative(one: float, other: float) -> float:
    """Return how far two numbers are apart, relative to the larger."""
    if one == other:
        return 0.0
    return abs(one - other) / max(abs(one), abs(other))
