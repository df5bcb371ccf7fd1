"""Lower bounds of the durations of a step's stream operations, as formulas of a plan's features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes, Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector
from costmodel.bounds.option_features import Part
from costmodel.domain.hardware import HardwareProfile
from costmodel.kernels.collectives import CollectiveForm
from costmodel.kernels.embedding import lookup_rates
from costmodel.kernels.traffic import WEIGHT_GRADIENT_RATIO
from costmodel.step.cuts import GroupKernel
from costmodel.step.groups import GroupKey
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import RANK_FEATURES, Feature, TemplateOp, Work, WorkKind

Lines = tuple[tuple[float, float], ...]
"""(constant, slope) of straight lines."""
BusyShares = Mapping[GroupKey | GroupKernel, float]
"""Smallest share of the ranks on which groups that all plans have, or lookup kernels, have work."""
_SLOPES = (0.0, 0.3, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0)
"""Slopes of the lines below a collective's curve, as multiples of the slope of its chord."""
FORWARD: tuple[Part, ...] = (Part.FORWARD_HBM, Part.FORWARD_L2)
BACKWARD: tuple[Part, ...] = (Part.BACKWARD_HBM, Part.BACKWARD_L2, Part.BACKWARD_IDS)
"""Parts of a lookup's backward, any of which may bound it."""


class _KernelTimes(NamedTuple):
    """Formulas of lookup kernels: ``constant + times (the largest rival + other)`` of z."""

    places: NDArray[np.intp]
    """Places of the kernels in ``ops``, shape (kernels,)."""
    constants: Vector
    rivals: NDArray[np.intp]
    """Features of which the largest bounds a kernel, shape (kernels, rivals); the first is repeated
    where there are fewer."""
    others: NDArray[np.intp]
    times: Vector


