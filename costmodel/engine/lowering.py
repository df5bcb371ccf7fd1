"""Turning a template into the flat arrays of ``engine.step.Step``.

Operations become rows, dependencies and byte counts become index ranges into shared arrays
(compressed sparse rows), and features become columns. A lowered step is that of plans with exactly
the groups it was made for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Ints
from costmodel.base.ranges import taken
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
from costmodel.engine.contraction import Contraction
from costmodel.engine.state import Machine
from costmodel.engine.step import Step
from costmodel.kernels.collectives import CollectiveForm
from costmodel.kernels.embedding import lookup_rates
from costmodel.kernels.times import StreamTimes
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.step_operations import ProcessGroup
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


def machine(topology: Topology) -> Machine:
    """Return a topology's numbers as a ``Machine``."""
    gpu = topology.hardware.gpu
    return Machine(
        num_ranks=topology.world_size,
        local_ranks=topology.local_world_size,
        streams=StreamTimes(gpu.kernel_latency, gpu.memory_bandwidth, gpu.stream_correction.array),
        rates=lookup_rates(topology.hardware),
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of features and lookup kernels."""

    groups: Mapping[GroupKey, int]
    kernels: Mapping[tuple[GroupKey, KernelKey], int]

    @classmethod
    def of(cls, signature: Iterable[tuple[GroupKey, Sequence[KernelKey]]]) -> "Columns":
        """Return the columns of sharding groups and their lookup kernels, in their order."""
        pairs = list(signature)
        names = [(key, kernel) for key, kernels in pairs for kernel in kernels]
        return cls(
            groups={key: index for index, (key, _) in enumerate(pairs)},
            kernels={name: index for index, name in enumerate(names)},
        )

    def feature(self, feature: Feature) -> int:
        """Return the column of a feature: rank features first, then the plan's, then kernels'."""
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
        """Return whether each rank has its own value in a column."""
        return column < len(self.groups) * len(RANK_FEATURES)

    @property
    def num_plan_features(self) -> int:
        """Return the number of columns with one value for the plan."""
        return len(self.groups) * len(PLAN_FEATURES) + len(self.kernels) * len(KERNEL_FEATURES)


def lower(template: Template, columns: Columns, rows: Sequence[int]) -> Step:
    """Return the step of plans that have all groups of a template."""
    return Lowering(template, columns, rows).step()


class Lowering:
    """Makes the steps of plans that have some groups of a template; common parts only once."""

    def __init__(self, template: Template, columns: Columns, rows: Sequence[int]) -> None:
        """Convert every operation by itself.

        Parameters
        ----------
        template, columns
            The step, and the columns of features and kernels.
        rows
            Rows of the durations of its operations.

        """
        ops = template.ops
        self.template, self._contraction = template, Contraction(template)
        lowered = [_Lowered(op, columns) for op in ops]
        for op, launched in pairwise(lowered):
            if op.kind == ISSUE:
                op.same, op.whole, op.owners = launched.same, launched.whole, launched.owners
        self._of_op = {
            "kind": _ints(op.kind for op in lowered),
            "seconds": _floats(op.work.seconds for op in ops),
            "group": _ints(GROUPS[op.group] for op in ops),
            "same": _ints(op.same for op in lowered),
            "rows": _ints(rows),
            "whole": _ints(op.whole for op in lowered),
            "touched_by": _ints(op.owners for op in lowered),
            "constants": _floats(op.work.amount.constant for op in ops),
            "forms": np.array([op.form.numbers for op in lowered]),
            "least": _ints(op.work.least for op in ops),
        }
        terms = [term for op in lowered for term in op.terms]
        self._terms = _Ranges(
            [len(op.terms) for op in lowered],
            _ints(column for column, _ in terms),
            _floats(weight for _, weight in terms),
        )
        self._parts = _Ranges(
            [len(op.where) for op in lowered], _ints(each for op in lowered for each in op.where)
        )
        curves = [knot for op in lowered for knot in op.curve]
        self._curves = _Ranges(
            [len(op.curve) for op in lowered],
            _floats(size for size, _ in curves),
            _floats(seconds for _, seconds in curves),
        )

    def step(self, groups: Collection[GroupKey] | None = None) -> Step:
        """Return the step of plans that have some of the groups; by default all."""
        made = self._contraction.contract(None if groups is None else self._exist(groups))
        ops = made.ops
        of_op = {name: values[ops] for name, values in self._of_op.items()}
        terms, (features, weights) = self._terms.of(ops)
        parts, (kernels,) = self._parts.of(ops)
        knots, (log_bytes, log_seconds) = self._curves.of(ops)
        return Step(
            **of_op,
            launched=np.where(of_op["kind"] == ISSUE, np.arange(1, len(ops) + 1), -1),
            starts=made.starts,
            sources=made.sources,
            lags=made.lags,
            terms=terms,
            features=features,
            weights=weights,
            knots=knots,
            log_bytes=log_bytes,
            log_seconds=log_seconds,
            finals=np.sort(made.finals),
            like=_like(self.template, ops),
            parts=parts,
            kernels=kernels,
        )

    def _exist(self, present: Collection[GroupKey]) -> NDArray[np.bool_]:
        """Return which operations plans with exactly these groups have."""
        different, number = self._conditions
        exist: NDArray[np.bool_] = np.array([op.exists(present) for op in different])[number]
        return exist

    @cached_property
    def _conditions(self) -> tuple[list[TemplateOp], Ints]:
        """One operation of each condition to exist, and the condition of every operation."""
        conditions = [(op.part_of, op.joined) for op in self.template.ops]
        different = dict(zip(conditions, self.template.ops, strict=True))
        number = {condition: place for place, condition in enumerate(different)}
        return list(different.values()), _ints(number[condition] for condition in conditions)


class _Ranges:
    """Arrays with several values for each operation, in compressed rows."""

    def __init__(self, counts: Sequence[int], *values: Ints | Array) -> None:
        """Keep values of all operations, in order."""
        self._begins = np.append(0, np.cumsum(counts, dtype=np.int64))
        self._values = values

    def of(self, ops: Ints) -> tuple[Ints, list[Any]]:
        """Return where the values of some operations begin, and these values."""
        begins, places = taken(self._begins, ops)
        return begins, [each[places] for each in self._values]


def _like(template: Template, kept: Ints) -> Ints:
    """Return the numbers of ``LikeBatches`` at the new places of their operations."""
    if template.like is None:
        return _ints(())
    *begins, left_out = template.like
    return np.append(np.searchsorted(kept, begins), left_out)


Curve = list[tuple[float, float]]
"""Logarithms of bytes and of seconds at knots."""


def _curve(form: CollectiveForm) -> tuple[CollectiveForm, Curve]:
    log_bytes, log_seconds = form.knots
    return form, list(zip(log_bytes.tolist(), log_seconds.tolist(), strict=True))


_NO_FORM, _NO_CURVE = _curve(CollectiveForm())


class _Lowered:
    """One operation in numbers, without the operations that it waits for."""

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
        """Whether none, some or all of the features of its duration are of the whole plan."""
        self.same = not _is_per_rank(op, of_ranks)
        """Whether its duration is the same on all ranks; an issue's is that of the kernel it
        launches."""
        self.owners = _owners(work, columns)
        """Bits of the groups that its duration depends on."""


def _is_per_rank(op: TemplateOp, of_ranks: Sequence[bool]) -> bool:
    """Return whether a duration differs between ranks, apart from what it launches.

    ``of_ranks`` tells of every feature of the duration whether each rank has its own.
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


def _ints(values: Iterable[float]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _floats(values: Iterable[float]) -> Array:
    return np.array(list(values), dtype=np.float64)
