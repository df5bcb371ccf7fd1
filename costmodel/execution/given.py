"""A program whose durations are given anew every time it is timed: many variants of one step."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.compiled import CompiledStep
from costmodel.execution.program import Op, Program
from costmodel.execution.template import Template, TemplateOp, Work, WorkKind
from costmodel.hardware import Topology


def step_of(program: Program, topology: Topology) -> CompiledStep:
    """Return the recurrences of one program; operations that take no time are contracted."""
    ops = tuple(_template_op(op) for op in program.ops)
    resources = tuple(dict.fromkeys(op.resource for op in program.ops))
    return CompiledStep.of(
        Template(ops=ops, resources=resources, topology=topology, launch_delay=program.launch_delay)
    )


def given_step_times(
    step: CompiledStep, durations: Mapping[int, NDArray[np.float64]], num_steps: int
) -> NDArray[np.float64]:
    """Return the step time of every variant, shape (variants,).

    Parameters
    ----------
    step
        Of ``step_of``.
    durations
        Seconds of the operations that take time, by index, shape (variants, ranks); either may
        be 1. Those without any are 0.
    num_steps
        Consecutive steps to time; the last one counts.

    """
    nothing = np.zeros((1, 1))
    known = {kept.op: durations.get(kept.op, nothing) for kept in step.kept}
    return step.timed(known, {}, num_steps)


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
        part_of=(),
    )
