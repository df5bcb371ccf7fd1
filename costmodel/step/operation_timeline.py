"""The timeline of a step's operations, operation by operation: all ranks at once.

The rules are those of ``simulator``, where they are explained. There nodes are timed one by one in
the order of their start, which serves any graph; here an operation's nodes are timed together, as
arrays over ranks, after those it waits for. That is a hundred times faster for a thousand ranks.
"""

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import overload

import numpy as np

from costmodel.base.arrays import Array, Places
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.step.expansion import OperationGraph, rows_before
from costmodel.step.loads import PlanLoads
from costmodel.step.step_operations import ProcessGroup, StepOperations
from costmodel.step.synthesis import NUM_STEPS, step_operations
from costmodel.step.timeline import Timeline

_NOTHING = -1
"""Stands for the predecessor of a node that can start at once."""


def plan_timeline(
    workload: Workload, topology: Topology, plan: ShardingPlan, loads: PlanLoads | None = None
) -> Timeline:
    """Return when everything runs in a few consecutive steps under a plan, on all ranks."""
    return operation_timeline(step_operations(workload, topology, plan, loads))


def operation_timeline(step: StepOperations, num_steps: int = NUM_STEPS) -> Timeline:
    """Return when every node of some consecutive steps runs, on all ranks."""
    timing = _Timing(step, num_steps)
    for row in range(num_steps * len(step.ops)):
        timing.add(row)
    ends = timing.ends.reshape(num_steps, -1).max(axis=1, initial=0.0)
    return Timeline(
        graph=OperationGraph.of(step, num_steps),
        starts=_flat(timing.starts),
        ready=_flat(timing.ready),
        ends=_flat(timing.ends),
        binding=_Binding(timing.binding.reshape(-1)),
        step_ends=ends.tolist(),
    )


class _Timing:
    """Times of operations, shape (operations of all steps, ranks), computed in their order."""

    def __init__(self, step: StepOperations, num_steps: int) -> None:
        self.operations = step
        shape = num_steps * len(step.ops), step.world_size
        self.starts, self.ready, self.ends = (np.zeros(shape) for _ in range(3))
        self.binding = np.full(shape, _NOTHING)
        self._last: dict[str, int] = {}

    def add(self, row: int) -> None:
        """Time the next operation."""
        number = row % len(self.operations.ops)
        op = self.operations.ops[number]
        launch = None if op.launched_by is None else row - number + op.launched_by
        rows = set(rows_before(self.operations, row))
        rows |= {each for each in (launch, self._last.get(op.resource)) if each is not None}
        if rows:
            self._wait(row, np.array(sorted(rows)), launch)
        self.starts[row] = self.ready[row]
        if op.group is not None:
            self._join(row, self._members[op.group])
        self.ends[row] = self.starts[row] + op.seconds
        self._last[op.resource] = row

    def _wait(self, row: int, rows: Places, launch: int | None) -> None:
        """Note when the last of some operations has ended, and which.

        Of equals, the one begun first.

        Of two that also begin together, it is the first one issued.
        """
        due = self.ends[rows] + np.where(rows == launch, self.operations.launch_delay, 0.0)[:, None]
        ready = due.max(axis=0)
        which = np.where(due == ready, self.starts[rows], np.inf).argmin(axis=0)
        self.ready[row] = ready
        self.binding[row] = rows[which] * self.operations.world_size + self._ranks

    def _join(self, row: int, members: Places) -> None:
        """Start a collective when its last member is ready.

        Of equal ones, that of the higher rank.
        """
        ready = self.ready[row][members]
        last = members.shape[1] - 1 - ready[:, ::-1].argmax(axis=1)
        cause = self.binding[row][members[np.arange(len(members)), last]]
        self.starts[row][members] = ready.max(axis=1, keepdims=True)
        self.binding[row][members] = cause[:, None]

    @cached_property
    def _ranks(self) -> Places:
        return np.arange(self.operations.world_size)

    @cached_property
    def _members(self) -> dict[ProcessGroup, Places]:
        """Ranks of every instance of every process group, shape (instances, members)."""
        found = {}
        for group in ProcessGroup:
            instance = np.array([self.operations.members(group, rank) for rank in self._ranks])
            order = np.argsort(instance, kind="stable")
            found[group] = order.reshape(instance.max() + 1, -1)
        return found


class _Binding(Sequence[int | None]):
    """The predecessor that decided the start of each node, as in ``Timeline.binding``."""

    def __init__(self, numbers: Places) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> int | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[int | None]: ...
    def __getitem__(self, index: int | slice) -> int | list[int | None] | None:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        number = int(self._numbers[index])
        return None if number == _NOTHING else number


def _flat(times: Array) -> Sequence[Seconds]:
    """Return times by node as plain numbers, in 8 bytes each."""
    return array("d", times.tobytes())
