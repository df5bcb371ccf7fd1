"""A compiled step as flat arrays, for code that is compiled itself (``execution.native``).

Operations become rows, dependencies and byte counts become index ranges into shared arrays
(compressed sparse rows), and features become columns. A lowered step is that of plans which have
all the groups it was made for: which groups a plan has then decides which step is its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.compiled import Before, CompiledStep, Kept
from costmodel.execution.groups import GroupKey, KernelKey
from costmodel.execution.program import ProcessGroup
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES, Feature, Template, WorkKind
from costmodel.hardware import Topology
from costmodel.kernels.collectives import CollectiveForm
from costmodel.kernels.embedding import LookupRates, lookup_rates

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
CONSTANT, STREAM, FORWARD, BACKWARD, EXCHANGE, ISSUE = range(6)
"""Kinds of work, as numbers."""
ALONE, WORLD, INTRA_NODE, CROSS_NODE = range(4)
"""Process groups, as numbers."""
NO_GROUP = 1 << 62
"""The bit of durations that no sharding group decides."""
ALPHA, OFFSET, SCALE, RATIO, SLOPE, ACROSS = range(6)
"""Columns of a collective's form."""
NONE, SOME, ONLY = range(3)
"""How many of the features that a duration depends on are of the whole plan."""

_KINDS = {
    WorkKind.CONSTANT: CONSTANT,
    WorkKind.STREAM: STREAM,
    WorkKind.FORWARD: FORWARD,
    WorkKind.BACKWARD: BACKWARD,
    WorkKind.EXCHANGE: EXCHANGE,
    WorkKind.ISSUE: ISSUE,
}
_GROUPS = {
    None: ALONE,
    ProcessGroup.WORLD: WORLD,
    ProcessGroup.INTRA_NODE: INTRA_NODE,
    ProcessGroup.CROSS_NODE: CROSS_NODE,
}


class Machine(NamedTuple):
    """What durations need of the hardware."""

    num_ranks: int
    local_ranks: int
    num_rank_features: int
    """``RANK_FEATURES`` of all sharding groups that some plan has."""
    stream_latency: float
    stream_bandwidth: float
    rates: LookupRates


class LoweredStep(NamedTuple):
    """One step; operations in the order of their dependencies."""

    kind: Ints
    seconds: Floats
    kernel: Ints
    """Lookup kernel, by its place in the layout; -1: none."""
    group: Ints
    launched: Ints
    """Of an issue, the operation it launches; -1 otherwise."""
    same: Ints
    """1 where the duration is the same on all ranks."""
    rows: Ints
    """Where the duration is kept (``execution.native.Places``)."""
    whole: Ints
    """Whether the duration depends on features of the whole plan: ``NONE``, ``SOME``, ``ONLY``."""
    touched_by: Ints
    """Bits of the sharding groups that the duration depends on."""
    starts: Ints
    """Where each operation's sources begin; one more than there are operations."""
    sources: Ints
    """Operations; ``-1 - op`` is the operation in the step before."""
    lags: Floats
    terms: Ints
    """Where each operation's terms begin."""
    features: Ints
    """Rank features, (group, name), then plan features, (group, name)."""
    weights: Floats
    constants: Floats
    """Bytes besides the terms."""
    forms: Floats
    """(operations, columns from ALPHA to ACROSS)."""
    knots: Ints
    """Where each operation's curve begins; one more than there are operations."""
    log_bytes: Floats
    log_seconds: Floats
    finals: Ints


