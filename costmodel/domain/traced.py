"""Times of profiled training steps, by name of operator and kernel."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.base.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOverheads:
    """Mean host overheads of one kind of outermost operator.

    References
    ----------
    arXiv 2201.07821, Fig. 4: T1 to T5.

    """

    name: str
    count: int
    before: Seconds
    """T1: between the operator before and this one."""
    lead: Seconds
    """T2: until the first launch."""
    tail: Seconds
    """T3: after the last launch."""
    call: Seconds
    """T4: of one launch call."""
    between: Seconds
    """T5: between launches, or all of an operator that launches nothing."""

    def own_time(self, num_launches: int) -> Seconds:
        """Return the host's time from the operator before to the end of this one.

        t = T1 + T2 + n T4 + (n - 1) T5 + T3,   T1 + T5 without launches
        """
        if not num_launches:
            return self.before + self.between
        inner = num_launches * self.call + (num_launches - 1) * self.between
        return self.before + self.lead + inner + self.tail


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kind of kernel."""

    name: str
    count: int
    median: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTimes:
    """Times that a profile has from the traces of a job, each name once."""

    operators: Mapping[str, OperatorOverheads] = field(default_factory=dict)
    kernels: Mapping[str, KernelTime] = field(default_factory=dict)
