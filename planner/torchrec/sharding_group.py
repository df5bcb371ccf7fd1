"""One of the groups of ranks that ``DMPCollection`` shards all tables among."""

from torchrec.distributed.planner.types import Topology as TorchRecTopology

from costmodel.domain.replica_groups import ReplicaGroups, ShardingStrategy, local_group_size
from planner.torchrec.error_types import refusing
from planner.torchrec.topology import device_bytes, make_topology, node_size


def to_strategy(given: object) -> ShardingStrategy:
    """Return a strategy by its name or by TorchRec's member; ``PER_MODULE`` is the default one."""
    name = getattr(given, "value", given)
    with refusing("sharding_strategy"):
        return ShardingStrategy("default" if name == "per_module" else str(name))


def of_one_group(
    topology: TorchRecTopology,
    group_size: int | None,
    *,
    use_inter_host_allreduce: bool,
    sync_interval: int,
    sharding_strategy: ShardingStrategy,
) -> tuple[TorchRecTopology, ReplicaGroups | None]:
    """Return the topology of one group of a job's ranks, and the groups; None: there is only one.

    A rank has the memory of the poorest, and so has its host.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        The job's ranks are no groups of that size, with as many ranks on each of their nodes.

    """
    if group_size is None or group_size == topology.world_size:
        return topology, None
    with refusing("sharding_group_size"):
        if not 1 < group_size < topology.world_size or topology.world_size % group_size:
            raise ValueError(
                f"it must be at least 2 and divide the world size, {topology.world_size}, got "
                f"{group_size}"
            )
        num_groups, per_node = topology.world_size // group_size, node_size(topology)
        local = local_group_size(
            group_size, num_groups, per_node, consecutive=use_inter_host_allreduce
        )
        replicas = ReplicaGroups(
            num_groups=num_groups,
            ranks_per_node=per_node,
            use_inter_host_allreduce=use_inter_host_allreduce,
            sync_interval=sync_interval,
            sharding_strategy=sharding_strategy,
        )
    group = make_topology(
        world_size=group_size,
        local_world_size=local,
        compute_device=topology.compute_device,
        hbm_cap=int(min(device_bytes(topology))) if topology.compute_device != "cpu" else None,
        ddr_cap=min(int(device.storage.ddr) for device in topology.devices),
    )
    return group, replicas
