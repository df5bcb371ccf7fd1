"""Step time of plans without building their graphs: the objective of every search.

A step is written once for all plans with the same sharding groups, on formulas instead of numbers
(``step.template``), contracted and lowered to flat arrays (``costmodel.engine``); timing a
plan is then filling in its loads. The result is the simulator's to rounding (property-tested).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.engine.timer import Signature, StepTimer, signature_of
from costmodel.step.loads import PlanLoads
from costmodel.step.synthesis import Templates


@dataclass(frozen=True)
class Objective:
    """The predicted step time of a workload on a topology, as a function of the plan."""

    workload: Workload
    topology: Topology

    def step_time(self, plan: ShardingPlan) -> Seconds:
        """Return the steady-state step time of a plan; the same plan's again takes no time."""
        known = self._last.get(id(plan))
        if known is None:
            groups = self.loads.groups(plan)
            signature = signature_of(groups)
            if signature not in self._timers:
                self._timers[signature] = StepTimer(self._templates.of(signature), signature)
            known = plan, self._timers[signature].step_time(groups)
            self._last.clear()
            self._last[id(plan)] = known
        return known[1]

    def step_times(self, plans: Sequence[ShardingPlan]) -> NDArray[np.float64]:
        """Return the step times of some plans, shape (plans,)."""
        return np.array([self.step_time(plan) for plan in plans])

    @cached_property
    def loads(self) -> PlanLoads:
        """Loads of shards, known for all plans timed so far."""
        return PlanLoads(self.workload, self.topology)

    @cached_property
    def _last(self) -> dict[int, tuple[ShardingPlan, Seconds]]:
        """The plan timed last, with its step in seconds, by its ``id``."""
        return {}

    @cached_property
    def _timers(self) -> dict[Signature, StepTimer]:
        return {}

    @cached_property
    def _templates(self) -> Templates:
        return Templates(self.workload, self.topology)
