"""The measured device: timing on it, emptying its cache, and waiting for it.

On CUDA a kernel's time is between two events on its stream, behind a wait that is so long that the
host gets ahead: filling a buffer over and over is issued kernel by kernel, too, and on a slow host
(8 us a launch) no faster than it runs. On CPU, where kernels run on the calling thread, it is the
*processor time of the process* as long as a rank has one thread: others' load hardly changes it
(except through caches and the memory bus). With several threads per rank it is wall time. Both are
kept.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch

from costmodel.base.units import MIB, Bytes, Seconds
from planner.calibration.timing import Timing, summary

_AHEAD: Seconds = 3e-3
"""Seconds that the device waits before a timed region on CUDA: the host must have issued the region
by then, which takes 0.1 to 1 ms (a lookup's backward 0.8 ms on the host of an H200)."""
_SOME_CYCLES = 10**6


class Stopwatch(Protocol):
    """Times its ``with`` block; to be read once the device is done."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def seconds(self) -> Seconds:
        """Return the device's time."""
        ...

    def wall(self) -> Seconds:
        """Return the host's wall time."""
        ...


class DeviceUnderTest(Protocol):
    """A device that can be measured."""

    name: str
    """torch's name of it: ``cpu``, ``cuda:0``."""

    @property
    def synchronous(self) -> bool:
        """Return whether kernels run on the calling thread."""
        ...

    def stopwatch(self) -> Stopwatch:
        """Return a new stopwatch."""
        ...

    def flush(self) -> None:
        """Empty the cache, and on CUDA let the host get ahead."""
        ...

    def synchronize(self) -> None:
        """Wait until the device is done."""
        ...


@dataclass(slots=True)
class CpuStopwatch:
    """Measures processor time of the process, and wall time."""

    by_wall: bool
    _cpu: float = field(default=0.0, init=False)
    _wall: float = field(default=0.0, init=False)

    def __enter__(self) -> Self:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._cpu = time.process_time() - self._cpu
        self._wall = time.perf_counter() - self._wall

    def seconds(self) -> Seconds:
        """Return processor time, or wall time where several threads share the work."""
        return self._wall if self.by_wall else self._cpu

    def wall(self) -> Seconds:
        """Return wall time."""
        return self._wall


class CpuDevice:
    """One rank's share of a CPU."""

    def __init__(self, cache_bytes: Bytes) -> None:
        self.name = "cpu"
        self._by_wall = torch.get_num_threads() > 1
        self._filler = _filler("cpu", cache_bytes)

    @property
    def synchronous(self) -> bool:
        """Return True: kernels run on the calling thread."""
        return True

    def stopwatch(self) -> CpuStopwatch:
        """Return a new stopwatch."""
        return CpuStopwatch(by_wall=self._by_wall)

    def flush(self) -> None:
        """Read a buffer twice as large as the cache."""
        self._filler.sum()

    def synchronize(self) -> None:
        """Do nothing: everything has been done."""


class CudaStopwatch:
    """Measures the time between two events on the current stream."""

    def __init__(self) -> None:
        self._start: Any = torch.cuda.Event(enable_timing=True)
        self._end: Any = torch.cuda.Event(enable_timing=True)
        self._wall = 0.0

    def __enter__(self) -> Self:
        self._start.record()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall = time.perf_counter() - self._wall
        self._end.record()

    def seconds(self) -> Seconds:
        """Return the time between the events, once the second has come."""
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1e-3

    def wall(self) -> Seconds:
        """Return the host's time to issue the block."""
        return self._wall


class CudaDevice:
    """One GPU."""

    def __init__(self, index: int, cache_bytes: Bytes) -> None:
        self.name = f"cuda:{index}"
        self._filler = _filler(self.name, cache_bytes)
        self._cycles = self._cycles_ahead()

    @property
    def synchronous(self) -> bool:
        """Return False: kernels run on streams."""
        return False

    def stopwatch(self) -> CudaStopwatch:
        """Return a new stopwatch."""
        return CudaStopwatch()

    def flush(self) -> None:
        """Read a buffer twice as large as the L2, then wait for the host to get ahead."""
        self._filler.sum()
        torch.cuda._sleep(self._cycles)  # noqa: SLF001 - has no public name; torch times with it

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize()

    def _cycles_ahead(self) -> int:
        """Return the cycles of ``_AHEAD``."""
        torch.cuda._sleep(_SOME_CYCLES)  # noqa: SLF001 - the first one loads the kernel
        with self.stopwatch() as watch:
            torch.cuda._sleep(_SOME_CYCLES)  # noqa: SLF001
        return max(1, round(_SOME_CYCLES * _AHEAD / watch.seconds()))


def open_device(kind: str, local_rank: int, cache_bytes: Bytes) -> DeviceUnderTest:
    """Return the device of a rank: ``cpu``, or the GPU of its local rank."""
    if kind == "cpu":
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        return CpuDevice(cache_bytes)
    return CudaDevice(local_rank, cache_bytes)


def repeated(
    once: Callable[[], dict[str, Stopwatch]],
    device: DeviceUnderTest,
    *,
    budget: Seconds,
    fewest: int = 5,
    most: int = 25,
) -> dict[str, Timing]:
    """Return the median timings, by name, of a function run until its time is used up.

    It is run once before to warm up.
    """
    once()
    device.synchronize()
    watches: dict[str, list[Stopwatch]] = {}
    begin = time.perf_counter()
    for number in range(most):
        if number >= fewest and time.perf_counter() - begin > budget:
            break
        for name, watch in once().items():
            watches.setdefault(name, []).append(watch)
        device.synchronize()
    return {
        name: summary([watch.seconds() for watch in some], [watch.wall() for watch in some])
        for name, some in watches.items()
    }


def _filler(name: str, cache_bytes: Bytes) -> Any:  # noqa: ANN401 - torch is untyped
    """Return a buffer twice as large as the cache, on a device."""
    return torch.ones(int(2 * max(cache_bytes, MIB)) // 4, device=name)
