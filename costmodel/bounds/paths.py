"""The device side of a step as formulas, and its heaviest cycles: what ``lower_bound`` is made of.

A cycle here is a path from the first to the last operation of one stream within a step: the stream
goes on with the next step from there. Its weight is linear in the plan (``WeightedCycle``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes, Seconds
from costmodel.bounds.option_features import GROUP_FEATURES, KERNEL_VALUES, GroupKernel, Part
from costmodel.bounds.precedence import Flags, compatible_ops, heaviest_compatible
from costmodel.engine.timer import Signature
from costmodel.kernels.collectives import CollectiveForm
from costmodel.kernels.traffic import WEIGHT_GRADIENT_RATIO
from costmodel.step.graph import HOST_THREADS, Resource
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.program import ProcessGroup
from costmodel.step.template import (
    KERNEL_FEATURES,
    PLAN_FEATURES,
    RANK_FEATURES,
    Feature,
    Issued,
    Template,
    TemplateOp,
    Work,
    WorkKind,
)

Vector = NDArray[np.float64]
Lines = tuple[tuple[float, float], ...]
"""Constants and slopes."""
_SUMS = (WorkKind.STREAM, WorkKind.LINEAR)
"""Durations that are sums over features: where all of those are 0, there is none."""
_SLOPES = (0.0, 0.3, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0)
"""Slopes of the lines below a collective's curve, as multiples of the slope of its chord."""
STREAMS = (Resource.COMPUTE, Resource.DATA_DIST, *(group.value for group in ProcessGroup))


@dataclass(frozen=True, slots=True, eq=False)
class WeightedCycle:
    """Weight of a cycle: ``constant + weights @ z``, with z the plan's features."""

    constant: Seconds
    weights: Vector
    common: Vector
    """The part of the weights that is the same on every rank."""
    lookups: bool
    """Whether every lookup and every update is on it."""


class FeatureIndex:
    """Where each feature of groups and kernels is in the vector z of a plan."""

    def __init__(self, kernels: Signature) -> None:
        self._groups: dict[GroupKey, int] = {}
        self._kernels: dict[tuple[GroupKey, KernelKey], int] = {}
        size = 0
        for group, names in kernels:
            self._groups[group] = size
            size += len(GROUP_FEATURES)
            for kernel in names:
                self._kernels[group, kernel] = size
                size += len(KERNEL_VALUES)
        self.size = size
        self.of_plan = np.zeros(size)
        """1 for features that are the same on every rank."""
        for first in self._groups.values():
            for offset, name in enumerate(GROUP_FEATURES):
                self.of_plan[first + offset] = float(name in PLAN_FEATURES)
        for first in self._kernels.values():
            self.of_plan[first : first + len(KERNEL_FEATURES)] = 1.0

    def feature(self, feature: Feature) -> int:
        """Return the place of a feature."""
        if feature.kernel is not None:
            first = self._kernels[feature.group, feature.kernel]
            return first + KERNEL_VALUES.index(feature.name)
        return self._groups[feature.group] + GROUP_FEATURES.index(feature.name)

    def is_sure(self, feature: Feature) -> bool:
        """Return whether it has a value in all plans with its group: they may lack a kernel."""
        of_group = [kernel for group, kernel in self._kernels if group == feature.group]
        return feature.kernel is None or of_group == [feature.kernel]

    def part(self, kernel: tuple[GroupKey, KernelKey], part: Part) -> int:
        """Return the place of a lookup kernel's part."""
        return self._kernels[kernel] + len(KERNEL_FEATURES) + part

    @property
    def groups(self) -> list[GroupKey]:
        """All groups, in the order of a step."""
        return list(self._groups)

    def shares(self, z: Vector) -> dict[GroupKey, float]:
        """Return the share of tables that is in each group."""
        return {group: float(z[self.present([group])[0]]) for group in self._groups}

    def present(self, groups: Sequence[GroupKey]) -> list[int]:
        """Return the places of what says whether groups are there."""
        return [self._groups[group] + GROUP_FEATURES.index("present") for group in groups]

    def here(
        self, groups: Sequence[GroupKey], kernel: tuple[GroupKey, KernelKey] | None
    ) -> list[int]:
        """Return the places of what says whether kernels have work on the first table's rank."""
        some = [kernel] if kernel else [key for key in self._kernels if key[0] in groups]
        return [self.part(each, Part.HERE) for each in some]

    def of_kernel(self, kernel: GroupKernel) -> list[int]:
        """Return the places of the values of options that have a group and kernel."""
        first, second = self._groups[kernel[0]], self._kernels[kernel]
        return [
            *range(first, first + len(GROUP_FEATURES)),
            *range(second, second + len(KERNEL_VALUES)),
        ]


