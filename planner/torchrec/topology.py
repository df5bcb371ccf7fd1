"""TorchRec's topology in our terms."""

import logging
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torchrec.distributed.comm import get_local_size
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.utils import get_device_type

from costmodel.base.units import Bytes
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.workload import Workload
from costmodel.memory.storage import RESERVE_SHARE, fixed_bytes
from planner.files.profiles import load_profile

DEFAULT_HARDWARE = "h100-sxm"
CPU_PROFILE = "cpu-gloo"
PROFILES = {
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "H100 80GB HBM3": "h100-sxm",
    "H200": "h200-sxm",
    "GB200": "gb200-nvl72",
    "B200": "b200-sxm",
    "MI300X": "mi300x",
    "L40S": "l40s-pcie",
    "V100-SXM": "v100-nvlink",
}
"""By a part of what ``torch.cuda.get_device_name`` returns, as NVIDIA's driver names them."""
_LOGGER = logging.getLogger(__name__)


def current_topology() -> TorchRecTopology:
    """Return the process group's topology, as ``EmbeddingShardingPlanner`` does without one."""
    return TorchRecTopology(
        world_size=dist.get_world_size(),
        local_world_size=get_local_size(),
        compute_device=get_device_type(),
        created_by_factory=True,  # otherwise it warns that the job will fail
    )


def resolve_profile(
    hardware: HardwareProfile | str | Path | None, compute_device: str
) -> tuple[HardwareProfile, str]:
    """Return a profile, and the name or path it goes by; None: that of the GPU torch sees."""
    if isinstance(hardware, HardwareProfile):
        return hardware, hardware.name
    if hardware is None:
        hardware = _profile_here(compute_device)
    return load_profile(hardware), str(hardware)


def _profile_here(compute_device: str) -> str:
    if compute_device == "cpu":
        _LOGGER.warning(
            "no hardware given: predicting with the rough profile %s; `planner calibrate` measures "
            "this machine",
            CPU_PROFILE,
        )
        return CPU_PROFILE
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "this machine"
    for part, profile in PROFILES.items():
        if part in name:
            return profile
    _LOGGER.warning(
        "no hardware given, and no profile known for %s: predicting for %s; give `hardware`, the "
        "name or path of a profile (`planner calibrate` makes one)",
        name,
        DEFAULT_HARDWARE,
    )
    return DEFAULT_HARDWARE


def to_topology(topology: TorchRecTopology, profile: HardwareProfile) -> Topology:
    """Return ranks, nodes and memory of a topology, everything else from a profile.

    The memory is that of the smallest device; on CPU it is host memory.
    """
    host = min(float(device.storage.ddr) for device in topology.devices)
    own = min(_device_bytes(topology))
    return Topology(
        hardware=replace(
            profile,
            gpu=replace(profile.gpu, memory_bytes=own),
            host=replace(profile.host, memory_bytes=host * topology.local_world_size),
        ),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
    )


def with_usable(topology: Topology, workload: Workload, usable: Bytes) -> Topology:
    """Return the topology with so much memory that this much is left for tables.

    A storage reservation has already taken dense model, inputs and a margin off; our models would
    do so again (``costmodel.memory.rank_memory.usable_bytes``, of which this is the inverse).
    """
    capacity = (usable + sum(fixed_bytes(workload))) / (1 - RESERVE_SHARE)
    hardware = topology.hardware
    gpu = replace(hardware.gpu, memory_bytes=capacity)
    return replace(topology, hardware=replace(hardware, gpu=gpu))


def usable_after(reserved: TorchRecTopology) -> Bytes:
    """Return what a storage reservation leaves on the fullest device."""
    return min(_device_bytes(reserved))


def _device_bytes(topology: TorchRecTopology) -> list[Bytes]:
    on_cpu = topology.compute_device == "cpu"
    return [
        float(device.storage.ddr if on_cpu else device.storage.hbm) for device in topology.devices
    ]
