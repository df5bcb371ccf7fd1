"""What a process holds in large blocks, counted between it and the C library's allocator.

torch's profiler counts allocations too, but on threads that it knows: what gloo's threads free,
the last to hold a tensor, stays counted, and runs of one program differ by half.
"""

import ctypes
import subprocess
from pathlib import Path

from costmodel.base.units import Bytes

SOURCE = Path(__file__).with_suffix(".c")


def compiled(folder: Path) -> Path:
    """Compile the counter, for ``LD_PRELOAD``; needs a C compiler and glibc."""
    library = folder / "allocations.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)  # noqa: S603 - our own source
    return library


class Heap:
    """The present process's blocks since this was made; the counter must be preloaded."""

    def __init__(self) -> None:
        self._counter = ctypes.CDLL(None)
        for name in ("held_bytes", "most_bytes"):
            getattr(self._counter, name).restype = ctypes.c_long
        self._before: Bytes = self._counter.held_bytes()

    @property
    def held(self) -> Bytes:
        """Bytes held now."""
        return float(self._counter.held_bytes() - self._before)

    @property
    def peak(self) -> Bytes:
        """The most bytes held at once since ``forget_peak``."""
        return float(self._counter.most_bytes() - self._before)

    def forget_peak(self) -> None:
        """Let the peak be what is held now."""
        self._counter.forget_most()
