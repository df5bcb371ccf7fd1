"""Corrections of a model's times, learned from measurements: a rising line."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.base.units import Seconds


@dataclass(frozen=True, slots=True)
class TimeCorrection:
    """A function from a kernel model's seconds to corrected ones.

    Without knots it changes nothing.

    It is straight between knots; before the first and beyond the last it is proportional. As it
    rises everywhere, more work never takes less time, and no search gains by adding some.
    """

    knots: tuple[tuple[Seconds, Seconds], ...] = ()
    """Seconds by the model, and corrected; both increasing.

    Raises ValueError where they are not, or not above 0.
    """

    def __post_init__(self) -> None:
        rises = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(self.knots))
        if not rises or any(min(knot) <= 0 for knot in self.knots):
            raise ValueError(
                f"the knots of a correction must be above 0 and grow, got {self.knots}"
            )

    @property
    def least_factor(self) -> float:
        """The smallest ratio of corrected to given time."""
        return min((after / before for before, after in self.knots), default=1.0)

    @property
    def array(self) -> NDArray[np.float64]:
        """The knots, shape (knots, 2)."""
        return np.array(self.knots, dtype=np.float64).reshape(-1, 2)

    def corrected(self, seconds: ArrayLike) -> NDArray[np.float64]:
        """Return corrected times; ``times.Correction`` does the same for one kernel."""
        given = np.asarray(seconds, dtype=np.float64)
        if not self.knots:
            return given
        before, after = self.array.T
        inside = np.interp(given, before, after)
        ends = np.minimum(given / before[0], 1.0) * np.maximum(given / before[-1], 1.0)
        both: NDArray[np.float64] = inside * ends
        return both

    def scaled(self, factor: float) -> "TimeCorrection":
        """Return the correction of times that are all longer by a factor."""
        return TimeCorrection(tuple((factor * a, factor * b) for a, b in self.knots))


NO_CORRECTION = TimeCorrection()
