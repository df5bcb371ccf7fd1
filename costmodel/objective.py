"""Step time of plans without building their graphs: the objective of every search.

Synthesis is run once for all plans with the same sharding groups, on formulas instead of numbers
(``execution.template``), and contracted (``execution.compiled``); timing plans is then a few array
operations, by the simulator's rules. The result is the simulator's to rounding (property-tested).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.compiled import BatchLoads, CompiledStep
from costmodel.execution.groups import GroupKey, KernelKey
from costmodel.execution.loads import GroupLoad, group_loads
from costmodel.execution.synthesis import NUM_STEPS, Templates
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES, Feature
from costmodel.hardware import Topology
from costmodel.kernels.embedding import NUM_TRAFFIC
from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from costmodel.workload import Workload

Signature = tuple[tuple[GroupKey, tuple[KernelKey, ...]], ...]
"""Sharding groups and their lookup kernels, sorted."""


@dataclass(frozen=True)
class Objective:
    """The predicted step time of a workload on a topology, as a function of the plan."""

    workload: Workload
    topology: Topology

    def step_time(self, plan: ShardingPlan) -> Seconds:
        """Return the steady-state step time of a plan."""
        return float(self.step_times([plan])[0])

    def step_times(self, plans: Sequence[ShardingPlan]) -> NDArray[np.float64]:
        """Return the step times of some plans, shape (plans,), all timed at once."""
        loads = [group_loads(self.workload, self.topology, plan) for plan in plans]
        kernels: dict[GroupKey, set[KernelKey]] = {}
        for group in (group for plan in loads for group in plan):
            kernels.setdefault(group.key, set()).update(group.traffic)
        signature = tuple((key, tuple(sorted(kernels[key]))) for key in sorted(kernels))
        times = self.compiled(signature).step_times(self.stacked(loads, signature), NUM_STEPS)
        return np.broadcast_to(times, (len(plans),))

    def compiled(self, signature: Signature) -> CompiledStep:
        """Return the step of all plans whose groups and kernels are among these."""
        if signature not in self._compiled:
            self._compiled[signature] = CompiledStep.of(self._templates.of(signature))
        return self._compiled[signature]

    @cached_property
    def _compiled(self) -> dict[Signature, CompiledStep]:
        return {}

    @cached_property
    def _templates(self) -> Templates:
        return Templates(self.workload, self.topology)

    def stacked(self, plans: Sequence[Sequence[GroupLoad]], signature: Signature) -> BatchLoads:
        """Return the loads of some plans, shape (plans, ranks); of groups a plan lacks, zero."""
        by_key = [{group.key: group for group in plan} for plan in plans]
        ranks, count = self.topology.world_size, len(plans)
        rank: dict[Feature, NDArray[np.float64]] = {}
        whole: dict[Feature, NDArray[np.float64]] = {}
        traffic: dict[object, NDArray[np.float64]] = {}
        for key, kernels in signature:
            groups = [plan.get(key) for plan in by_key]
            for name in RANK_FEATURES:
                rank[Feature(key, name)] = _stack(groups, name, (count, ranks))
            for name in PLAN_FEATURES:
                whole[Feature(key, name)] = _stack(groups, name, (count, 1))
            for kernel in kernels:
                traffic[key, kernel] = _stacked_traffic(groups, kernel, (count, ranks))
        return BatchLoads(rank=rank, plan=whole, traffic=traffic)


def _stack(
    groups: Sequence[GroupLoad | None], name: str, shape: tuple[int, int]
) -> NDArray[np.float64]:
    values = np.zeros(shape)
    for row, group in enumerate(groups):
        if group is not None:
            values[row] = getattr(group, name)
    return values


def _stacked_traffic(
    groups: Sequence[GroupLoad | None], kernel: KernelKey, shape: tuple[int, int]
) -> NDArray[np.float64]:
    values = np.zeros((*shape, NUM_TRAFFIC))
    for row, group in enumerate(groups):
        known: Mapping[KernelKey, NDArray[np.float64]] = {} if group is None else group.traffic
        if kernel in known:
            values[row] = known[kernel]
    return values
