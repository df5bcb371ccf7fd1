"""Other groups of a job's ranks, from the topology of one group of a plan."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from costmodel.base.errors import InputError
from costmodel.base.limits import MOST_INTERVAL
from costmodel.domain.hardware import Topology
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import could_hold
from planner.verbs.changes import on_gpus
from planner.verbs.grouping import Grouping

TIMES_INTERVAL = 10
"""How many times as long an averaging interval is tried, too."""


def with_gpus(group: Topology, gpus: int) -> Topology:
    """Return the topology of a group as large as one of now, in a job of so many GPUs.

    Of a plan without groups, that of all GPUs. Like the other functions here it raises ValueError
    where there is no such group.
    """
    asked = Grouping.of(group)
    if asked is None:
        return on_gpus(group, gpus)
    return _regrouped(group, asked, on_gpus(job_of(group), gpus))


def with_group_size(group: Topology, size: int) -> Topology:
    """Return the topology of a group of another size in the same job, its ranks placed likewise."""
    replicas_of(group)
    asked, job = Grouping.of(group), job_of(group)
    if asked is None or size == job.world_size:
        asked = Grouping(group_size=size)
    return _regrouped(group, replace(asked, group_size=size), job)


def with_interval(group: Topology, interval: int) -> Topology:
    """Return a group's topology with another number of steps from one averaging to the next."""
    return replace(group, replicas=replace(replicas_of(group), sync_interval=interval))


def other_intervals(group: Topology) -> Iterator[int]:
    """Yield a longer averaging interval that is worth trying, if the strategy allows any."""
    if group.replicas is None or group.replicas.is_fully_sharded:
        return
    longer = TIMES_INTERVAL * group.replicas.sync_interval
    if longer <= MOST_INTERVAL:
        yield longer


def other_sizes(workload: Workload, group: Topology) -> Iterator[int]:
    """Yield half and twice a group's size, where nodes allow such groups and memory may do."""
    for size in (group.world_size // 2, 2 * group.world_size):
        with suppress(ValueError):  # there are no such groups
            if could_hold(workload, with_group_size(group, size)):
                yield size


def replicas_of(group: Topology) -> ReplicaGroups:
    """Return the groups of a job."""
    if group.replicas is None:
        raise ValueError("the plan has one group of all ranks, which has no replicas")
    return group.replicas


def job_of(group: Topology) -> Topology:
    """Return the topology of all ranks of a group's job, as one group with all memory."""
    alike = replace(group, withheld_bytes=(), replicas=None)
    return replace(alike, world_size=group.num_ranks, local_world_size=group.node_ranks)


def _regrouped(group: Topology, asked: Grouping, job: Topology) -> Topology:
    """Return the topology of a group of a job; all ranks have the memory of the poorest of now."""
    try:
        found = asked.topologies(job)[0]
    except InputError as error:
        raise ValueError(error.problems[0].message) from None
    withheld = max(group.withheld_bytes, default=0.0)
    return replace(found, withheld_bytes=(withheld,) * found.world_size if withheld else ())