@dataclass(frozen=True)
class OpTimes:
    """Durations that no plan's operations undercut, linear in z once their bound is known."""

    ops: Mapping[int, TemplateOp]
    index: FeatureIndex
    largest: Vector
    """Upper bounds of z over all plans."""
    present: frozenset[GroupKey]
    """Groups that all the plans have."""
    hardware: HardwareProfile
    shares: BusyShares = field(default_factory=dict)
    """Groups and kernels for which some ranks may have no work."""

    def of(self, z: Vector) -> dict[int, Seconds]:
        """Return the duration of every operation, by number."""
        return dict(zip(self.ops, self.seconds(z).tolist(), strict=True))

    def seconds(self, z: Vector) -> Vector:
        """Return the duration of every operation, by place in ``ops``."""
        linear = self._amounts @ z
        seconds: Vector = self._constants + linear
        places, constants, slopes = self._lines
        at = linear[places]
        seconds[places] = (constants + slopes * at[:, None]).max(axis=1)
        lookups = self._kernel_times
        longest = z[lookups.rivals].max(axis=1)
        seconds[lookups.places] = lookups.constants + lookups.times * (longest + z[lookups.others])
        return seconds

    def formulas(self, numbers: Sequence[int], z: Vector) -> tuple[Vector, Vector, Vector]:
        """Return the durations of operations as formulas, by what bounds them at this z.

        Returns
        -------
            The constant of each, (numbers,); and seconds per feature, (features,): the sums over
            operations that take as long on all ranks, and over the others.

        """
        constants, factors = self._constants.copy(), np.zeros(len(self.ops))
        places = [self._place[number] for number in numbers]
        factors[places] = 1.0
        of_lines, starts, slopes = self._lines
        at = self._amounts[of_lines] @ z
        steepest = (starts + slopes * at[:, None]).argmax(axis=1)
        every = np.arange(len(of_lines))
        constants[of_lines] = starts[every, steepest]
        factors[of_lines] *= slopes[every, steepest]
        lookups = self._kernel_times
        constants[lookups.places] = lookups.constants
        times = factors[lookups.places] * lookups.times
        factors[lookups.places] = 0.0
        # one after the other: BLAS divides a product of matrices of this size among threads, which
        # wait for one another for 50 ms where cores are shared
        together, own = (factors * each @ self._amounts for each in (self._alike, ~self._alike))
        rivals = lookups.rivals[np.arange(len(times)), z[lookups.rivals].argmax(axis=1)]
        np.add.at(own, np.append(rivals, lookups.others), np.append(times, times))
        return constants[places], together, own

    def constant(self, number: int) -> Seconds:
        """Return an operation's seconds whatever the features; of a collective, without bytes."""
        place, lookups = self._place[number], self._kernel_times
        own = lookups.constants[lookups.places == place]
        return float(own[0]) if len(own) else self._linear[place][0]

    def exists(self, op: TemplateOp) -> bool:
        """Return whether an operation is there in every plan."""
        return not op.part_of or not self.present.isdisjoint(op.part_of)

    @cached_property
    def _place(self) -> dict[int, int]:
        """The place in ``ops`` of every operation's number."""
        return {number: place for place, number in enumerate(self.ops)}

    @cached_property
    def _alike(self) -> NDArray[np.bool_]:
        """Which operations take as long on all ranks, shape (operations,)."""
        return np.array([takes_all_as_long(op) for op in self.ops.values()], dtype=bool)

    @cached_property
    def _linear(self) -> list[tuple[Seconds, Vector, Lines | None]]:
        """Formulas of all operations but lookups: seconds, and of collectives, bytes and lines."""
        return [self._formula_of(*each) for each in self.ops.items()]

    @cached_property
    def _constants(self) -> Vector:
        """Seconds of the operations' constants, (operations,)."""
        return np.array([constant for constant, _, _ in self._linear])

    @cached_property
    def _amounts(self) -> Vector:
        """Shape (operations, features)."""
        return np.array([amounts for _, amounts, _ in self._linear]).reshape(-1, self.index.size)

    @cached_property
    def _lines(self) -> tuple[NDArray[np.intp], Vector, Vector]:
        """Return collectives' places, and the constants and slopes of their lines.

        The last two are of shape (collectives, most lines of one); of those with fewer lines the
        first is repeated.
        """
        lines = {place: each for place, (_, _, each) in enumerate(self._linear) if each}
        most = max(map(len, lines.values()), default=1)
        table = np.array([(*each, *([each[0]] * (most - len(each)))) for each in lines.values()])
        table = table.reshape(len(lines), most, 2)
        return np.array(list(lines), dtype=np.intp), table[..., 0], table[..., 1]

    @cached_property
    def _kernel_times(self) -> _KernelTimes:
        """Return the place and the line of every operation that is a lookup kernel's, stacked."""
        found = [
            (place, *self._lookup(op.work.kernel, op.work.kind))
            for place, op in enumerate(self.ops.values())
            if op.work.kernel is not None
        ]
        places, constants, rivals, others, times = zip(*found, strict=True) if found else [()] * 5
        return _KernelTimes(
            np.array(places, dtype=np.intp),
            np.array(constants),
            np.array(rivals, dtype=np.intp).reshape(-1, len(BACKWARD)),
            np.array(others, dtype=np.intp),
            np.array(times),
        )

    def _lookup(self, kernel: GroupKernel, kind: WorkKind) -> tuple[Seconds, list[int], int, float]:
        """Return a kernel's constant, rivals, other feature and factor (``_KernelTimes``)."""
        rivals, other = FORWARD, Part.FORWARD_OTHER
        rates, gpu = lookup_rates(self.hardware), self.hardware.gpu
        latency = rates.latency
        if kind is WorkKind.FORWARD:
            latency = rates.forward_latency * min(1.0, gpu.forward_correction.least_factor)
        if kind is WorkKind.BACKWARD:
            rivals, other = BACKWARD, Part.BACKWARD_OTHER
            latency = gpu.backward_correction.least_factor * rates.backward_latency
        padded = (*rivals, *[rivals[0]] * (len(BACKWARD) - len(rivals)))
        return (
            latency * self.shares.get(kernel, 0.0),
            [self.index.part(kernel, part) for part in padded],
            self.index.part(kernel, other),
            WEIGHT_GRADIENT_RATIO if kind is WorkKind.WEIGHT_GRADIENT else 1.0,
        )

    def _formula_of(self, number: int, op: TemplateOp) -> tuple[Seconds, Vector, Lines | None]:
        """Return constant, seconds (or bytes) per feature, and lines of an operation."""
        work, gpu = op.work, self.hardware.gpu
        amounts = np.zeros(self.index.size)
        always = self.exists(op)
        place = self.index.sent if takes_all_as_long(op) else self.index.feature
        for feature, weight in work.amount.weights.items():
            if always or feature.group in op.part_of:  # others' amounts alone do not bring it
                amounts[place(feature)] += weight
        if work.kind is WorkKind.STREAM:
            least = gpu.stream_correction.least_factor
            fixed = gpu.kernel_latency + work.amount.constant / gpu.memory_bandwidth
            constant = least * fixed * self.busy_share(work) if always else 0.0
            return constant, least * amounts / gpu.memory_bandwidth, None
        if work.kind is WorkKind.EXCHANGE and work.form is not None:
            floor = float(work.form.time(work.amount.constant)) if always else 0.0
            return floor, amounts, lines_below(work.form, float(amounts @ self.largest), floor)
        constant = 0.0
        if work.kind is WorkKind.ISSUE:
            constant = work.seconds * self.busy_share(self.ops[number + 1].work)
        elif always or work.amount.constant < 0:
            constant = work.amount.constant + work.seconds
        return constant, amounts, None

    def busy_share(self, work: Work) -> float:
        """Return the smallest share of the ranks on which an operation takes any time."""
        if work.least:
            return 0.0
        if work.kernel is not None:
            return self.shares.get(work.kernel, 0.0)
        if work.form is not None:
            return float(float(work.form.time(0.0)) > 0)
        if work.amount.constant > 0:
            return 1.0
        shares = [self._feature_share(feature) for feature in work.amount.weights]
        return max(shares, default=0.0)

    def _feature_share(self, feature: Feature) -> float:
        """Return the smallest share of the ranks on which a feature is above 0."""
        if feature.group not in self.present or not self.index.is_sure(feature):
            return 0.0
        if feature.name in RANK_FEATURES:
            return self.shares.get(feature.group, 0.0)
        return 1.0


def takes_all_as_long(op: TemplateOp) -> bool:
    """Return whether a collective takes as long on all ranks; inside nodes, times differ."""
    return op.work.kind is WorkKind.EXCHANGE and op.group is not ProcessGroup.INTRA_NODE


@lru_cache(maxsize=10_000)  # parts of a branched bound have most collectives in common
def lines_below(form: CollectiveForm, most: Bytes, floor: Seconds) -> Lines:
    """Return straight lines below a collective's time, up to so many bytes.

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
