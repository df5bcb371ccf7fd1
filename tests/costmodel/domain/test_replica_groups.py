from dataclasses import replace

import pytest
from machines import machine

from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.replica_groups import ReplicaGroups, local_group_size
from costmodel.step.step_operations import ProcessGroup, group_ranks


@pytest.mark.parametrize(
    ("group", "num_groups", "consecutive", "local", "peers_per_node"),
    [
        (16, 2, False, 4, 2),  # every second rank: 0 2 4 6 of each node of 8
        (16, 2, True, 8, 1),  # whole nodes, replicas on others
        (4, 8, False, 1, 8),  # a rank of each node: replicas fill it
        (4, 8, True, 4, 2),  # half a node
        (2, 16, False, 1, 8),  # ranks 0 and 16: replicas fill two nodes
    ],
)
def test_groups_and_replicas_share_nodes(
    group: int, num_groups: int, *, consecutive: bool, local: int, peers_per_node: int
) -> None:
    assert local_group_size(group, num_groups, 8, consecutive=consecutive) == local
    replicas = ReplicaGroups(
        num_groups=num_groups, ranks_per_node=8, use_inter_host_allreduce=consecutive
    )
    topology = Topology(
        hardware=machine(), world_size=group, local_world_size=local, replicas=replicas
    )
    assert topology.num_ranks == group * num_groups == 32
    found = group_ranks(topology, ProcessGroup.REPLICAS)
    assert (found.num_ranks, found.ranks_per_node) == (num_groups, peers_per_node)
    job = group_ranks(topology, ProcessGroup.JOB)
    assert (job.num_ranks, job.ranks_per_node) == (32, 8)
    assert topology.host_memory_bytes == 1000 * GIB * local / 8


@pytest.mark.parametrize(
    ("group", "num_groups", "consecutive", "strides"),
    [(16, 2, False, (1, 1)), (16, 2, True, (1, 2)), (2, 16, False, (2, 1)), (4, 8, True, (1, 1))],
)
def test_nodes_of_a_group_or_its_replicas_may_be_apart(
    group: int, num_groups: int, *, consecutive: bool, strides: tuple[int, int]
) -> None:
    replicas = ReplicaGroups(
        num_groups=num_groups, ranks_per_node=8, use_inter_host_allreduce=consecutive
    )
    local = local_group_size(group, num_groups, 8, consecutive=consecutive)
    topology = Topology(
        hardware=machine(), world_size=group, local_world_size=local, replicas=replicas
    )
    kinds = ProcessGroup.WORLD, ProcessGroup.REPLICAS
    assert tuple(group_ranks(topology, kind).node_stride for kind in kinds) == strides


def test_no_group_has_more_ranks_on_one_node_than_on_another() -> None:
    with pytest.raises(ValueError, match="more of them on some nodes"):
        local_group_size(16, 3, 8, consecutive=False)
    with pytest.raises(ValueError, match="consecutive ones, would have more"):
        local_group_size(12, 2, 8, consecutive=True)


def test_a_topology_has_the_ranks_per_node_of_its_layout() -> None:
    spread = ReplicaGroups(num_groups=2, ranks_per_node=8)
    with pytest.raises(ValueError, match="has 4 on each of its nodes, not 8"):
        Topology(hardware=machine(), world_size=16, local_world_size=8, replicas=spread)
    with pytest.raises(ValueError, match="needs at least 2"):
        Topology(
            hardware=machine(),
            world_size=1,
            local_world_size=1,
            replicas=replace(spread, num_groups=8),
        )


def test_one_group_has_no_replicas() -> None:
    with pytest.raises(ValueError, match="num_groups must be at least 2"):
        ReplicaGroups(num_groups=1, ranks_per_node=8)
    with pytest.raises(ValueError, match="sync_interval must be at least 1"):
        ReplicaGroups(num_groups=2, ranks_per_node=8, sync_interval=0)


def test_without_replicas_a_job_is_one_group() -> None:
    alone = Topology(hardware=machine(), world_size=16, local_world_size=8)
    assert (alone.num_ranks, alone.node_ranks) == (16, 8)
    assert alone.host_memory_bytes == 1000 * GIB
