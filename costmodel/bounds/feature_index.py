"""The place of each feature of groups and lookup kernels in the vector of a plan's features."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.bounds.option_features import (
    EXCHANGED,
    GROUP_FEATURES,
    KERNEL_VALUES,
    BoundOptions,
    Part,
    is_first,
)
from costmodel.engine.timer import Signature
from costmodel.step.cuts import GroupKernel
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.template import (
    KERNEL_FEATURES,
    PLAN_FEATURES,
    SOME_TABLES_FEATURES,
    Feature,
)

Vector = NDArray[np.float64]


class FeatureIndex:
    """Places of features of groups and kernels in the vector z of a plan."""

    def __init__(self, kernels: Signature, *, fullest: bool = False) -> None:
        """Give every feature of groups and their lookup kernels a place.

        With ``fullest``, also the amounts that the fullest rank of each group sends, for which
        collectives wait.
        """
        self._groups: dict[GroupKey, int] = {}
        self._kernels: dict[tuple[GroupKey, KernelKey], int] = {}
        size = 0
        for group, names in kernels:
            self._groups[group] = size
            size += len(GROUP_FEATURES)
            for kernel in names:
                self._kernels[group, kernel] = size
                size += len(KERNEL_VALUES)
        first = size
        if fullest:
            size += len(self._groups) * len(EXCHANGED)
        self.fullest = np.arange(first, size)
        """Places of the amounts that fullest ranks send, group by group, ``EXCHANGED`` of each."""
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

    def sent(self, feature: Feature) -> int:
        """Return the place of the amount that a collective of all ranks waits for."""
        if not len(self.fullest) or feature.name not in EXCHANGED:
            return self.feature(feature)
        first = list(self._groups).index(feature.group) * len(EXCHANGED)
        return int(self.fullest[first + EXCHANGED.index(feature.name)])

    def is_sure(self, feature: Feature) -> bool:
        """Return whether a feature is above 0 in all plans that have its group.

        A group may lack a kernel, or cached or stashed tables.
        """
        if feature.kernel is not None:
            return self.kernels_of(feature.group) == [feature.kernel]
        return feature.name not in SOME_TABLES_FEATURES

    def kernels_of(self, group: GroupKey) -> list[KernelKey]:
        """Return a group's lookup kernels."""
        return [kernel for key, kernel in self._kernels if key == group]

    def of_group(self, group: GroupKey) -> Vector:
        """Return a vector that is 1 for the features of a group and its kernels, 0 for others."""
        flags = np.zeros(self.size)
        first = self._groups[group]
        flags[first : first + len(GROUP_FEATURES)] = 1.0
        for kernel in self.kernels_of(group):
            first = self._kernels[group, kernel]
            flags[first : first + len(KERNEL_VALUES)] = 1.0
        return flags

    def part(self, kernel: tuple[GroupKey, KernelKey], part: Part) -> int:
        """Return the place of a lookup kernel's part."""
        return self._kernels[kernel] + len(KERNEL_FEATURES) + part

    @property
    def groups(self) -> list[GroupKey]:
        """All groups, in the order of a step."""
        return list(self._groups)

    def shares(self, z: Vector) -> dict[GroupKey, float]:
        """Return the share of tables in each group."""
        return {group: float(z[self.present([group])[0]]) for group in self._groups}

    def present(self, groups: Sequence[GroupKey]) -> list[int]:
        """Return the places of the features that tell whether groups are there."""
        return [self._groups[group] + GROUP_FEATURES.index("present") for group in groups]

    def here(
        self, groups: Sequence[GroupKey], kernel: tuple[GroupKey, KernelKey] | None
    ) -> list[int]:
        """Return the places of features: whether kernels have work on the first table's rank."""
        some = [kernel] if kernel else [key for key in self._kernels if key[0] in groups]
        return [self.part(each, Part.HERE) for each in some]

    def of_kernel(self, kernel: GroupKernel) -> list[int]:
        """Return the places of the values of options of a group and kernel."""
        first, second = self._groups[kernel[0]], self._kernels[kernel]
        return [
            *range(first, first + len(GROUP_FEATURES)),
            *range(second, second + len(KERNEL_VALUES)),
        ]

    def places(self, kernels: Sequence[GroupKernel]) -> NDArray[np.intp]:
        """Return the places of some kernels' features, a row each, as ``of_kernel`` has one.

        Zeros for unknown kernels.
        """
        known = [(pair[0], pair[1]) in self._kernels for pair in kernels]
        none = [0] * (len(GROUP_FEATURES) + len(KERNEL_VALUES))
        rows = zip(kernels, known, strict=True)
        return np.array([self.of_kernel(pair) if here else none for pair, here in rows])


def largest_features(options: BoundOptions, index: FeatureIndex) -> Vector:
    """Return the largest value of every feature over plans of some options.

    Not of the amounts that fullest ranks send.
    """
    largest, own = np.zeros(index.size), len(GROUP_FEATURES)
    of_groups = options.largest_of_tables(options.values[:, :own], index.groups).sum(axis=0)
    for kernel, rows in options.of_kernels:
        first = np.flatnonzero(is_first(options.table[rows]))
        of_kernel = np.maximum.reduceat(options.values[rows, own:], first).sum(axis=0)
        places = index.of_kernel(kernel)
        largest[places[:own]] = of_groups[index.groups.index(kernel[0])]
        largest[places[own:]] = of_kernel
    return largest
