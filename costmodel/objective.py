"""Step time of a plan without building its graph: the objective of every search.

The program of a step is timed with one vector operation per ``Op`` over all ranks, by the rules
of the simulator; the result is the same to rounding (a property test compares them).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.program import ProcessGroup, Program
from costmodel.execution.synthesis import NUM_STEPS, program
from costmodel.hardware import Topology
from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from costmodel.workload import Workload


@dataclass(frozen=True, slots=True)
class Objective:
    """The predicted step time of a workload on a topology, as a function of the plan."""

    workload: Workload
    topology: Topology

    def step_time(self, plan: ShardingPlan) -> Seconds:
        """Return the steady-state step time of a plan."""
        return program_time(program(self.workload, self.topology, plan))


def program_time(step: Program, num_steps: int = NUM_STEPS) -> Seconds:
    """Return the duration of the last of several consecutive steps."""
    ends = step_ends(step, num_steps)
    return ends[-1] - (ends[-2] if num_steps > 1 else 0.0)


def step_ends(step: Program, num_steps: int) -> list[Seconds]:
    """Return when the last rank finishes each of several consecutive steps."""
    idle = np.zeros(step.world_size)
    free: dict[str, NDArray[np.float64]] = {}
    before: list[NDArray[np.float64]] = []
    ends = []
    for _ in range(num_steps):
        times: list[NDArray[np.float64]] = []
        for op in step.ops:
            start = free.get(op.resource, idle)
            for index in op.after:
                start = np.maximum(start, times[index])
            if before:
                for index in op.after_previous:
                    start = np.maximum(start, before[index])
            if op.launched_by is not None:
                start = np.maximum(start, times[op.launched_by] + step.launch_delay)
            if op.group is not None:
                start = _latest(start, op.group, step)
            times.append(start + op.seconds)
            free[op.resource] = times[-1]
        before = times
        ends.append(max(float(t.max()) for t in times))
    return ends


def _latest(start: NDArray[np.float64], group: ProcessGroup, step: Program) -> NDArray[np.float64]:
    """Give every rank the latest start of its group."""
    if group is ProcessGroup.WORLD:
        return np.full(step.world_size, start.max())
    grid = start.reshape(-1, step.local_world_size)
    axis = 1 if group is ProcessGroup.INTRA_NODE else 0
    return np.broadcast_to(grid.max(axis=axis, keepdims=True), grid.shape).ravel()
