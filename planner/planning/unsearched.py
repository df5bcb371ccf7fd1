"""What-ifs of a plan as it is: another batch or data type, nothing searched again."""

from collections.abc import Iterable, Iterator

from costmodel.base.errors import PlannerError
from costmodel.domain.validity import check_plan
from costmodel.memory.rank_memory import check_memory
from planner.planning.api import Planned
from planner.planning.confidence import confidences
from planner.planning.what_if import Change, Remedy


def unsearched(planned: Planned, changes: Iterable[Change]) -> Iterator[Remedy]:
    """Yield what changes bring to a plan that stays as it is, where it may and fits."""
    plan = planned.plan
    for change in changes:
        workload, topology = change.workload, change.topology
        if topology.world_size != plan.world_size:
            continue
        try:
            check_plan(workload, topology, plan)
            check_memory(workload, topology, plan)
        except PlannerError:
            continue
        (confidence,) = confidences(workload, topology, (plan,))
        samples = workload.samples_per_step * topology.world_size
        yield Remedy(
            change=change.text,
            step_time=confidence.expected,
            samples_per_second=samples / confidence.expected,
            effect="",
            num_changed=0,
        )
