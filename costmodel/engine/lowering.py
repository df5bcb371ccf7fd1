"""From a template to the flat arrays of ``engine.step.Step``.

Operations become rows, dependencies and byte counts become index ranges into shared arrays
(compressed sparse rows), and features become columns. A lowered step is that of plans which have
all the groups it was made for: which groups a plan has then decides which step is its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.hardware import Topology
from costmodel.engine.codes import (
    EXCHANGE,
    GIVEN,
    GROUPS,
    ISSUE,
    KINDS,
    NO_GROUP,
    NONE,
    ONLY,
    SOME,
)
from costmodel.engine.contraction import Kept, contract
from costmodel.engine.state import Machine
from costmodel.engine.step import Step
from costmodel.kernels.collectives import CollectiveForm
from costmodel.kernels.embedding import lookup_rates
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.program import ProcessGroup
from costmodel.step.template import (
    KERNEL_FEATURES,
    PLAN_FEATURES,
    RANK_FEATURES,
    Feature,
    Template,
    WorkKind,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def machine(topology: Topology) -> Machine:
    """Return the numbers of a topology."""
    gpu = topology.hardware.gpu
    return Machine(
        num_ranks=topology.world_size,
        local_ranks=topology.local_world_size,
        stream_latency=gpu.kernel_latency,
        stream_bandwidth=gpu.memory_bandwidth,
        stream_knots=gpu.stream_correction.array,
        rates=lookup_rates(topology.hardware),
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Where features and kernels are."""

    groups: Mapping[GroupKey, int]
    kernels: Mapping[tuple[GroupKey, KernelKey], int]

    @classmethod
    def of(cls, signature: Iterable[tuple[GroupKey, Sequence[KernelKey]]]) -> "Columns":
        """Return the places of sharding groups and their lookup kernels, in their order."""
        pairs = list(signature)
        names = [(key, kernel) for key, kernels in pairs for kernel in kernels]
        return cls(
            groups={key: index for index, (key, _) in enumerate(pairs)},
            kernels={name: index for index, name in enumerate(names)},
        )

    def feature(self, feature: Feature) -> int:
        """Return the column of a feature: those of ranks, of the plan, of the plan's kernels."""
        if feature.kernel is not None:
            kernel = self.kernels[feature.group, feature.kernel]
            place = kernel * len(KERNEL_FEATURES) + KERNEL_FEATURES.index(feature.name)
            return len(self.groups) * (len(RANK_FEATURES) + len(PLAN_FEATURES)) + place
        group = self.groups[feature.group]
        if feature.name in RANK_FEATURES:
            return group * len(RANK_FEATURES) + RANK_FEATURES.index(feature.name)
        first = len(self.groups) * len(RANK_FEATURES)
        return first + group * len(PLAN_FEATURES) + PLAN_FEATURES.index(feature.name)

    def is_per_rank(self, column: int) -> bool:
        """Return whether a column has a value per rank."""
        return column < len(self.groups) * len(RANK_FEATURES)

    @property
    def num_plan_features(self) -> int:
        """How many columns have one value for the plan."""
        return len(self.groups) * len(PLAN_FEATURES) + len(self.kernels) * len(KERNEL_FEATURES)


def lower(template: Template, columns: Columns, rows: Sequence[int]) -> Step:
    """Lower the step of plans that have all groups of a template.

    ``rows``: where the durations of its operations are kept.
    """
    kept, final = contract(template)
    place = {each.op: index for index, each in enumerate(kept)}
    lowered = [_Lowered(each, place, columns) for each in kept]
    same = _same(lowered)
    starts, flat = _ranges([each.start for each in lowered])
    terms, weighted = _ranges([each.terms for each in lowered])
    parts, kernels = _starts([each.where for each in lowered])
    knots, curve = _ranges([each.curve for each in lowered])
    return Step(
        kind=_ints(each.kind for each in lowered),
        seconds=_floats(each.kept.work.seconds for each in lowered),
        group=_ints(GROUPS[each.kept.group] for each in lowered),
        launched=_ints(each.launched for each in lowered),
        same=_ints(same),
        rows=_ints(rows[each.kept.op] for each in lowered),
        whole=_ints(_whole(lowered)),
        touched_by=_ints(_touched_by(lowered)),
        starts=starts,
        sources=_ints(source for source, _ in flat),
        lags=_floats(lag for _, lag in flat),
        terms=terms,
        features=_ints(column for column, _ in weighted),
        weights=_floats(weight for _, weight in weighted),
        constants=_floats(each.kept.work.amount.constant for each in lowered),
        forms=np.array([each.form.numbers for each in lowered]),
        knots=knots,
        log_bytes=_floats(size for size, _ in curve),
        log_seconds=_floats(seconds for _, seconds in curve),
        finals=_ints(sorted(place[op] for op in final)),
        like=_ints(_like(template, kept)),
        least=_ints(each.kept.work.least for each in lowered),
        parts=parts,
        kernels=_ints(kernels),
    )


