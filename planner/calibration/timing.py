"""Repeated timings and their summary."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from costmodel.base.units import Seconds

UNSTABLE = 0.2
"""Smallest spread of repeats that is called unstable: twice the error that models aim at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Repeated timings of one thing."""

    seconds: Seconds
    """Median of the device's clock."""
    wall: Seconds
    """Median of the wall clock."""
    spread: float
    """Interquartile range over the median."""
    repeats: int

    def divided(self, count: int) -> "Timing":
        """Return the timing of one of ``count`` runs in a row."""
        return Timing(
            seconds=self.seconds / count,
            wall=self.wall / count,
            spread=self.spread,
            repeats=self.repeats,
        )


def summary(seconds: Sequence[Seconds], wall: Sequence[Seconds]) -> Timing:
    """Return median and spread of repeated timings."""
    middle, spread = median(seconds), 0.0
    if len(seconds) >= 2 and middle > 0:
        low, _, high = quantiles(seconds, n=4)
        spread = (high - low) / middle
    return Timing(seconds=middle, wall=median(wall), spread=spread, repeats=len(seconds))
