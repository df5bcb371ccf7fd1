"""Steps whose durations are given as arrays: many variants of one step at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.hardware import Topology
from costmodel.engine.lowering import Columns, lower
from costmodel.engine.step import Step, StepClock
from costmodel.step.step_operations import Op, StepOperations
from costmodel.step.template import Template, TemplateOp, Work, WorkKind

MOST_AT_ONCE = 1 << 22
"""Number of durations of variants in memory at once: 32 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenStep:
    """The recurrences of one step; operations that take no time are contracted."""

    step: Step
    ops: tuple[int, ...]
    """Indices of the operations whose durations are given."""
    topology: Topology

    @classmethod
    def of(cls, operations: StepOperations, topology: Topology) -> "GivenStep":
        """Contract a step's operations."""
        template = Template(
            ops=tuple(_template_op(op) for op in operations.ops),
            resources=tuple(dict.fromkeys(op.resource for op in operations.ops)),
            topology=topology,
            launch_delay=operations.launch_delay,
            like=operations.like,
        )
        timed = [index for index, op in enumerate(template.ops) if op.work.kind is WorkKind.GIVEN]
        rows = [0] * len(template.ops)
        for row, index in enumerate(timed):
            rows[index] = row
        return cls(lower(template, Columns({}, {}), rows), tuple(timed), topology)

    def step_times(self, durations: Mapping[int, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the step time of every variant, shape (variants,).

        Parameters
        ----------
        durations
            Seconds of the operations of ``ops``, by index, shape (variants, ranks); either may be
            1.

        """
        world_size = self.topology.world_size
        numbers = np.zeros((max(1, len(self.ops)), world_size))
        clock = StepClock(
            numbers,
            busy=0,
            local_ranks=self.topology.local_world_size,
            num_ops=self.step.num_ops,
        )
        num_variants = max(len(durations[op]) for op in self.ops) if self.ops else 1
        times = np.zeros(num_variants)
        at_once = max(1, MOST_AT_ONCE // numbers.size)
        for first in range(0, num_variants, at_once):
            some = min(at_once, num_variants - first)
            block = np.empty((some, *numbers.shape))
            for row, op in enumerate(self.ops):
                seconds = durations[op]
                block[:, row] = seconds[first : first + some] if len(seconds) > 1 else seconds
            for variant in range(some):
                numbers[:] = block[variant]
                times[first + variant] = clock.step_time(self.step)
        return times


def _template_op(op: Op) -> TemplateOp:
    kind = WorkKind.GIVEN if op.seconds.any() else WorkKind.CONSTANT
    return TemplateOp(
        name=op.name,
        resource=op.resource,
        work=Work(kind=kind),
        after=op.after,
        after_previous=op.after_previous,
        launched_by=op.launched_by,
        group=op.group,
    )