def _like(template: Template, kept: Sequence[Kept]) -> tuple[int, ...]:
    """Return the batches that are not written, with the new places of their operations."""
    if template.like is None:
        return ()
    *begins, left_out = template.like
    return (*(sum(each.op < begin for each in kept) for begin in begins), left_out)


Curve = list[tuple[float, float]]
"""Logarithms of bytes and of seconds."""


def _curve(form: CollectiveForm) -> tuple[CollectiveForm, Curve]:
    log_bytes, log_seconds = form.knots
    return form, list(zip(log_bytes.tolist(), log_seconds.tolist(), strict=True))


_NO_FORM, _NO_CURVE = _curve(CollectiveForm())


class _Lowered:
    """One operation, in numbers."""

    def __init__(self, kept: Kept, place: Mapping[int, int], columns: Columns) -> None:
        work = kept.work
        self.kept, self.columns = kept, columns
        self.kind = KINDS[work.kind]
        self.kernel = columns.kernels[work.kernel] if work.kernel else -1
        self.launched = place[kept.op + 1] if work.kind is WorkKind.ISSUE else -1
        self.start = [
            (-1 - place[source.op] if source.is_before else place[source.op], lag)
            for source, lag in kept.start.items()
        ]
        self.terms = sorted(
            (columns.feature(feature), weight) for feature, weight in work.amount.weights.items()
        )
        self.where = [columns.kernels[each] for each in work.where if each in columns.kernels]
        if work.kind is WorkKind.WEIGHT_GRADIENT:
            self.where = [self.kernel]
        self.form, self.curve = (_NO_FORM, _NO_CURVE) if work.form is None else _curve(work.form)

    def per_rank(self) -> bool:
        """Return whether the duration differs between ranks, whatever it launches."""
        if self.kind == GIVEN:
            return True
        if self.kept.work.least:
            return True
        if self.kind == EXCHANGE:
            return self.kept.group is ProcessGroup.INTRA_NODE
        return self.kernel >= 0 or any(self.columns.is_per_rank(each) for each, _ in self.terms)

    def whole(self) -> int:
        """Return how many of the features that the duration depends on are of the whole plan."""
        some = [self.columns.is_per_rank(column) for column, _ in self.terms]
        return NONE if all(some) else SOME if any(some) else ONLY

    def owners(self) -> int:
        """Return the bits of the groups that the duration depends on."""
        bits = 0 if self.terms or self.kernel >= 0 else NO_GROUP
        if self.kept.work.kernel is not None:
            bits |= 1 << self.columns.groups[self.kept.work.kernel[0]]
        for group, _ in self.kept.work.where:
            bits |= 1 << self.columns.groups[group]
        for feature in self.kept.work.amount.weights:
            bits |= 1 << self.columns.groups[feature.group]
        return bits


def _same(lowered: Sequence[_Lowered]) -> list[bool]:
    same = [not each.per_rank() for each in lowered]
    return [
        same[each.launched] if each.kind == ISSUE else own
        for each, own in zip(lowered, same, strict=True)
    ]


def _whole(lowered: Sequence[_Lowered]) -> list[int]:
    whole = [each.whole() for each in lowered]
    return [
        whole[each.launched] if each.kind == ISSUE else own
        for each, own in zip(lowered, whole, strict=True)
    ]


def _touched_by(lowered: Sequence[_Lowered]) -> list[int]:
    own = [each.owners() for each in lowered]
    return [
        own[each.launched] if each.kind == ISSUE else bits
        for each, bits in zip(lowered, own, strict=True)
    ]


def _ranges(
    parts: Sequence[Sequence[tuple[float, float]]],
) -> tuple[Ints, list[tuple[float, float]]]:
    """Return where each part begins in all parts one after the other, and these."""
    begins = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=begins[1:])
    return begins, [each for part in parts for each in part]


def _starts(parts: Sequence[Sequence[int]]) -> tuple[Ints, list[int]]:
    begins = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=begins[1:])
    return begins, [each for part in parts for each in part]


def _ints(values: Iterable[float]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)
