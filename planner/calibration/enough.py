"""Raising where a family of kernels has too few measurements to be fitted."""

from dataclasses import dataclass

from costmodel.base.errors import PlannerError
from planner.calibration.points import Family


@dataclass(eq=False)
class TooFewPointsError(PlannerError):
    """A family of kernels has fewer measurements than its model needs."""

    family: Family
    found: int
    needed: int
    what: str
    """Plural noun of the things that are counted."""

    def __post_init__(self) -> None:
        self.hint = (
            "the same command keeps what was measured, and measures the rest; "
            "points that find no memory are skipped, so free some first"
        )

    def __str__(self) -> str:
        return (
            f"cannot fit the `{self.family}` kernels: {self.found} {self.what} measured, "
            f"at least {self.needed} needed"
        )


def check_enough(family: Family, found: int, needed: int, what: str) -> None:
    """Raise `TooFewPointsError` if fewer were found than are needed."""
    if found < needed:
        raise TooFewPointsError(family, found, needed, what)
