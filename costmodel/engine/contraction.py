"""Leaves out what is constant: operations between those that depend on the plan become lags.

Between operations whose duration depends on the plan, and collectives, everything is a constant:
the longest constant path from one such operation to the next becomes a *lag*, and the constant
operations disappear (a step of about 200 operations keeps some 50). What is left is a list of
max-plus recurrences.

Compiled when the package is built (types are in ``contraction.pxd``); the same file runs
interpreted. A search contracts a step for every new set of sharding groups: 300 times in three
seconds where tables are of several kinds, each in some hundredths of a millisecond.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Ints
from costmodel.base.ranges import flat, taken
from costmodel.step.template import Issued, Template, TemplateOp, WorkKind


class Contracted(NamedTuple):
    """Operations that are left, in order; other arrays use their places among these."""

    ops: Ints
    """Numbers in the template."""
    starts: Ints
    """Where the sources of each begin, shape (operations + 1,)."""
    sources: Ints
    """Operations that each waits for; ``-1 - operation`` is that of the step before."""
    lags: Array
    """Seconds between a source's end and the operation's start."""
    finals: Ints
    """Operations that end a step, the last one of every resource."""


class Contraction:
    """Contracts the steps of plans that have some of a template's operations."""

    def __init__(self, template: Template) -> None:
        ops = template.ops
        self.launch_delay = template.launch_delay
        numbers = {name: number for number, name in enumerate(template.resources)}
        self.resource = np.array([numbers[op.resource] for op in ops], dtype=np.int64)
        self.events, self.events_from = flat(
            [_event(each, numbers) for each in op.after] for op in ops
        )
        """What operations wait for: one, or ``-1 - resource``; and where each one's begin."""
        self.before, self.before_from = flat(op.after_previous for op in ops)
        """Operations of the step before, and where each one's begin."""
        self.launched_by = np.array([_launcher(op) for op in ops], dtype=np.int64)
        """The operation that launches each; -1: none."""
        self.seconds = np.array([op.work.seconds for op in ops], dtype=np.float64)
        self.varies = np.array([_varies(op) for op in ops], dtype=np.int64)
        """Whether an operation is never contracted."""

        self.stays = np.zeros(len(ops), dtype=np.int64)
        """1: the operation is left; 0: it becomes lags; -1: the plan lacks it."""
        self.marked = np.zeros(len(ops), dtype=np.int64)
        """Whether an operation of the next step waits for each."""
        self.final = np.zeros(len(numbers), dtype=np.int64)
        """The last operation of every resource; -1: it has none."""
        self.last = np.zeros(len(numbers), dtype=np.int64)
        """The last one so far."""
        self.first = np.zeros(len(ops) + 1, dtype=np.int64)
        """Where each operation's lags begin, to its start if it is left, else to its end."""
        self.sources = np.zeros(4 * len(ops) + 4, dtype=np.int64)
        """Source of every lag: the end of an operation that is left, or of ``-1 - operation`` in
        the step before."""
        self.lags = np.zeros(4 * len(ops) + 4)
        self.end = 0
        """Where the present operation's lags end."""
        self.seen = np.zeros(2 * len(ops), dtype=np.int64)
        """By source, the last operation that waits for it (``_place``)."""
        self.at = np.zeros(2 * len(ops), dtype=np.int64)
        """By source, where that operation's lag is."""

    def contract(self, is_there: NDArray[np.bool_] | None = None) -> Contracted:
        """Contract the step of plans that have some operations; by default all."""
        every = np.ones(len(self.resource), dtype=np.int64)
        self._run(every if is_there is None else is_there.astype(np.int64))
        stays, first = np.asarray(self.stays), np.asarray(self.first)
        ops = np.flatnonzero(stays == 1)
        place = np.cumsum(stays == 1) - 1
        starts, at = taken(first, ops)
        sources = np.asarray(self.sources)[at]
        is_before = sources < 0
        places = place[np.where(is_before, -1 - sources, sources)]
        final = np.asarray(self.final)
        return Contracted(
            ops=ops,
            starts=starts,
            sources=np.where(is_before, -1 - places, places),
            lags=np.asarray(self.lags)[at],
            finals=place[final[final >= 0]],
        )

    def _run(self, there: Ints) -> None:
        """Contract the step of plans that have some operations."""
        count = len(self.resource)
        for resource in range(len(self.final)):
            self.final[resource] = self.last[resource] = -1
        for op in range(count):
            self.marked[op] = 0
            self.stays[op] = -1
            self.seen[op] = self.seen[count + op] = -1
        for op in range(count):
            if there[op]:
                self.final[self.resource[op]] = op
                for at in range(self.before_from[op], self.before_from[op + 1]):
                    if there[self.before[at]]:
                        self.marked[self.before[at]] = 1
        self.end = 0
        for op in range(count):
            self.first[op] = self.end
            if there[op]:
                self._add(op)
        self.first[count] = self.end

    def _add(self, op: int) -> None:
        """Contract the next operation, or leave it."""
        resource = self.resource[op]
        last = self.last[resource]
        if last >= 0:
            self._wait_for(op, last, 0.0)
        else:
            self._wait(op, -1 - self.final[resource], 0.0)
        for at in range(self.events_from[op], self.events_from[op + 1]):
            event = self.events[at]
            source = event if event >= 0 else self.last[-1 - event]
            if source >= 0:
                self._wait_for(op, source, 0.0)
        for at in range(self.before_from[op], self.before_from[op + 1]):
            if self.marked[self.before[at]]:
                self._wait(op, -1 - self.before[at], 0.0)
        if self.launched_by[op] >= 0:
            self._wait_for(op, self.launched_by[op], self.launch_delay)
        self.last[resource] = op
        if self.varies[op] or self.marked[op] or self.final[resource] == op:
            self.stays[op] = 1
            self._prune(op)
            return
        self.stays[op] = 0
        for at in range(self.first[op], self.end):
            self.lags[at] += self.seconds[op]

    def _wait_for(self, op: int, other: int, lag: float) -> None:
        """Have an operation wait for another one's end and a lag, if that one is there."""
        if self.stays[other] == 1:
            self._wait(op, other, lag)
        elif self.stays[other] == 0:
            for at in range(self.first[other], self.first[other + 1]):
                self._wait(op, self.sources[at], self.lags[at] + lag)

    def _wait(self, op: int, source: int, lag: float) -> None:
        """Have an operation start at a lag after a source's end at the earliest."""
        place = self._place(source)
        if self.seen[place] == op:
            at = self.at[place]
            self.lags[at] = max(self.lags[at], lag)
            return
        if self.end == len(self.sources):
            self.sources = np.append(self.sources, np.zeros(self.end, dtype=np.int64))
            self.lags = np.append(self.lags, np.zeros(self.end))
        self.seen[place], self.at[place] = op, self.end
        self.sources[self.end], self.lags[self.end] = source, lag
        self.end += 1

    def _prune(self, op: int) -> None:
        """Drop sources of an operation that another of its sources always exceeds."""
        begin = self.first[op]
        for at in range(begin, self.end):
            source, lag = self.sources[at], self.lags[at]
            if source >= 0:
                for other in range(self.first[source], self.first[source + 1]):
                    place = self._place(self.sources[other])
                    if (
                        self.seen[place] == op
                        and self.lags[other] + lag >= self.lags[self.at[place]]
                    ):
                        self.seen[place] = -1
        kept = begin
        for at in range(begin, self.end):
            if self.seen[self._place(self.sources[at])] == op:
                self.sources[kept], self.lags[kept] = self.sources[at], self.lags[at]
                kept += 1
        self.end = kept

    def _place(self, source: int) -> int:
        """Return the index in ``seen`` and ``at`` of a source."""
        return source if source >= 0 else len(self.resource) - 1 - source


def _event(event: int | Issued, resources: dict[str, int]) -> int:
    """Return an event as a number: an operation, or ``-1 - resource``."""
    return event if isinstance(event, int) else -1 - resources[event.resource]


def _launcher(op: TemplateOp) -> int:
    """Return the operation that launches an operation; -1: none."""
    return -1 if op.launched_by is None else op.launched_by


def _varies(op: TemplateOp) -> bool:
    """Return whether an operation is never contracted: it depends on the plan, or joins ranks."""
    return op.work.kind is not WorkKind.CONSTANT or op.group is not None
