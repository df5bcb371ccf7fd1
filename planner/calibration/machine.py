"""The measured machine, and whether other processes use it."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from costmodel.base.units import MIB, Bytes

_PACKAGES = ("torch", "fbgemm-gpu", "fbgemm-gpu-cpu", "torchrec", "shardwise")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_ASSUMED_CACHE: Bytes = 32 * MIB
"""Last-level cache if the system does not give it: that of one core complex of AMD EPYC."""


def machine_facts(kind: str, num_ranks: int, num_nodes: int) -> dict[str, Any]:
    """Return machine, date and versions, for the measurements file."""
    facts: dict[str, Any] = {
        "device": kind,
        "name": device_name(kind),
        "host_cpu": cpu_name(),
        "cores": os.cpu_count(),
        "num_ranks": num_ranks,
        "num_nodes": num_nodes,
        "threads_per_rank": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": _versions(),
    }
    if kind == "cpu":
        facts["keeps_memory"] = keeps_memory()
    if kind == "cuda":
        facts["cuda"] = torch.version.cuda
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return facts


def keeps_memory() -> bool:
    """Return whether glibc was told never to give large tensors' memory back to the system.

    By default tensors of 32 MiB and more are mapped anew each time, and the system fills every page
    with zeros: several times slower; those of other threads' arenas, from 64 MiB on, however many
    mappings are allowed. ``planner validate`` trains with that switched off, and the command line
    measures so, too (``planner.validation.launch.RANK_ENVIRONMENT``).
    """
    asked = {"MALLOC_MMAP_MAX_": "0", "MALLOC_ARENA_MAX": "1"}
    return all(os.environ.get(name) == value for name, value in asked.items())


def other_facts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return which facts have changed, the date apart, so that measurements may not be mixed."""
    names = sorted((before.keys() | now.keys()) - {"date"})
    return [
        f"{name}: {before.get(name)} before, {now.get(name)} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def device_name(kind: str) -> str:
    """Return the name of the GPU, or of the processor."""
    return str(torch.cuda.get_device_name()) if kind == "cuda" else cpu_name()


def cpu_name() -> str:
    """Return the processor's model name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def cache_bytes(kind: str, local_ranks: int) -> Bytes:
    """Return a rank's cache: a GPU's L2, or a rank's share of a CPU's last-level cache."""
    if kind == "cuda":
        return float(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    sizes = [_size(path.read_text("utf-8")) for path in _CACHES.glob("index*/size")]
    return max(sizes, default=_ASSUMED_CACHE) / local_ranks


def memory_bytes(kind: str, local_ranks: int) -> Bytes:
    """Return a rank's memory: the GPU's, or a rank's share of the host's."""
    if kind == "cuda":
        return float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return host_memory_bytes() / local_ranks


def ranks_per_node(kind: str, local_ranks: int) -> int:
    """Return how many ranks a node has: GPUs that torch sees, or the CPU ranks of this run."""
    return max(local_ranks, torch.cuda.device_count()) if kind == "cuda" else local_ranks


def host_memory_bytes() -> Bytes:
    """Return the host's memory."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def busy_cores() -> float | None:
    """Return how many processes ran or waited to run in the last minute; None: unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _size(text: str) -> Bytes:
    """Return the bytes that a text such as `48K` or `2M` says."""
    number = text.strip()
    scale = {"K": 1024.0, "M": MIB}.get(number[-1:], 1.0)
    return float(number.rstrip("KM")) * scale
