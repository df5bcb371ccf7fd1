"""The memory that a plan was made under, where it differs from the plan's profile."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from costmodel.base.errors import PlannerError
from costmodel.base.units import Bytes
from costmodel.domain.hardware import HardwareProfile, Topology
from planner.files.profiles import load_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMemory:
    """Memory of ranks and hosts, as a cap, a reservation, or tables planned elsewhere left it."""

    rank_bytes: Bytes
    """HBM of a rank (memory, on a CPU); where ranks differ, of the rank that has most."""
    host_bytes: Bytes
    """Memory of a node's host."""
    withheld_bytes: tuple[Bytes, ...] = ()
    """Bytes that each rank has less than ``rank_bytes``; empty: all have as many."""

    @classmethod
    def of(cls, topology: Topology, hardware: str) -> "PlanMemory | None":
        """Return the memory of a topology; None if it is that of the profile of this name."""
        machine = topology.hardware
        memory = cls(
            rank_bytes=machine.gpu.memory_bytes,
            host_bytes=machine.host.memory_bytes,
            withheld_bytes=topology.withheld_bytes,
        )
        try:
            known = load_profile(hardware)
        except PlannerError:  # a profile made in Python, which no file has
            return memory
        plain = cls(rank_bytes=known.gpu.memory_bytes, host_bytes=known.host.memory_bytes)
        return None if memory == plain else memory

    def limit(self, hardware: HardwareProfile) -> HardwareProfile:
        """Return a hardware profile with this memory."""
        gpu = replace(hardware.gpu, memory_bytes=self.rank_bytes)
        return replace(hardware, gpu=gpu, host=replace(hardware.host, memory_bytes=self.host_bytes))

    def to_dict(self) -> Mapping[str, Any]:
        """Return the memory's entry in a plan file."""
        withheld = {"withheld_bytes": list(self.withheld_bytes)} if self.withheld_bytes else {}
        return {"rank_bytes": self.rank_bytes, "host_bytes": self.host_bytes, **withheld}
