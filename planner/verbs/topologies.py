"""Topologies of a number of GPUs and nodes of a hardware profile."""

from collections.abc import Sequence
from dataclasses import replace
from operator import index

from costmodel.base.errors import InputError, Problem
from costmodel.base.limits import MOST_RANKS
from costmodel.base.units import Bytes
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.workload import Workload
from costmodel.memory.storage import RESERVE_SHARE, fixed_bytes
from planner.show.format import count


def node_count(gpus: int, nodes: int | None, hardware: HardwareProfile) -> int:
    """Return the number of nodes for so many GPUs in all; ``nodes`` None: as few as hold them.

    Every node has as many, so where the fewest nodes cannot, as 15 of NVL72 for 1,024, a few more
    are taken (16 of 64), while at least half of each is used.

    Raises
    ------
    ValueError
        They cannot be spread evenly, or a node has fewer, or they are no whole numbers.

    """
    per_node, unit = hardware.gpus_per_node, hardware.device.unit
    for number in (gpus, 1 if nodes is None else nodes):
        try:
            index(number)
        except TypeError:
            raise ValueError(
                f"numbers of {unit}s and nodes must be whole numbers, got {number!r}"
            ) from None
    gpus = int(gpus)
    least = -(-gpus // per_node)
    if not 1 <= gpus <= MOST_RANKS:
        raise ValueError(f"1 to {MOST_RANKS:,} {unit}s can be planned for, got {gpus:,}")
    first = max(least, nodes or 1)
    even = next((more for more in range(first, gpus) if gpus % more == 0), gpus)
    advice = f"{count(even, 'node')} can have as many each"
    if nodes is None:
        nodes = even if 2 * gpus >= even * per_node else least
        low = gpus // per_node * per_node
        advice = f"{low:,} or {low + per_node:,} can be"
    if nodes < 1 or gpus % nodes:
        raise ValueError(
            f"{count(gpus, unit)} cannot be spread evenly over {count(nodes, 'node')} of "
            f"{hardware.name}; {advice}"
        )
    if gpus // nodes > per_node:
        raise ValueError(
            f"a node of {hardware.name} has {count(per_node, unit)}; {gpus} need {even} nodes or "
            f"more, as many each, not {nodes}"
        )
    return nodes


def make_topology(hardware: HardwareProfile, gpus: int, nodes: int | None = None) -> Topology:
    """Return a topology of so many GPUs, spread evenly over nodes (None: as few as hold them)."""
    try:
        num_nodes = node_count(gpus, nodes, hardware)
    except ValueError as error:
        raise InputError("gpus", (Problem(message=str(error)),)) from None
    return Topology(hardware=hardware, world_size=gpus, local_world_size=gpus // num_nodes)


def memory_differences(own: Sequence[Bytes]) -> tuple[Bytes, ...]:
    """Return the bytes that each rank has less than the one with most; empty: all have the same."""
    most = max(own)
    return () if min(own) == most else tuple(most - each for each in own)


def with_usable(topology: Topology, workload: Workload, usable: Sequence[Bytes]) -> Topology:
    """Return the topology with the memory that leaves ``usable`` bytes for tables on each rank.

    A storage reservation has already subtracted dense model, inputs and a margin; our models would
    do so again (``costmodel.memory.rank_memory.rank_rooms``, of which this is the inverse).
    """
    capacity = (max(usable) + sum(fixed_bytes(workload, topology))) / (1 - RESERVE_SHARE)
    hardware = topology.hardware
    gpu = replace(hardware.gpu, memory_bytes=capacity)
    withheld = tuple(each / (1 - RESERVE_SHARE) for each in memory_differences(usable))
    return replace(topology, hardware=replace(hardware, gpu=gpu), withheld_bytes=withheld)
