"""The core a rank is pinned to, and how much of it other processes use."""

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from costmodel.base.units import Seconds

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 7)
"""Columns user, nice, system and steal of a core's line in /proc/stat (proc(5)). Softirqs are left
out: those of loopback sockets are the ranks' own."""


def pin_to_core(rank: int) -> int | None:
    """Pin this process to one of its cores by its rank, and return the core; None: unknown."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    core = cores[rank % len(cores)]
    os.sched_setaffinity(0, {core})
    return core


@dataclass(slots=True)
class CoreWatch:
    """Measures the share of a core that other processes use from ``start`` on."""

    core: int | None
    _busy: Seconds = 0.0
    _own: Seconds = 0.0
    _wall: Seconds = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._busy, self._own, self._wall = self._busy_time(), process_time(), perf_counter()

    def foreign_share(self) -> float:
        """Return the share of the time since ``start`` in which other processes used the core."""
        wall = perf_counter() - self._wall
        own = process_time() - self._own
        others = self._busy_time() - self._busy - own
        return max(0.0, min(1.0, others / wall)) if self.core is not None and wall else 0.0

    def _busy_time(self) -> Seconds:
        """Return the seconds for which the core has been busy since boot."""
        if self.core is None or not _STAT.exists():
            return 0.0
        for line in _STAT.read_text(encoding="ascii").splitlines():
            name, *ticks = line.split()
            if name == f"cpu{self.core}":
                return sum(int(ticks[i]) for i in _BUSY) / os.sysconf("SC_CLK_TCK")
        return 0.0
