"""The job that some traces are of: which of its ranks are recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from planner.traces.kineto import MOST_LISTED, RankTrace, listed
from planner.traces.kineto_events import is_collective

EVERY_RANK = (
    "of a simulated step, `planner simulate PLAN --trace DIR --ranks all` writes every rank's trace"
)
"""What to do where some ranks' traces are not there; of a recorded run nothing can be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """The ranks of a job, and those of them whose traces are there."""

    recorded: tuple[int, ...]
    """In order."""
    size: int | None
    """Number of ranks; None: more than one, and not recorded how many."""

    @property
    def is_whole(self) -> bool:
        """Whether the traces of all ranks are there."""
        return self.size == len(self.recorded)

    @property
    def text(self) -> str:
        """Which ranks of how many are recorded: ``rank 3 of 8``, ``ranks 0, 2 of 8``."""
        some = listed(self.recorded[:MOST_LISTED], len(self.recorded))
        size = "several" if self.size is None else f"{self.size:,}"
        return f"rank{'s' if len(self.recorded) > 1 else ''} {some} of {size}"

    @property
    def absent_text(self) -> str:
        """Which ranks' traces are not there; empty: unknown, or none."""
        if self.size is None or self.is_whole:
            return ""
        absent = (rank for rank in range(self.size) if rank not in self.recorded)
        return listed(list(islice(absent, MOST_LISTED)), self.size - len(self.recorded))


def job_of(traces: Sequence[RankTrace]) -> RecordedJob:
    """Return the job of some traces, by rank.

    Where none says how large the job is, the largest rank is taken to be its last; but a single
    trace with collectives is one of several.
    """
    ranks = tuple(trace.rank for trace in traces)
    sizes = [trace.world_size for trace in traces if trace.world_size]
    if sizes:
        return RecordedJob(recorded=ranks, size=max(sizes))
    if len(traces) > 1:
        return RecordedJob(recorded=ranks, size=max(ranks) + 1)
    alone = not any(map(is_collective, traces[0].activities))
    return RecordedJob(recorded=ranks, size=1 if alone else None)