@dataclass(frozen=True)
class StreamOps:
    """Operations on the streams of the device, and what each has to wait for on them."""

    template: Template
    present: frozenset[GroupKey] = frozenset()
    """Groups that the plans in question have, whatever else."""

    @cached_property
    def ops(self) -> dict[int, TemplateOp]:
        """Operations by their number; not those that depend on which groups a plan has together."""
        wanted = enumerate(self.template.ops)
        return {n: op for n, op in wanted if op.resource in STREAMS and is_sure(op)}

    @cached_property
    def before(self) -> dict[int, tuple[int, ...]]:
        """What every operation waits for within the step, if a plan has all groups."""
        last: dict[str, int] = {}
        waits: dict[int, tuple[int, ...]] = {}
        for number, op in self.ops.items():
            events = [last.get(e.resource) if isinstance(e, Issued) else e for e in op.after]
            waiting = {*events, last.get(op.resource)}
            waits[number] = tuple(each for each in waiting if each in self.ops)
            last[op.resource] = number
        return waits

    @cached_property
    def compatible(self) -> Flags:
        """Which operations can be on one cycle, by place; see ``compatible_ops``."""
        return compatible_ops(self.ops, self.present)

    @cached_property
    def place(self) -> dict[int, int]:
        """Where operations are in ``ops``."""
        return {number: place for place, number in enumerate(self.ops)}

    def longest(self, resource: str, times: Mapping[int, Seconds]) -> list[int]:
        """Return a long path between the first and the last operation of a stream.

        It is the longest one of plans that have all groups, less what is not compatible with
        longer operations.
        """
        members = [number for number, op in self.ops.items() if op.resource == resource]
        if not members:
            return []
        first, last = members[0], members[-1]
        ends: dict[int, Seconds] = {first: times[first]}
        came_from: dict[int, int] = {}
        for number in self.ops:
            if number <= first:
                continue
            reached = [each for each in self.before[number] if each in ends]
            if reached:
                came_from[number] = max(reached, key=lambda each: (ends[each], each))
                ends[number] = ends[came_from[number]] + times[number]
        path = [last]
        while path[-1] in came_from:
            path.append(came_from[path[-1]])
        path.reverse()
        kept = heaviest_compatible(
            [self.place[number] for number in path], [times[number] for number in path],
            self.compatible,
        )  # fmt: skip
        numbers = list(self.ops)
        return [numbers[place] for place in kept]


def is_sure(op: TemplateOp) -> bool:
    """Return whether any of an operation's groups brings it; on others no bound may count."""
    return not (op.joined or op.work.least)


