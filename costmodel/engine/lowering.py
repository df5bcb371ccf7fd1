"""From a template to the flat arrays of ``engine.step.Step``.

Operations become rows, dependencies and byte counts become index ranges into shared arrays
(compressed sparse rows), and features become columns. A lowered step is that of plans which have
just the groups it was made for: which groups a plan has then decides which step is its own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.engine.codes import (
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
    TemplateOp,
    Work,
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
    """Lower the step of plans that have all groups of a template (``Lowering``)."""
    return Lowering(template, columns, rows).step()


class Lowering:
    """Lowers the steps of plans that have some groups of a template; what they share only once."""

    def __init__(self, template: Template, columns: Columns, rows: Sequence[int]) -> None:
        """Write what every operation is by itself.

        Parameters
        ----------
        template, columns
            The step, and where features and kernels are.
        rows
            Where the durations of its operations are kept.

        """
        self.template, self._rows = template, rows
        self._ops = [_Lowered(op, columns) for op in template.ops]
        for op, launched in pairwise(self._ops):
            if op.kind == ISSUE:
                op.same, op.whole, op.owners = launched.same, launched.whole, launched.owners

    def step(self, groups: Collection[GroupKey] | None = None) -> Step:
        """Lower the step of plans that have some of the groups; by default all."""
        ops, numbers = self.template.ops, range(len(self._ops))
        some = numbers if groups is None else [n for n in numbers if ops[n].exists(groups)]
        kept, final = contract(self.template, some)
        place = {each.op: index for index, each in enumerate(kept)}
        lowered = [self._ops[each.op] for each in kept]
        starts, flat = _ranges([_start(each, place) for each in kept])
        terms, weighted = _ranges([each.terms for each in lowered])
        parts, kernels = _starts([each.where for each in lowered])
        knots, curve = _ranges([each.curve for each in lowered])
        return Step(
            kind=_ints(each.kind for each in lowered),
            seconds=_floats(each.work.seconds for each in kept),
            group=_ints(GROUPS[each.group] for each in kept),
            launched=_ints(
                place[each.op + 1] if each.work.kind is WorkKind.ISSUE else -1 for each in kept
            ),
            same=_ints(each.same for each in lowered),
            rows=_ints(self._rows[each.op] for each in kept),
            whole=_ints(each.whole for each in lowered),
            touched_by=_ints(each.owners for each in lowered),
            starts=starts,
            sources=_ints(source for source, _ in flat),
            lags=_floats(lag for _, lag in flat),
            terms=terms,
            features=_ints(column for column, _ in weighted),
            weights=_floats(weight for _, weight in weighted),
            constants=_floats(each.work.amount.constant for each in kept),
            forms=np.array([each.form.numbers for each in lowered]),
            knots=knots,
            log_bytes=_floats(size for size, _ in curve),
            log_seconds=_floats(seconds for _, seconds in curve),
            finals=_ints(sorted(place[op] for op in final)),
            like=_ints(_like(self.template, kept)),
            least=_ints(each.work.least for each in kept),
            parts=parts,
            kernels=_ints(kernels),
        )


def _like(template: Template, kept: Sequence[Kept]) -> tuple[int, ...]:
    """Return the batches that are not written, with the new places of their operations."""
    if template.like is None:
        return ()
    *begins, left_out = template.like
    return (*(sum(each.op < begin for each in kept) for begin in begins), left_out)


def _start(kept: Kept, place: Mapping[int, int]) -> list[tuple[int, Seconds]]:
    """Return what an operation waits for, by the places of those that stay."""
    return [
        (-1 - place[source.op] if source.is_before else place[source.op], lag)
        for source, lag in kept.start.items()
    ]


Curve = list[tuple[float, float]]
"""Logarithms of bytes and of seconds."""


def _curve(form: CollectiveForm) -> tuple[CollectiveForm, Curve]:
    log_bytes, log_seconds = form.knots
    return form, list(zip(log_bytes.tolist(), log_seconds.tolist(), strict=True))


_NO_FORM, _NO_CURVE = _curve(CollectiveForm())


class _Lowered:
    """One operation, in numbers, but for what it waits for."""

    def __init__(self, op: TemplateOp, columns: Columns) -> None:
        work = op.work
        self.kind = KINDS[work.kind]
        kernel = columns.kernels[work.kernel] if work.kernel else -1
        self.terms = sorted(
            (columns.feature(feature), weight) for feature, weight in work.amount.weights.items()
        )
        self.where = [columns.kernels[each] for each in work.where if each in columns.kernels]
        if work.kind is WorkKind.WEIGHT_GRADIENT:
            self.where = [kernel]
        self.form, self.curve = (_NO_FORM, _NO_CURVE) if work.form is None else _curve(work.form)
        of_ranks = [columns.is_per_rank(column) for column, _ in self.terms]
        self.whole = NONE if all(of_ranks) else SOME if any(of_ranks) else ONLY
        """How many of the features that the duration depends on are of the whole plan."""
        self.same = not _is_per_rank(op, of_ranks)
        """Whether it is the same on all ranks. An issue's is what it launches; so is the rest."""
        self.owners = _owners(work, columns)
        """The bits of the groups that it depends on."""


def _is_per_rank(op: TemplateOp, of_ranks: Sequence[bool]) -> bool:
    """Return whether a duration differs between ranks, whatever it launches.

    ``of_ranks``: of every feature that it depends on, whether each rank has its own.
    """
    if op.work.kind is WorkKind.GIVEN or op.work.least:
        return True
    if op.work.kind is WorkKind.EXCHANGE:
        return op.group is ProcessGroup.INTRA_NODE
    return op.work.kernel is not None or any(of_ranks)


def _owners(work: Work, columns: Columns) -> int:
    """Return the bits of the groups that a duration depends on."""
    keys = [feature.group for feature in work.amount.weights]
    keys += [group for group, _ in work.where]
    keys += [work.kernel[0]] if work.kernel else []
    bits = 0 if work.amount.weights or work.kernel else NO_GROUP
    for key in keys:
        bits |= 1 << columns.groups[key]
    return bits


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
