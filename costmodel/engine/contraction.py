"""Leaves out what is constant: operations between those that depend on the plan become lags.

Between operations whose duration depends on the plan, and collectives, everything is a constant:
the longest constant path from one such operation to the next becomes a *lag*, and the constant
operations disappear (a step of about 200 operations keeps some 50). What is left is a list of
max-plus recurrences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.base.units import Seconds
from costmodel.step.program import ProcessGroup
from costmodel.step.template import (
    Event,
    Issued,
    Template,
    TemplateOp,
    Work,
    WorkKind,
)


class End(NamedTuple):
    """When an operation ended, in this step or in the one before."""

    op: int
    is_before: bool = False


Lags = dict[End, Seconds]
"""The latest of some ends, each plus a lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An operation that stays: its start as lags, its duration as work."""

    op: int
    start: Mapping[End, Seconds]
    work: Work
    group: ProcessGroup | None


def contract(
    template: Template, numbers: Sequence[int] | None = None
) -> tuple[tuple[Kept, ...], tuple[int, ...]]:
    """Return the operations that stay, and those that end a step, the last of every resource.

    ``numbers``: those that the plans in question have, in order; by default all of the template.
    """
    contraction = _Contraction(template, range(len(template.ops)) if numbers is None else numbers)
    return tuple(contraction.kept), tuple(contraction.final.values())


class _Contraction:
    """What is known of the operations so far."""

    def __init__(self, template: Template, numbers: Sequence[int]) -> None:
        self.template = template
        self.kept: list[Kept] = []
        self.final = {template.ops[index].resource: index for index in numbers}
        self._ends: dict[int, Lags] = {}
        """Lags at which every operation ends."""
        self._starts: dict[int, Lags] = {}
        """Lags at which the operations that stay start."""
        self._last: dict[str, int] = {}
        there = set(numbers)
        self._marked = {
            before
            for index in numbers
            for before in template.ops[index].after_previous
            if before in there
        }
        for index in numbers:
            self._add(index, template.ops[index])

    def _add(self, index: int, op: TemplateOp) -> None:
        """Contract the next operation, or keep it."""
        start = self._start(op)
        crossing = index in self._marked or index == self.final[op.resource]
        if op.work.kind is WorkKind.CONSTANT and not (op.group or crossing):
            self._ends[index] = {source: lag + op.work.seconds for source, lag in start.items()}
        else:
            self._starts[index] = start = self._pruned(start)
            self._ends[index] = {End(index): 0.0}
            self.kept.append(Kept(op=index, start=start, work=op.work, group=op.group))
        self._last[op.resource] = index

    def _start(self, op: TemplateOp) -> Lags:
        """Return what an operation waits for."""
        if op.resource in self._last:
            start = dict(self._ends[self._last[op.resource]])
        else:
            start = {End(self.final[op.resource], is_before=True): 0.0}
        for after in op.after:
            _merge(start, self._event(after))
        for before in op.after_previous:
            if before in self._marked:
                _merge(start, {End(before, is_before=True): 0.0})
        if op.launched_by is not None:
            _merge(start, self._ends[op.launched_by], self.template.launch_delay)
        return start

    def _event(self, after: Event) -> Lags:
        """Return when an event happens: the end of an operation, or of a resource's last one.

        There is nothing to wait for where the plans have no such operation.
        """
        if not isinstance(after, Issued):
            return self._ends.get(after, {})
        return self._ends[self._last[after.resource]] if after.resource in self._last else {}

    def _pruned(self, start: Lags) -> Lags:
        """Leave out sources that another source always exceeds."""
        pruned = dict(start)
        for source, lag in start.items():
            if source.is_before:
                continue
            for earlier, distance in self._starts[source.op].items():
                if earlier in pruned and distance + lag >= pruned[earlier]:
                    del pruned[earlier]
        return pruned


def _merge(into: Lags, other: Lags, lag: Seconds = 0.0) -> None:
    for source, distance in other.items():
        into[source] = max(into.get(source, 0.0), distance + lag)
