"""The core a rank is pinned to: where it is, and what other processes take of it."""

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from costmodel.base.units import Seconds

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 7)
"""user, nice, system, steal: columns of a core's line in /proc/stat (proc(5)). Softirqs are left
out: those of loopback sockets are the ranks' own."""


def pin_to_core(rank: int) -> int | None:
    """Bind this process to one of the cores it may use, by its rank; None where that is unknown."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    core = cores[rank % len(cores)]
    os.sched_setaffinity(0, {core})
    return core


@dataclass(slots=True)
class CoreWatch:
    """How much of a core others have had since ``start``."""

    core: int | None
    _busy: Seconds = 0.0
    _own: Seconds = 0.0
    _wall: Seconds = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._busy, self._own, self._wall = self._busy_time(), process_time(), perf_counter()

    def foreign_share(self) -> float:
        """Return the share of the time since then in which the core ran something else."""
        wall = perf_counter() - self._wall
        own = process_time() - self._own
        others = self._busy_time() - self._busy - own
        return max(0.0, min(1.0, others / wall)) if self.core is not None and wall else 0.0

    def _busy_time(self) -> Seconds:
        """Return the seconds the core has been busy since it was switched on."""
        if self.core is None or not _STAT.exists():
            return 0.0
        for line in _STAT.read_text(encoding="ascii").splitlines():
            name, *ticks = line.split()
            if name == f"cpu{self.core}":
                return sum(int(ticks[i]) for i in _BUSY) / os.sysconf("SC_CLK_TCK")
        return 0.0
