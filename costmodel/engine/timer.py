"""Step times of whole plans from their loads, for callers other than a search."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.base.ranges import flat
from costmodel.base.units import Seconds
from costmodel.engine.codes import EXCHANGE, ISSUE, LINEAR, STREAM, WEIGHT_GRADIENT
from costmodel.engine.lowering import Columns, lower, machine
from costmodel.engine.state import Journal, PlanState, Rows
from costmodel.engine.step import Step, StepClock
from costmodel.kernels.traffic import NUM_TRAFFIC
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.loads import GroupLoad
from costmodel.step.template import (
    PLAN_FEATURES,
    RANK_FEATURES,
    Feature,
    Template,
    WorkKind,
)

Signature: TypeAlias = tuple[tuple[GroupKey, tuple[KernelKey, ...]], ...]
"""Sharding groups and their lookup kernels, sorted."""
NOWHERE = 0
"""Row of durations that are constants and kept nowhere."""


def signature_of(groups: Iterable[GroupLoad]) -> Signature:
    """Return the sharding groups of a plan and their lookup kernels."""
    kernels = {group.key: tuple(sorted(group.traffic)) for group in groups}
    return tuple((key, kernels[key]) for key in sorted(kernels))


def duration_rows(template: Template, columns: Columns) -> tuple[Rows, list[int]]:
    """Return the rows of numbers, and every operation's row of durations (or ``NOWHERE``)."""
    forward = columns.num_plan_features
    backward = forward + len(columns.kernels)
    lookups = {WorkKind.FORWARD: forward, WorkKind.BACKWARD: backward}
    steps, count = backward + len(columns.kernels), 0
    rows: list[int] = []
    for op in template.ops:
        if op.work.kernel is not None and op.work.kind in lookups:
            rows.append(lookups[op.work.kind] + columns.kernels[op.work.kernel])
        elif op.work.kind is WorkKind.CONSTANT:
            rows.append(NOWHERE)
        else:
            rows.append(steps + count)
            count += 1
    end = steps + 3 * count
    return Rows(0, forward, backward, steps, num_durations=count, end=end), rows


def touched_operations(every: Step, num_groups: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the operations of each sharding group begin, and these, last ones first."""
    kinds = (STREAM, EXCHANGE, ISSUE, LINEAR, WEIGHT_GRADIENT)
    ops = [
        [
            op
            for op in reversed(range(every.num_ops))
            if every.touched_by[op] >> group & 1 and every.kind[op] in kinds
        ]
        for group in range(num_groups)
    ]
    numbers, starts = flat(ops)
    return starts, numbers


class StepTimer:
    """Times plans that have all sharding groups and lookup kernels of a template."""

    def __init__(self, template: Template, signature: Signature) -> None:
        topology = template.topology
        self._columns = Columns.of(signature)
        rows, kept = duration_rows(template, self._columns)
        self._step = lower(template, self._columns, kept)
        num_groups = len(self._columns.groups)
        self._features = num_groups * len(RANK_FEATURES)
        self._numbers = np.zeros((max(1, rows.end), topology.world_size))
        width = self._features + len(self._columns.kernels) * NUM_TRAFFIC
        self._loads = np.zeros((topology.world_size, max(1, width)))
        self._plan = PlanState(
            machine=machine(topology),
            rows=rows,
            numbers=self._numbers,
            loads=self._loads,
            num_rank_features=self._features,
            touched=touched_operations(self._step, num_groups),
            journal=Journal(4 * topology.world_size + 4),  # of one operation at a time
            saved=Journal(0),
        )
        self._clock = StepClock(
            self._numbers,
            busy=rows.num_durations,
            local_ranks=topology.local_world_size,
            num_ops=len(template.ops),
        )

    def step_time(self, groups: Sequence[GroupLoad]) -> Seconds:
        """Return the step time of a plan, from the loads of its groups."""
        self._plan.clear_changed()
        self._plan.note_all_changed()
        for group in groups:
            self._load(group)
        self._plan.look_up_all()
        self._plan.refresh_all(self._step, -1)
        return float(self._clock.step_time(self._step))

    def _load(self, group: GroupLoad) -> None:
        """Set the loads of a group's ranks and kernels."""
        place = self._columns.groups[group.key]
        for column, name in enumerate(RANK_FEATURES):
            self._loads[:, place * len(RANK_FEATURES) + column] = getattr(group, name)
        for column, name in enumerate(PLAN_FEATURES):
            self._numbers[place * len(PLAN_FEATURES) + column, 0] = getattr(group, name)
        for kernel, num_bytes in group.parameter_bytes.items():
            column = self._columns.feature(Feature(group.key, "parameter_bytes", kernel))
            self._numbers[column - self._features, 0] = num_bytes
        for kernel, traffic in group.traffic.items():
            first = self._features + self._columns.kernels[group.key, kernel] * NUM_TRAFFIC
            self._loads[:, first : first + NUM_TRAFFIC] = traffic
