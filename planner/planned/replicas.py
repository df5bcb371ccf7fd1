"""Group sizes that were weighed for a job of several groups of ranks, as data."""

from dataclasses import dataclass

from costmodel.base.modelled import Modelled
from costmodel.domain.hardware import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedGroup:
    """A group size with a place for its ranks, and the best step found with it."""

    topology: Topology
    """That of one group; without replicas, of all ranks as one."""
    modelled: Modelled | None
    """By the models, when the size was chosen; None: no plan was found."""
    was_tried: bool = True
    """Whether there was time to look for one."""
    was_searched: bool = True
    """Whether it was searched after its first plans: their steps are long."""
    num_plans: int = 0
    """Plans tried for that: more for sizes that looked fast, so that steps are not all alike."""
    is_chosen: bool = False

    @property
    def group_size(self) -> int:
        """Ranks of a group."""
        return self.topology.world_size

    @property
    def num_groups(self) -> int:
        """Groups of the job."""
        return self.topology.num_ranks // self.topology.world_size

    @property
    def outcome(self) -> str:
        """What became of it, as text; empty: it is slower than the one chosen."""
        if self.modelled is None:
            return "no plan fits" if self.was_tried else "no time was left"
        if self.is_chosen:
            return "chosen"
        return "" if self.was_searched else "first plans only"

    @property
    def place(self) -> str:
        """Where a group's ranks are, as text."""
        replicas = self.topology.replicas
        if replicas is None:
            return "all"
        if replicas.use_inter_host_allreduce:
            return "consecutive"
        return f"{replicas.num_groups} apart"
