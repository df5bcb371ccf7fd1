"""TorchRec's topology in our terms."""

from dataclasses import replace
from pathlib import Path

import torch.distributed as dist
from torchrec.distributed.comm import get_local_size
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.utils import get_device_type

from costmodel.hardware import HardwareProfile, Topology
from costmodel.storage import RESERVE_SHARE, fixed_bytes
from costmodel.units import Bytes
from costmodel.workload import Workload
from planner.io.profiles import load_profile


def current_topology() -> TorchRecTopology:
    """Return the process group's topology, as ``EmbeddingShardingPlanner`` does without one."""
    return TorchRecTopology(
        world_size=dist.get_world_size(),
        local_world_size=get_local_size(),
        compute_device=get_device_type(),
        created_by_factory=True,  # otherwise it warns that the job will fail
    )


def resolve_profile(hardware: HardwareProfile | str | Path) -> HardwareProfile:
    """Return the profile, or the one of that name or path."""
    return hardware if isinstance(hardware, HardwareProfile) else load_profile(hardware)


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
    do so again (``costmodel.memory.usable_bytes``, of which this is the inverse).
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
