"""A step as the models say, were they exact: no number to quote, and of a type of its own."""

from dataclasses import dataclass

from costmodel.base.units import Seconds


@dataclass(frozen=True, slots=True, order=True)
class Modelled:
    """Seconds of a step by the models, without their errors.

    The step to quote is the expected one (``Report.step_time``), plain seconds. A ratio of the
    two says nothing of a plan, so that these seconds are divided by others of their kind alone.
    """

    seconds: Seconds

    def __truediv__(self, other: "Modelled") -> float:
        """Return this step over another one."""
        return self.seconds / other.seconds if isinstance(other, Modelled) else NotImplemented
