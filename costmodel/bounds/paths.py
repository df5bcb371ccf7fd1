"""The device side of a step as formulas, and its heaviest cycles, which make up ``lower_bound``.

A cycle here is a path from the first to the last operation of one stream within a step: the stream
goes on with the next step from there. Its weight is linear in the plan (``WeightedCycle``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np

from costmodel.base.ranges import flat
from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector
from costmodel.bounds.longest_path import PathsToLast
from costmodel.bounds.op_times import OpTimes
from costmodel.bounds.precedence import compatible_ops, heaviest_compatible
from costmodel.step.graph import HOST_THREADS, Resource
from costmodel.step.groups import GroupKey
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import (
    RANK_FEATURES,
    SOME_TABLES_FEATURES,
    Issued,
    Template,
    TemplateOp,
    Work,
    WorkKind,
)

_SUMS = (WorkKind.STREAM, WorkKind.LINEAR)
"""Kinds of work whose duration is a sum over features, 0 if all of them are 0."""
STREAMS = (
    Resource.COMPUTE,
    Resource.DATA_DIST,
    Resource.MEMCPY,
    Resource.STASH,
    *(group.value for group in ProcessGroup),
)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedCycle:
    """Weight of a cycle: ``constant + weights @ z``, with z the plan's features."""

    constant: Seconds
    weights: Vector
    common: Vector
    """Part of the weights that is the same on every rank."""
    floor: Seconds
    """Part of the constant that is there on every rank."""
    lookups: bool
    """Whether every lookup and every update is on it."""

    def weight(self, z: Vector) -> Seconds:
        """Return the weight for given features."""
        return self.constant + float(self.weights @ z)


@dataclass(frozen=True)
class StreamOps:
    """Operations on the streams of the device, and the earlier ones that each waits for."""

    template: Template
    present: frozenset[GroupKey] = frozenset()
    """Groups that all the plans have, whose fixed costs count."""

    @cached_property
    def ops(self) -> dict[int, TemplateOp]:
        """Operations by number, without those that depend on which groups a plan has together."""
        wanted = enumerate(self.template.ops)
        return {n: op for n, op in wanted if op.resource in STREAMS and is_sure(op)}

    @cached_property
    def before(self) -> dict[int, tuple[int, ...]]:
        """Numbers of the operations that each waits for in the step, if a plan has all groups."""
        last: dict[str, int] = {}
        waits: dict[int, tuple[int, ...]] = {}
        for number, op in self.ops.items():
            events = [last.get(e.resource) if isinstance(e, Issued) else e for e in op.after]
            waiting = {*events, last.get(op.resource)}
            waits[number] = tuple(each for each in waiting if each in self.ops)
            last[op.resource] = number
        return waits

    @cached_property
    def paths(self) -> list[PathsToLast]:
        """Paths from the first to the last operation of each stream; places are in ``ops``.

        Some operations of a path may not be compatible.
        """
        place = {number: place for place, number in enumerate(self.ops)}
        before = list(self.before.items())
        found: list[PathsToLast] = []
        for resource in STREAMS:
            members = [number for number, op in self.ops.items() if op.resource == resource]
            if not members:
                continue
            known = {members[0]: 0}
            waits: list[Sequence[int]] = [()]
            for number, events in before[place[members[0]] + 1 : place[members[-1]] + 1]:
                reached = [known[each] for each in events if each in known]
                if reached:
                    known[number] = len(known)
                    waits.append(reached)
            numbers, first = flat(waits)
            places = np.array([place[number] for number in known], dtype=np.int64)
            found.append(PathsToLast(places, first, numbers))
        return found

    @cached_property
    def compatible(self) -> list[int]:
        """By place, bits of operations that can be on one cycle with it (``compatible_ops``)."""
        flags = np.packbits(compatible_ops(self.ops, self.present), axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in flags]


def is_sure(op: TemplateOp) -> bool:
    """Return whether any one of an operation's groups brings it; no bound may count others."""
    return not (op.joined or op.work.least)


def _may_be_lacking(work: Work) -> bool:
    """Return whether a work is only for cached or stashed tables, which a group may lack."""
    names = {feature.name for feature in work.amount.weights}
    return bool(names) and names.issubset(SOME_TABLES_FEATURES)


