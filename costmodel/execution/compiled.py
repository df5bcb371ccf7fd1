"""A template, contracted and ready to be timed for many plans at once.

Between operations whose duration or existence depends on the plan, and collectives, everything is
a constant: the longest constant path from one such operation to the next becomes a *lag*, and the
constant operations disappear (a step of about 200 operations keeps some 50). What is left is a
list of max-plus recurrences over arrays of shape (plans, ranks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.groups import GroupKey
from costmodel.execution.program import ProcessGroup
from costmodel.execution.template import (
    RANK_FEATURES,
    Event,
    Feature,
    Issued,
    Linear,
    Template,
    TemplateOp,
    Work,
    WorkKind,
)
from costmodel.kernels.embedding import backward_time, forward_time
from costmodel.units import Seconds

Array = NDArray[np.float64]


class End(NamedTuple):
    """When an operation of this step ended; 0 if the plan does not have it."""

    op: int


class Free(NamedTuple):
    """When a resource was free after an operation of this step."""

    op: int


class Before(NamedTuple):
    """A value of the step before."""

    value: End | Free


Source = End | Free | Before
Lags = dict[Source, Seconds]
"""The latest of some sources, each plus a lag."""


class Owners(NamedTuple):
    """Sharding groups that a plan must have for an operation to exist, as in ``TemplateOp``."""

    part_of: tuple[GroupKey, ...]
    joined: tuple[GroupKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An operation that stays: its start as lags, its duration as work."""

    op: int
    start: tuple[tuple[Source, Seconds], ...]
    free_before: tuple[tuple[Source, Seconds], ...]
    """When its resource is free without it; only for operations some plans do not have."""
    work: Work
    group: ProcessGroup | None
    owners: "Owners"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchLoads:
    """Loads of some plans; a missing entry is zero."""

    rank: Mapping[Feature, Array]
    """Shape (plans, ranks)."""
    plan: Mapping[Feature, Array]
    """Shape (plans, 1)."""
    traffic: Mapping[object, Array]
    """By (group, kernel); shape (plans, ranks, NUM_TRAFFIC)."""


class Contraction:
    """Replaces constant operations by lags.

    ``complete``: of plans that have all groups of the template, and so all its operations.
    """

    def __init__(self, template: Template, *, complete: bool) -> None:
        self.template = template
        self.owners = [
            Owners((), ()) if complete else Owners(op.part_of, op.joined) for op in template.ops
        ]
        self.ends: list[Lags] = []
        self.frees: list[Lags] = []
        self.starts: dict[int, Lags] = {}
        self.kept: list[Kept] = []
        self.last: dict[str, int] = {}
        self.final = {op.resource: index for index, op in enumerate(template.ops)}
        self.marked = {index for op in template.ops for index in op.after_previous}

    def run(self) -> tuple[tuple[Kept, ...], tuple[Free, ...]]:
        """Return the operations that stay, and the values that end a step."""
        for index, op in enumerate(self.template.ops):
            self._contract(index, op)
        return tuple(self.kept), tuple(Free(index) for index in self.final.values())

    def _contract(self, index: int, op: TemplateOp) -> None:
        free = self._free_before(op)
        start = self._start(op, free)
        owners = self.owners[index]
        crossing = index in self.marked or index == self.final[op.resource]
        if op.work.kind is WorkKind.CONSTANT and not (op.group or owners.part_of or crossing):
            end = {source: lag + op.work.seconds for source, lag in start.items()}
            self.ends.append(end)
            self.frees.append(end)
        else:
            start = self._pruned(start)
            self.starts[index] = start
            self.ends.append({End(index): 0.0})
            self.frees.append({Free(index) if owners.part_of else End(index): 0.0})
            self.kept.append(
                Kept(
                    op=index,
                    start=tuple(start.items()),
                    free_before=tuple(free.items()) if owners.part_of else (),
                    work=op.work,
                    group=op.group,
                    owners=owners,
                )
            )
        self.last[op.resource] = index

    def _free_before(self, op: TemplateOp) -> Lags:
        if op.resource in self.last:
            return self.frees[self.last[op.resource]]
        return {Before(Free(self.final[op.resource])): 0.0}

    def _start(self, op: TemplateOp, free: Lags) -> Lags:
        start = dict(free)
        for after in op.after:
            _merge(start, self._event(after))
        for before in op.after_previous:
            _merge(start, {Before(End(before)): 0.0})
        if op.launched_by is not None:
            _merge(start, self.ends[op.launched_by], self.template.launch_delay)
        return start

    def _event(self, after: Event) -> Lags:
        if not isinstance(after, Issued):
            return self.ends[after]
        return self.frees[self.last[after.resource]] if after.resource in self.last else {}

    def _pruned(self, start: Lags) -> Lags:
        """Leave out sources that another source, which every plan has, always exceeds."""
        pruned = dict(start)
        for source, lag in start.items():
            if not isinstance(source, End) or self.owners[source.op].part_of:
                continue
            for earlier, distance in self.starts[source.op].items():
                if earlier in pruned and distance + lag >= pruned[earlier]:
                    del pruned[earlier]
        return pruned


