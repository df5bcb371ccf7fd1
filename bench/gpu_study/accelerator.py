"""What the study needs of a device beside timing: memory and traces.

Everything that only CUDA has is here, behind one interface; on a CPU the same calls do what they
can. So a run on a CPU walks all code but the few lines of ``CudaAccelerator``.
"""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from costmodel.base.units import KIB, Bytes
from planner.calibration.device import (
    CpuDevice,
    CudaDevice,
    DeviceUnderTest,
    open_device,
)


class Accelerator(Protocol):
    """A device, and how its memory and its profiler are used."""

    device: DeviceUnderTest

    @property
    def kind(self) -> str:
        """``cuda`` or ``cpu``: also torch's name of it, without a number."""
        ...

    def reset_memory(self) -> None:
        """Give back what nobody uses, and begin to watch the highest use."""
        ...

    def peak_memory(self) -> tuple[Bytes, Bytes]:
        """Return the most that tensors had, and that torch had asked for, since then."""
        ...

    def activities(self) -> list[ProfilerActivity]:
        """Return what the profiler is to watch."""
        ...


class CpuAccelerator:
    """A core that does everything itself, one piece after the other."""

    kind = "cpu"

    def __init__(self, device: CpuDevice) -> None:
        self.device: DeviceUnderTest = device
        self._begin = 0.0

    def reset_memory(self) -> None:
        """Remember how much the process has had so far."""
        self._begin = _most_resident()

    def peak_memory(self) -> tuple[Bytes, Bytes]:
        """Return by how much the process has grown: the system tells no more."""
        grown = _most_resident() - self._begin
        return grown, grown

    def activities(self) -> list[ProfilerActivity]:
        """Return the host alone."""
        return [ProfilerActivity.CPU]


class CudaAccelerator:
    """One GPU."""

    kind = "cuda"

    def __init__(self, device: CudaDevice) -> None:
        self.device: DeviceUnderTest = device

    def reset_memory(self) -> None:
        """Return unused blocks to the driver, and begin to watch the highest use."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def peak_memory(self) -> tuple[Bytes, Bytes]:
        """Return the allocator's figures."""
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return float(allocated), float(reserved)

    def activities(self) -> list[ProfilerActivity]:
        """Return host and device."""
        return [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def open_accelerator(kind: str, local_rank: int, cache_bytes: Bytes) -> Accelerator:
    """Return the device of a rank."""
    device = open_device(kind, local_rank, cache_bytes)
    if isinstance(device, CudaDevice):
        return CudaAccelerator(device)
    if isinstance(device, CpuDevice):
        return CpuAccelerator(device)
    raise TypeError(f"nothing is known of the memory of {device}")


def write_trace(
    accelerator: Accelerator, once: Callable[[], object], num_steps: int, path: Path
) -> Path:
    """Profile some steps, after one that is not kept, and write their trace; returns its path."""
    plan = schedule(wait=0, warmup=1, active=num_steps, repeat=1)
    with profile(activities=accelerator.activities(), schedule=plan) as profiler:
        for _ in range(1 + num_steps):
            once()
            accelerator.device.synchronize()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


def _most_resident() -> Bytes:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