@dataclass(frozen=True)
class StepGraph:
    """Cycles of a step, and their weights as functions of a plan's features."""

    streams: StreamOps
    index: FeatureIndex
    largest: Vector
    """Upper bounds of z over all plans."""

    @property
    def template(self) -> Template:
        """The operations of all plans' steps."""
        return self.streams.template

    @property
    def ops(self) -> dict[int, TemplateOp]:
        """Operations on streams of the device, by their number."""
        return self.streams.ops

    def heaviest(self, z: Vector) -> WeightedCycle:
        """Return the heaviest cycle found for given features.

        It is on a longest path of plans that have all groups, without operations that are not
        compatible with longer ones.
        """
        seconds = self._times.seconds(z)
        times, paths = (
            seconds.tolist(),
            [(each.longest(seconds), each) for each in self.streams.paths],
        )
        best: list[int] = []
        heaviest = -1.0
        for total, each in sorted(paths, key=itemgetter(0), reverse=True):
            if total <= heaviest:
                break
            kept = heaviest_compatible(each.path(), times, self.streams.compatible)
            weight = sum(times[place] for place in kept)
            if weight > heaviest:
                best, heaviest = kept, weight
        numbers = list(self.ops)
        return self.cycle([numbers[place] for place in best], z)

    def direct(self, z: Vector) -> WeightedCycle:
        """Return the cycle of the lookups' stream alone."""
        streams = {op.resource for op in self.ops.values() if op.work.kernel is not None}
        return self.cycle([n for n, op in self.ops.items() if op.resource in streams], z)

    def host(self) -> WeightedCycle:
        """Return the cycle of the two host threads, which take turns, on a rank with lookups.

        Of work that only ranks with lookups of a group issue, the first table's counts; of work
        that all ranks issue for a group, the share of the tables in it.
        """
        constant, weights = 0.0, np.zeros(self.index.size)
        following = (*self.template.ops[1:], None)
        pairs = zip(self.template.ops, following, strict=True)
        for number, (op, after) in enumerate(pairs):
            if op.resource not in HOST_THREADS or not is_sure(op):
                continue
            issued = after.work if op.work.kind is WorkKind.ISSUE and after is not None else None
            if issued is not None and (issued.least or _may_be_lacking(issued)):
                continue
            if not op.part_of:
                always = issued is None or self._times.constant(number + 1) > 0
                constant += op.work.seconds if always else 0.0
            elif self._times.exists(op) and (issued is None or not self._depends_on_rank(issued)):
                constant += op.work.seconds if issued is None or self._lasts(issued) else 0.0
            elif issued is not None and self._depends_on_rank(issued):
                weights[self.index.here(op.part_of, issued.kernel)] += op.work.seconds
            elif issued is None or self._lasts(issued):
                modules = len({key[:2] for key in op.part_of})
                weights[self.index.present(op.part_of)] += op.work.seconds / modules
        return WeightedCycle(
            constant=constant, weights=weights, common=weights, floor=constant, lookups=False
        )

    @staticmethod
    def _depends_on_rank(work: Work) -> bool:
        """Return whether an operation may have nothing to do on some ranks."""
        on_ranks = all(feature.name in RANK_FEATURES for feature in work.amount.weights)
        return work.kernel is not None or (work.kind in _SUMS and on_ranks)

    def _lasts(self, work: Work) -> bool:
        """Return whether an operation that is the same on all ranks takes any time."""
        if work.kind is WorkKind.STREAM:
            return all(map(self.index.is_sure, work.amount.weights))
        return work.form is not None and float(work.form.time(0.0)) > 0

    def cycle(self, path: Sequence[int], z: Vector) -> WeightedCycle:
        """Return a path's weight as a function of z, lookups being bounded as at this z."""
        constants, together, own = self._times.formulas(path, z)
        constant = float(constants.sum())
        return WeightedCycle(
            constant=constant,
            floor=constant,
            weights=together + own,
            common=together + own * self.index.of_plan,
            lookups=self._lookups <= set(path),
        )

    @cached_property
    def _lookups(self) -> set[int]:
        """Numbers of all lookups and updates."""
        return {number for number, op in self.ops.items() if op.work.kernel is not None}

    @cached_property
    def _times(self) -> OpTimes:
        hardware = self.template.topology.hardware
        return OpTimes(self.ops, self.index, self.largest, self.streams.present, hardware)
