"""A step's operations for one plan: a template's formulas evaluated at the plan's loads."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array
from costmodel.domain.families import is_lookup_covered
from costmodel.domain.hardware import Basis, Source
from costmodel.kernels import times
from costmodel.kernels.collectives import collective_estimate
from costmodel.kernels.embedding import (
    backward_bound,
    backward_time,
    forward_bound,
    forward_time,
    weight_gradient_time,
)
from costmodel.kernels.traffic import Traffic
from costmodel.step.loads import GroupLoad
from costmodel.step.step_operations import Op, ProcessGroup, StepOperations
from costmodel.step.template import (
    Event,
    Feature,
    Issued,
    Linear,
    Template,
    TemplateOp,
    Work,
    WorkKind,
)

_HBM = {
    WorkKind.FORWARD: Traffic.FORWARD_HBM,
    WorkKind.BACKWARD: Traffic.BACKWARD_HBM,
    WorkKind.WEIGHT_GRADIENT: Traffic.FORWARD_HBM,
}
"""Traffic column of the bytes of lookups; the weights' gradient gathers as the forward does."""


def evaluated(
    template: Template, loads: Sequence[GroupLoad], given: Mapping[int, Array] | None = None
) -> StepOperations:
    """Return the operations that a template gives for a plan's loads.

    Parameters
    ----------
    template
        Of the plan's own sharding groups and kernels.
    loads
        ``PlanLoads.groups`` of the plan.
    given
        Seconds of the operations whose work is ``WorkKind.GIVEN``, by number, shape (ranks,).

    Raises
    ------
    ValueError
        The template has operations of other groups.

    """
    present = {load.key for load in loads}
    if not all(op.exists(present) for op in template.ops):
        raise ValueError("a template of sharding groups that the plan does not have")
    topology = template.topology
    return StepOperations(
        ops=_Evaluation(template, loads, given or {}).ops(),
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
        launch_delay=template.launch_delay,
        like=template.like,
    )


