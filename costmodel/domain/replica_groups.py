"""Replicas of all embedding tables on several groups of ranks: 2D sparse parallelism.

A job's ranks are several groups of as many ranks. Each group holds all tables, sharded among its
own ranks, and all groups hold them by the same plan. Rank r of every group holds the same shards:
these ranks are a *replica group*, whose weights are averaged now and then. Dense parameters, and
tables that are ``data_parallel``, are reduced over the whole job.

References
----------
torchrec 1.9.2, distributed/model_parallel.py, ``DMPCollection``. arXiv 2508.03854.

"""

from dataclasses import dataclass
from enum import StrEnum

from costmodel.base.field_values import make_plain
from costmodel.base.limits import MOST_INTERVAL, check_at_most


class ShardingStrategy(StrEnum):
    """How replicas are averaged, by TorchRec's strings; ``PER_MODULE`` of 1.9.2 is ``DEFAULT``."""

    DEFAULT = "default"
    """``sync()`` all-reduces weights, then optimizer state, after the update."""
    FULLY_SHARDED = "fully_sharded"
    """In every step weights are reduce-scattered after their lookup, and gathered before their
    update, so that each replica has a part of them meanwhile. Optimizer state is left apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroups:
    """How many groups hold all tables, where their ranks are, and how often they are averaged.

    Names are those of ``DMPCollection`` where it has one.
    """

    num_groups: int
    """Groups, each with all tables: the world size over the group's."""
    ranks_per_node: int
    """Ranks of the job on a node, of all groups."""
    use_inter_host_allreduce: bool = False
    """Whether a group is of consecutive ranks, on as few nodes as hold it; otherwise of every
    ``num_groups``-th rank, which brings the replicas together and spreads the group."""
    sync_interval: int = 1
    """Steps from one averaging to the next (the training loop's calls of ``sync()``)."""
    sharding_strategy: ShardingStrategy = ShardingStrategy.DEFAULT
    """The collectives that average."""

    def __post_init__(self) -> None:
        make_plain(self)
        for name in ("num_groups", "ranks_per_node", "sync_interval"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        check_at_most("sync_interval", self.sync_interval, MOST_INTERVAL)
        if self.is_fully_sharded and self.sync_interval > 1:
            raise ValueError("fully sharded replicas are averaged in every step: sync_interval 1")
        if self.num_groups == 1:
            raise ValueError("num_groups must be at least 2: one group has no replicas")

    @property
    def is_fully_sharded(self) -> bool:
        """Whether replicas are apart between a lookup and its update."""
        return self.sharding_strategy is ShardingStrategy.FULLY_SHARDED


def local_group_size(
    group_size: int, num_groups: int, ranks_per_node: int, *, consecutive: bool
) -> int:
    """Return how many ranks a group has on each of its nodes.

    Raises
    ------
    ValueError
        It would have more on some nodes than on others.

    """
    part = group_size if consecutive else num_groups
    even = part % ranks_per_node == 0 or ranks_per_node % part == 0
    if not even:
        ranks = "consecutive ones" if consecutive else f"{num_groups} apart"
        raise ValueError(
            f"a group of {group_size} ranks, {ranks}, would have more of them on some "
            f"nodes of {ranks_per_node} than on others"
        )
    return min(group_size, ranks_per_node) if consecutive else max(1, ranks_per_node // num_groups)