def _merge(into: Lags, other: Lags, lag: Seconds = 0.0) -> None:
    for source, distance in other.items():
        into[source] = max(into.get(source, 0.0), distance + lag)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledStep:
    """The recurrences of a template."""

    template: Template
    kept: tuple[Kept, ...]
    final: tuple[Free, ...]

    @classmethod
    def of(cls, template: Template, *, complete: bool = False) -> "CompiledStep":
        """Contract a template.

        ``complete``: only of plans that have all of its groups; of others the times are wrong.
        """
        return cls(template, *Contraction(template, complete=complete).run())

    def step_times(self, loads: BatchLoads, num_steps: int) -> Array:
        """Return the duration of the last of some consecutive steps, for every plan."""
        return self.timed(*self._durations(loads), num_steps)

    def timed(
        self,
        durations: Mapping[int, Array],
        present: Mapping[Owners, Array | None],
        num_steps: int,
    ) -> Array:
        """Return the duration of the last step from those of all kept operations."""
        zero = np.zeros((1, 1))
        before: dict[Source, Array] = {}
        ends = [zero]
        for _ in range(num_steps):
            values: dict[Source, Array] = {}
            for kept in self.kept:
                self._time(kept, values, before, (durations[kept.op], present.get(kept.owners)))
            before = {Before(source): value for source, value in values.items()}  # type: ignore[arg-type]
            finals = [values[free].max(axis=-1, keepdims=True) for free in self.final]
            ends.append(np.maximum.reduce(np.broadcast_arrays(*finals)))
        period: Array = (ends[-1] - ends[-2])[:, 0]
        return period

    def _time(
        self,
        kept: Kept,
        values: dict[Source, Array],
        before: Mapping[Source, Array],
        cost: tuple[Array, Array | None],
    ) -> None:
        """Add when one operation ends, and when its resource is free then."""
        duration, present = cost
        start = _latest(kept.start, values, before)
        if kept.group is not None:
            start = self._joined(start, kept.group)
        end = start + duration
        if present is None:
            values[End(kept.op)] = values[Free(kept.op)] = end
            return
        values[End(kept.op)] = np.where(present, end, 0.0)
        values[Free(kept.op)] = np.where(present, end, _latest(kept.free_before, values, before))

    def _joined(self, start: Array, group: ProcessGroup) -> Array:
        """Give every rank the latest start of its group."""
        if start.shape[-1] == 1:
            return start
        if group is ProcessGroup.WORLD:
            latest: Array = start.max(axis=-1, keepdims=True)
            return latest
        local = self.template.topology.local_world_size
        grid = start.reshape(*start.shape[:-1], -1, local)
        axis = -1 if group is ProcessGroup.INTRA_NODE else -2
        joined: Array = np.broadcast_to(grid.max(axis=axis, keepdims=True), grid.shape)
        return joined.reshape(start.shape)

    def _durations(self, loads: BatchLoads) -> tuple[dict[int, Array], dict[Owners, Array | None]]:
        """Return the duration of every kept operation, and which plans have which groups."""
        present: dict[Owners, Array | None] = {}
        for owners in {kept.owners for kept in self.kept if kept.owners.part_of}:
            exists = _number_of(owners.part_of, loads) > 0
            if owners.joined:
                exists = np.logical_and(exists, _number_of(owners.joined, loads) > 1)
            present[owners] = None if exists.all() else exists.astype(np.float64)
        durations: dict[int, Array] = {}
        for kept in reversed(self.kept):  # an issue needs the operation after it
            if kept.work.kind is WorkKind.ISSUE:
                issued = durations[kept.op + 1]
                durations[kept.op] = np.where(issued > 0, kept.work.seconds, 0.0)
            else:
                durations[kept.op] = self._duration(kept, loads)
        return durations, present

    def _duration(self, kept: Kept, loads: BatchLoads) -> Array:
        work, hardware = kept.work, self.template.topology.hardware
        if work.kind is WorkKind.CONSTANT:
            return np.full((1, 1), work.seconds)
        if work.kind is WorkKind.FORWARD:
            return forward_time(loads.traffic[work.kernel], hardware)
        if work.kind is WorkKind.BACKWARD:
            return backward_time(loads.traffic[work.kernel], hardware)
        amount = _evaluate(work.amount, loads)
        if work.kind is WorkKind.EXCHANGE:
            return self._exchange(kept, amount)
        gpu = hardware.gpu
        moving = gpu.kernel_latency + amount / gpu.memory_bandwidth
        return np.where(amount > 0, moving, 0.0)

    def _exchange(self, kept: Kept, amount: Array) -> Array:
        form = kept.work.form
        if form is None:
            raise ValueError("an exchange without a form")
        if kept.group is ProcessGroup.INTRA_NODE and amount.shape[-1] > 1:
            largest = self._joined(amount, ProcessGroup.INTRA_NODE)
        else:
            largest = amount.max(axis=-1, keepdims=True)
        return form.time(largest)


def _number_of(groups: Sequence[GroupKey], loads: BatchLoads) -> Array:
    """Return how many of some groups each plan has."""
    number: Array = np.sum([loads.plan[Feature(key, "present")] > 0 for key in groups], axis=0)
    return number


def _latest(
    lags: Sequence[tuple[Source, Seconds]],
    values: Mapping[Source, Array],
    before: Mapping[Source, Array],
) -> Array:
    latest: Array | None = None
    for source, lag in lags:
        known = before.get(source) if isinstance(source, Before) else values[source]
        if known is None:
            known = _ZERO  # nothing came before the first step
        value = known + lag if lag else known
        latest = value if latest is None else np.maximum(latest, value)
    return _ZERO if latest is None else latest


_ZERO = np.zeros((1, 1))


def _evaluate(amount: Linear, loads: BatchLoads) -> Array:
    total: Array = np.full((1, 1), amount.constant)
    for feature, weight in amount.weights.items():
        side = loads.rank if feature.name in RANK_FEATURES else loads.plan
        total = total + weight * side[feature]
    return total