@dataclass(frozen=True)
class StepGraph:
    """Cycles of a step, and their weights as functions of a plan's features."""

    streams: StreamOps
    index: FeatureIndex
    largest: Vector
    """No plan's z exceeds this."""
    present: frozenset[GroupKey] = frozenset()
    """Groups that the plans in question have: what they cost whatever is in them counts, too."""

    @property
    def template(self) -> Template:
        """The operations of all plans' steps."""
        return self.streams.template

    @property
    def ops(self) -> dict[int, TemplateOp]:
        """Operations on streams of the device, by their number."""
        return self.streams.ops

    def heaviest(self, z: Vector) -> WeightedCycle:
        """Return the heaviest cycle found for given features."""
        times = {number: self._time(op.work, z) for number, op in self.ops.items()}
        paths = [self.streams.longest(stream, times) for stream in STREAMS]
        return self.cycle(max(paths, key=lambda path: sum(times[number] for number in path)), z)

    def direct(self, z: Vector) -> WeightedCycle:
        """Return the cycle of the lookups' stream alone."""
        streams = {op.resource for op in self.ops.values() if op.work.kernel is not None}
        return self.cycle([n for n, op in self.ops.items() if op.resource in streams], z)

    def host(self) -> WeightedCycle:
        """Return the cycle of the two host threads, which take turns, on a rank with lookups.

        Of work that only ranks with lookups of a group issue, what the first table brings counts;
        of work that all ranks issue for a group, the share of the tables that are in it.
        """
        constant, weights = 0.0, np.zeros(self.index.size)
        following = (*self.template.ops[1:], None)
        for op, after in zip(self.template.ops, following, strict=True):
            if op.resource not in HOST_THREADS or not is_sure(op):
                continue
            issued = after.work if op.work.kind is WorkKind.ISSUE and after is not None else None
            if issued is not None and issued.least:
                continue
            if not op.part_of:
                always = issued is None or self._fixed[id(issued)][0] > 0
                constant += op.work.seconds if always else 0.0
            elif self._exists(op) and (issued is None or not self._depends_on_rank(issued)):
                constant += op.work.seconds if issued is None or self._lasts(issued) else 0.0
            elif issued is not None and self._depends_on_rank(issued):
                weights[self.index.here(op.part_of, issued.kernel)] += op.work.seconds
            elif issued is None or self._lasts(issued):
                modules = len({key[:2] for key in op.part_of})
                weights[self.index.present(op.part_of)] += op.work.seconds / modules
        return WeightedCycle(constant=constant, weights=weights, common=weights, lookups=False)

    @staticmethod
    def _depends_on_rank(work: Work) -> bool:
        """Return whether there may be ranks on which an operation has nothing to do."""
        on_ranks = all(feature.name in RANK_FEATURES for feature in work.amount.weights)
        return work.kernel is not None or (work.kind in _SUMS and on_ranks)

    def _lasts(self, work: Work) -> bool:
        """Return whether an operation that is the same on all ranks takes any time."""
        if work.kind is WorkKind.STREAM:
            return all(map(self.index.is_sure, work.amount.weights))
        return work.form is not None and float(work.form.time(0.0)) > 0

    def _exists(self, op: TemplateOp) -> bool:
        """Return whether an operation is there whatever the plan."""
        return not op.part_of or not self.present.isdisjoint(op.part_of)

    def cycle(self, path: Sequence[int], z: Vector) -> WeightedCycle:
        """Return a path's weight as a function of z; lookups by what bounds them at this z."""
        formulas = {number: self._formula(self.ops[number].work, z) for number in path}
        lookups = {n for n, op in self.ops.items() if op.work.kernel is not None}
        common = np.zeros(self.index.size)
        for number, (_, weights) in formulas.items():
            exchange = self.ops[number].work.kind is WorkKind.EXCHANGE
            common += weights if exchange else weights * self.index.of_plan
        return WeightedCycle(
            constant=sum(constant for constant, _ in formulas.values()),
            weights=np.sum([weights for _, weights in formulas.values()], axis=0),
            common=common,
            lookups=lookups <= set(path),
        )

    def _time(self, work: Work, z: Vector) -> Seconds:
        constant, weights = self._formula(work, z)
        return float(constant + weights @ z)

    def _formula(self, work: Work, z: Vector) -> tuple[Seconds, Vector]:
        """Return the least duration of an operation: a constant, and seconds per feature."""
        weights = np.zeros(self.index.size)
        if work.kernel is not None:
            rivals: tuple[Part, ...] = (Part.FORWARD_HBM, Part.FORWARD_L2)
            other, times = Part.FORWARD_OTHER, 1.0
            if work.kind is WorkKind.BACKWARD:
                rivals = (Part.BACKWARD_HBM, Part.BACKWARD_L2, Part.BACKWARD_IDS)
                other = Part.BACKWARD_OTHER
            longest = max(
                (self.index.part(work.kernel, part) for part in rivals), key=z.__getitem__
            )
            if work.kind is WorkKind.WEIGHT_GRADIENT:
                times = WEIGHT_GRADIENT_RATIO
            weights[[longest, self.index.part(work.kernel, other)]] = times
            return 0.0, weights
        constant, per_feature, lines = self._fixed[id(work)]
        if lines is None:
            return constant, per_feature
        constant, slope = max(lines, key=lambda line: line[0] + line[1] * (per_feature @ z))
        return constant, per_feature * slope

    @cached_property
    def _fixed(self) -> dict[int, tuple[Seconds, Vector, Lines | None]]:
        """Formulas of everything but lookups; of collectives, bytes and times per byte."""
        return {id(op.work): self._linear(op) for op in self.ops.values()}

    def _linear(self, op: TemplateOp) -> tuple[Seconds, Vector, Lines | None]:
        work, gpu = op.work, self.template.topology.hardware.gpu
        amounts = np.zeros(self.index.size)
        always = self._exists(op)
        for feature, weight in work.amount.weights.items():
            if always or feature.group in op.part_of:  # others' amounts alone do not bring it
                amounts[self.index.feature(feature)] += weight
        if work.kind is WorkKind.STREAM:
            alike = all(
                feature.name not in RANK_FEATURES and self.index.is_sure(feature)
                for feature in work.amount.weights
            )
            some = work.amount.constant > 0 or bool(work.amount.weights)
            least = gpu.stream_correction.least_factor
            fixed = least * (work.amount.constant / gpu.memory_bandwidth + gpu.kernel_latency)
            constant = fixed if always and alike and some else 0.0
            return constant, least * amounts / gpu.memory_bandwidth, None
        if work.kind is WorkKind.EXCHANGE and work.form is not None:
            floor = float(work.form.time(work.amount.constant)) if always else 0.0
            return floor, amounts, lines_below(work.form, float(amounts @ self.largest), floor)
        constant = work.seconds if always and work.kind is WorkKind.CONSTANT else 0.0
        return constant, amounts, None


def lines_below(form: CollectiveForm, most: Bytes, floor: Seconds) -> Lines:
    """Return straight lines that a collective's time is never below, up to so many bytes.

    Each is as high as its slope allows. Without bytes the time counts as the floor: 0 where the
    collective may not take place, its latency where it does. Times grow with bytes, so between two
    sizes of a grid the time is at least that of the smaller one, and a line that is below the
    smaller one's time at the larger one is below the curve.
    """
    if most <= 0:
        return ((floor, 0.0),)
    sizes = np.geomspace(most / 2.0**13, most, 2**11)
    times = form.time(np.concatenate(([0.0], sizes)))
    lowest, at = np.append(floor, times[:-1]), np.append(0.0, sizes)
    chord = float((times[-1] - floor) / most)
    slopes = chord * np.array(_SLOPES)
    constants = (lowest[None, :] - slopes[:, None] * at[None, :]).min(axis=1)
    steepest = max(0.0, float(((lowest[1:] - floor) / sizes).min()))
    return ((floor, steepest), *zip(constants.tolist(), slopes.tolist(), strict=True))
