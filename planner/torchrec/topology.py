"""TorchRec's topology as ours."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchrec.distributed import comm
from torchrec.distributed.planner.types import PlannerError, PlannerErrorType
from torchrec.distributed.planner.types import Topology as TorchRecTopology
from torchrec.distributed.types import ShardingPlan
from torchrec.distributed.utils import get_device_type

from costmodel.base.units import Bytes, size_text, size_texts
from costmodel.domain.hardware import Device, HardwareProfile, Topology
from costmodel.domain.plan import ShardingType
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.memory.storage import RESERVE_SHARE
from planner.environment.settings import DEFAULT_HARDWARE
from planner.files.profiles import load_profile
from planner.search.headroom import with_less_hbm
from planner.torchrec.error_types import INPUT_VALIDATION, refusing
from planner.torchrec.modules import FoundTable
from planner.verbs.changes import on_gpus
from planner.verbs.topologies import memory_differences

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
"""Profiles by part of a GPU's name, as ``torch.cuda.get_device_name`` returns it."""
RESOLVED_POD_SIZE = "TORCHREC_RESOLVED_POD_SIZE"
"""TorchRec's environment variable for the hosts of an NVLink domain
(``comm.get_topology_group_world_size``, 1.9.2)."""
_ROUNDING = 1e-9
_LOGGER = logging.getLogger(__name__)


def make_topology(**settings: Any) -> TorchRecTopology:  # noqa: ANN401 - of Topology
    """Return a topology of TorchRec's, without its warning that the job will fail."""
    known = signature(TorchRecTopology.__init__).parameters
    quiet = {"created_by_factory": True} if "created_by_factory" in known else {}
    return TorchRecTopology(**settings, **quiet)


def current_topology() -> TorchRecTopology:
    """Return the process group's topology, as ``EmbeddingShardingPlanner`` makes it.

    The hosts of one NVLink domain are given by the job's environment (``pod_size``, in versions
    that have it).
    """
    try:
        world_size = dist.get_world_size()
    except (RuntimeError, ValueError) as error:
        raise PlannerError(
            "no topology is given, and there is no process group to make one of: give `topology`, "
            "or call torch.distributed.init_process_group() first",
            INPUT_VALIDATION,
        ) from error
    hosts = getattr(comm, "get_topology_domain_multiple", None)
    return make_topology(
        world_size=world_size,
        local_world_size=comm.get_local_size(),
        compute_device=get_device_type(),
        **({} if hosts is None else {"pod_size": hosts()}),
    )


def resolve_profile(
    hardware: HardwareProfile | str | Path | None, compute_device: str
) -> tuple[HardwareProfile, str]:
    """Return a profile, and its name or path; None: the profile of the GPU that torch sees."""
    if hardware is None:
        hardware = _profile_here(compute_device)
    with refusing("hardware"):
        profile = hardware if isinstance(hardware, HardwareProfile) else load_profile(hardware)
    name = profile.name if profile is hardware else str(hardware)
    if (profile.device is Device.CPU) != (compute_device == "cpu"):
        _warn(
            "predicting for %s, a profile of %s, and the topology is of %s",
            name,
            "CPU ranks" if profile.device is Device.CPU else "GPUs",
            compute_device,
        )
    return profile, name


def _profile_here(compute_device: str) -> str:
    """Return the name of the profile for this machine's devices; warn where it is a guess."""
    if compute_device == "cpu":
        _warn(
            "no hardware given: predicting with the rough profile %s; `planner calibrate` measures "
            "this machine",
            CPU_PROFILE,
        )
        return CPU_PROFILE
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "this machine"
    for part, profile in PROFILES.items():
        if part in name:
            return profile
    _warn(
        "no hardware given, and no profile known for %s: predicting for %s; give `hardware`, the "
        "name or path of a profile (`planner calibrate` makes one)",
        name,
        DEFAULT_HARDWARE,
    )
    return DEFAULT_HARDWARE


def _warn(text: str, *values: object) -> None:
    """Warn once a job, on the rank that plans.

    Before there is a process group, the launcher tells the rank.
    """
    rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK") or 0)
    if rank == 0:
        _LOGGER.warning(text, *values)


def to_topology(
    topology: TorchRecTopology, profile: HardwareProfile, replicas: ReplicaGroups | None = None
) -> Topology:
    """Return a topology with ranks, nodes and memory of TorchRec's, and the rest of a profile.

    A node is an NVLink domain: over its hosts TorchRec makes the inner process groups of
    hierarchical sharding, too (``comm.intra_and_cross_node_pg``, torchrec 1.9.2). Where ranks have
    different memory, each has its own; all have the host memory of the poorest. On CPU the memory
    is the host's. ``replicas``: the groups of the job, of which the topology is one's.
    """
    host = min(float(device.storage.ddr) for device in topology.devices)
    own = device_bytes(topology)
    local = node_size(topology)
    per_node = local if replicas is None else replicas.ranks_per_node
    hosts = local // topology.local_world_size
    nodes = f", whose pod_size {hosts} makes nodes of {local} ranks" if hosts > 1 else ""
    with refusing(f"the topology{nodes}"):
        return Topology(
            hardware=replace(
                profile,
                gpu=replace(profile.gpu, memory_bytes=max(own)),
                host=replace(profile.host, memory_bytes=host * per_node),
            ),
            world_size=topology.world_size,
            local_world_size=local,
            withheld_bytes=memory_differences(own),
            replicas=replicas,
        )