def machine(topology: Topology, num_groups: int) -> Machine:
    """Return the numbers of a topology."""
    gpu = topology.hardware.gpu
    return Machine(  # all floats: compiled code is made for types
        num_ranks=topology.world_size,
        local_ranks=topology.local_world_size,
        num_rank_features=num_groups * len(RANK_FEATURES),
        stream_latency=float(gpu.kernel_latency),
        stream_bandwidth=float(gpu.memory_bandwidth),
        rates=LookupRates(*map(float, lookup_rates(topology.hardware))),
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Where features and kernels are."""

    groups: Mapping[GroupKey, int]
    kernels: Mapping[tuple[GroupKey, KernelKey], int]

    def feature(self, feature: Feature) -> int:
        """Return the column of a feature."""
        group = self.groups[feature.group]
        if feature.name in RANK_FEATURES:
            return group * len(RANK_FEATURES) + RANK_FEATURES.index(feature.name)
        first = len(self.groups) * len(RANK_FEATURES)
        return first + group * len(PLAN_FEATURES) + PLAN_FEATURES.index(feature.name)

    def is_per_rank(self, column: int) -> bool:
        """Return whether a column has a value per rank."""
        return column < len(self.groups) * len(RANK_FEATURES)

    def owner(self, column: int) -> int:
        """Return the group of a column."""
        first = len(self.groups) * len(RANK_FEATURES)
        if column < first:
            return column // len(RANK_FEATURES)
        return (column - first) // len(PLAN_FEATURES)


def lower(template: Template, columns: Columns, rows: Sequence[int]) -> LoweredStep:
    """Lower the step of plans that have all groups of a template.

    ``rows``: where the durations of its operations are kept.
    """
    step = CompiledStep.of(template, complete=True)
    place = {kept.op: index for index, kept in enumerate(step.kept)}
    lowered = [_Lowered(kept, place, columns) for kept in step.kept]
    same = _same(lowered)
    starts, flat = _ranges([each.start for each in lowered])
    terms, weighted = _ranges([each.terms for each in lowered])
    knots, curve = _ranges([each.curve for each in lowered])
    return LoweredStep(
        kind=_ints(each.kind for each in lowered),
        seconds=_floats(each.kept.work.seconds for each in lowered),
        kernel=_ints(each.kernel for each in lowered),
        group=_ints(_GROUPS[each.kept.group] for each in lowered),
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
        forms=np.array([each.form for each in lowered]),
        knots=knots,
        log_bytes=_floats(size for size, _ in curve),
        log_seconds=_floats(seconds for _, seconds in curve),
        finals=_ints(sorted(place[final.op] for final in step.final)),
    )


class _Lowered:
    """One operation, in numbers."""

    def __init__(self, kept: Kept, place: Mapping[int, int], columns: Columns) -> None:
        work = kept.work
        self.kept, self.columns = kept, columns
        self.kind = _KINDS[work.kind]
        self.kernel = columns.kernels[work.kernel] if work.kernel else -1
        self.launched = place[kept.op + 1] if work.kind is WorkKind.ISSUE else -1
        self.start = [
            (-1 - place[source.value.op] if isinstance(source, Before) else place[source.op], lag)
            for source, lag in kept.start
        ]
        self.terms = sorted(
            (columns.feature(feature), weight) for feature, weight in work.amount.weights.items()
        )
        self.form = _form_numbers(work.form)
        curve = None if work.form is None else work.form.curve
        self.curve = (
            [(0.0, 0.0)]
            if curve is None
            else list(zip(curve.log_bytes.tolist(), curve.log_seconds.tolist(), strict=True))
        )

    def per_rank(self) -> bool:
        """Return whether the duration differs between ranks, whatever it launches."""
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
        for column, _ in self.terms:
            bits |= 1 << self.columns.owner(column)
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


def _form_numbers(form: CollectiveForm | None) -> tuple[float, ...]:
    if form is None:
        return (0.0,) * (ACROSS + 1)
    scale = 0.0 if form.curve is None else form.scale
    return (form.alpha, form.offset, scale, form.ratio, form.slope, form.across)


def _ranges(
    parts: Sequence[Sequence[tuple[float, float]]],
) -> tuple[Ints, list[tuple[float, float]]]:
    """Return where each part begins in all parts one after the other, and these."""
    begins = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=begins[1:])
    return begins, [each for part in parts for each in part]


def _ints(values: Iterable[float]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


class Programs(NamedTuple):
    """Several lowered steps, one after the other, and where each begins."""

    steps: LoweredStep
    ops: Ints
    """(steps + 1,)."""
    entries: Ints
    terms: Ints
    knots: Ints
    finals: Ints


def join(steps: Sequence[LoweredStep]) -> Programs:
    """Put lowered steps one after the other; ``execution.native.program`` takes them apart."""
    parts = zip(*steps, strict=True)
    return Programs(
        steps=LoweredStep(*(np.concatenate(part) for part in parts)),
        ops=_begins(step.kind.size for step in steps),
        entries=_begins(step.sources.size for step in steps),
        terms=_begins(step.features.size for step in steps),
        knots=_begins(step.log_bytes.size for step in steps),
        finals=_begins(step.finals.size for step in steps),
    )


def _begins(sizes: Iterable[int]) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(list(sizes))])