class _Evaluation:
    """Evaluates the operations of a template from the last one on: an issue needs the next one."""

    def __init__(
        self, template: Template, loads: Sequence[GroupLoad], given: Mapping[int, Array]
    ) -> None:
        self.template = template
        self.hardware = template.topology.hardware
        self.loads = {load.key: load for load in loads}
        self.given = given
        self.seconds: dict[int, Array] = {}

    def ops(self) -> tuple[Op, ...]:
        """Return all operations."""
        shape = (self.template.topology.world_size,)
        for index, op in reversed(list(enumerate(self.template.ops))):
            self.seconds[index] = np.broadcast_to(self._seconds(index, op), shape)
        last: dict[str, int] = {}
        ops = []
        for index, op in enumerate(self.template.ops):
            ops.append(self._op(index, op, _resolved(op.after, last)))
            last[op.resource] = index
        return tuple(ops)

    def _op(self, index: int, op: TemplateOp, after: tuple[int, ...]) -> Op:
        """Return an operation with seconds and bytes of every rank; ``after`` numbers others."""
        num_bytes = self._num_bytes(op)
        basis = self._basis(index, op) if op.basis is None else op.basis
        return Op(
            name=op.name,
            kind=op.kind,
            stage=op.stage,
            resource=op.resource,
            seconds=self.seconds[index],
            num_bytes=num_bytes,
            after=after,
            after_previous=op.after_previous,
            launched_by=op.launched_by,
            group=op.group,
            role=op.role,
            basis=basis.on(self.hardware.device),
        )

    def _seconds(self, index: int, op: TemplateOp) -> Array:
        """Return an operation's seconds on every rank, or one number for all ranks."""
        work = op.work
        match work.kind:
            case WorkKind.GIVEN:
                seconds = self.given[index]
            case WorkKind.CONSTANT:
                seconds = np.full(1, work.seconds)
            case WorkKind.ISSUE:
                seconds = np.where(self.seconds[index + 1] > 0, work.seconds, 0.0)
            case WorkKind.FORWARD:
                seconds = forward_time(self._traffic(work), self.hardware)
            case WorkKind.BACKWARD:
                seconds = backward_time(self._traffic(work), self.hardware)
            case WorkKind.WEIGHT_GRADIENT:
                seconds = weight_gradient_time(self._traffic(work), self.hardware)
            case WorkKind.STREAM:
                gpu = self.hardware.gpu
                seconds = times.stream_times(
                    self._amount(work.amount),
                    gpu.kernel_latency,
                    gpu.memory_bandwidth,
                    gpu.stream_correction.array,
                ) * self._takes_place(work)
            case WorkKind.LINEAR:
                seconds = self._amount(work.amount)
            case WorkKind.EXCHANGE:
                seconds = self._exchange_time(op)
        return seconds

    def _takes_place(self, work: Work) -> NDArray[np.bool_]:
        """Return on which ranks enough of a stream's lookup kernels have work."""
        counts = np.zeros(self.template.topology.world_size)
        for group, kernel in work.where:
            counts += self.loads[group].traffic[kernel][:, Traffic.LOOKUPS] > 0
        return counts >= work.least

    def _exchange_time(self, op: TemplateOp) -> Array:
        if op.work.form is None:
            raise ValueError(f"`{op.name}` is an exchange without a form")
        return op.work.form.time(self._largest(self._amount(op.work.amount), op.group))

    def _largest(self, amount: Array, group: ProcessGroup | None) -> Array:
        """Return the largest message of the ranks that exchange, on each of them.

        Groups across nodes run side by side on shared links, and all count as the largest.
        """
        if group is not ProcessGroup.INTRA_NODE:
            largest: Array = amount.max(keepdims=True)
            return largest
        local = self.template.topology.local_world_size
        return np.repeat(amount.reshape(-1, local).max(axis=1), local)

    def _num_bytes(self, op: TemplateOp) -> Array:
        if op.work.kind in _HBM:
            traffic: Array = self._traffic(op.work)[:, _HBM[op.work.kind]]
            return traffic
        return self._amount(op.num_bytes)

    def _basis(self, index: int, op: TemplateOp) -> Basis:
        """Return the basis of a lookup where it takes longest, or of the largest message."""
        if op.exchange is not None:
            size = float(self._amount(op.work.amount).max())
            return collective_estimate(op.exchange.op, size, op.exchange.ranks, self.hardware).basis
        traffic = self._traffic(op.work)
        backward = op.work.kind is WorkKind.BACKWARD
        slowest = traffic[self.seconds[index].argmax()]
        bound = (backward_bound if backward else forward_bound)(slowest, self.hardware)
        lookups = float(traffic[:, Traffic.LOOKUPS].max())
        covered = is_lookup_covered(self.hardware, backward=backward, lookups=lookups)
        return Basis(bound, Source.ROOFLINE, extrapolated=not covered)

    def _traffic(self, work: Work) -> Array:
        """Return the traffic of the lookup kernel that does some work, a row for every rank."""
        if work.kernel is None:
            raise ValueError(f"no lookup kernel to {work.kind}")
        group, kernel = work.kernel
        return self.loads[group].traffic[kernel]

    def _amount(self, amount: Linear) -> Array:
        """Return a linear form of the loads, for every rank."""
        total = np.full(self.template.topology.world_size, amount.constant)
        for feature, weight in amount.weights.items():
            total = total + weight * _value(self.loads[feature.group], feature)
        return total


def _value(load: GroupLoad, feature: Feature) -> Array | float:
    """Return a feature's value in a group's loads, by rank or for the plan."""
    value = getattr(load, feature.name)
    number: Array | float = value if feature.kernel is None else value[feature.kernel]
    return number


def _resolved(events: Sequence[Event], last: Mapping[str, int]) -> tuple[int, ...]:
    """Return the operations of events, given the last one on each resource."""
    known = (last.get(each.resource) if isinstance(each, Issued) else each for each in events)
    return tuple(each for each in known if each is not None)