def node_size(topology: TorchRecTopology) -> int:
    """Return the number of ranks of an NVLink domain."""
    size = getattr(topology, "intra_group_size", topology.local_world_size)
    return min(int(size), int(topology.world_size))


def over_hosts(plan: ShardingPlan, topology: TorchRecTopology) -> Iterator[str]:
    """Yield what the job's environment must say for sharding types within NVLink domains.

    TorchRec 1.9.2 plans by the topology's ``pod_size``, but runs by this variable alone, which
    nothing in it sets; without it, modules that are split over a domain's hosts cannot be made.
    """
    hosts = node_size(topology) // topology.local_world_size
    split = {each.value for each in ShardingType if each.within_node} & {
        each.sharding_type for tables in plan.plan.values() for each in tables.values()
    }
    if hosts > 1 and split and os.environ.get(RESOLVED_POD_SIZE) != str(hosts):
        yield (
            f"the plan has {' and '.join(sorted(split))} over the {hosts} hosts of an NVLink "
            f"domain: set {RESOLVED_POD_SIZE}={hosts} in the environment of all ranks, or TorchRec "
            "cannot make the sharded modules"
        )


def with_less(
    topology: Topology, *, hbm_bytes: Sequence[Bytes], host_bytes: Sequence[Bytes]
) -> Topology:
    """Return the topology with some bytes of HBM and host memory, given by rank, taken away.

    Those of the host that gives most are taken from every host.
    """
    if not any(hbm_bytes) and not any(host_bytes):
        return topology
    local = topology.local_world_size
    taken = max(
        sum(host_bytes[first : first + local]) for first in range(0, topology.world_size, local)
    )
    host = topology.hardware.host
    left = max(0.0, host.memory_bytes - taken / (1 - RESERVE_SHARE))
    hardware = replace(topology.hardware, host=replace(host, memory_bytes=left))
    return replace(with_less_hbm(topology, hbm_bytes), hardware=hardware)


def on_ranks(topology: Topology, world_size: int, nodes: int | None = None) -> Topology:
    """Return the topology with more ranks, each with its own share of host memory.

    TorchRec counts it so (``ddr_cap`` is of a rank). ValueError if ranks cannot be spread evenly.
    """
    larger = on_gpus(topology, world_size, nodes)
    host = topology.hardware.host
    memory_bytes = host.memory_bytes * larger.local_world_size / topology.local_world_size
    hardware = replace(topology.hardware, host=replace(host, memory_bytes=memory_bytes))
    return replace(larger, hardware=hardware)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The memory that a storage reservation leaves."""

    left: TorchRecTopology
    name: str
    """Name of its class."""

    def line(self, topology: TorchRecTopology, usable: Bytes) -> str:
        """Return a line of text: bytes left on the rank with most, and left by other tables."""
        there, left = max(device_bytes(topology)), max(device_bytes(self.left))
        memory = "memory" if topology.compute_device == "cpu" else "HBM"
        others = max(0.0, left - usable)
        taken = f"  -  {size_text(others)} of other tables" if others > _ROUNDING * there else ""
        return (
            f"{size_text(there)} {memory}  -  {size_text(there - left)} that {self.name} keeps"
            f"{taken}  =  {size_text(usable)}"
        )


def check_weights(found: Sequence[FoundTable], topology: TorchRecTopology) -> None:
    """Raise if the weights alone are more than all memory.

    It is for tables that cannot be read: they may be too large for the cost model.
    """
    needed = sum(
        float(each.parameter.numel() * each.parameter.element_size())
        for each in found
        if not each.unmodelled
    )
    there = sum(float(each.storage.hbm + each.storage.ddr) for each in topology.devices)
    if needed > there:
        weights, memory = size_texts(needed, there)
        raise PlannerError(
            f"no plan fits: the tables have {weights} of weights, and all ranks and "
            f"hosts together {memory} of memory",
            PlannerErrorType.INSUFFICIENT_STORAGE,
        )


def device_bytes(topology: TorchRecTopology) -> list[Bytes]:
    """Return the bytes for tables of every device, before or after a reservation."""
    on_cpu = topology.compute_device == "cpu"
    return [
        float(device.storage.ddr if on_cpu else device.storage.hbm) for device in topology.devices
    ]
