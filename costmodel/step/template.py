"""A step with formulas for durations: one template for all plans of a workload on a topology.

A step is written once (``step.builder``), on loads that are formulas (``GroupFormulas``)
instead of numbers, over every sharding group that some plan may have. What comes out is a
``Template``: the operations of the step, each with a ``Work`` that says how its duration follows
from a plan's loads. Operations of a group that a plan does not have are left out when it is timed.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from costmodel.base.units import Seconds
from costmodel.domain.hardware import NO_BASIS, Basis, CollectiveOp, Topology
from costmodel.kernels.collectives import CollectiveForm, RankGroup
from costmodel.step.graph import NodeKind, Role, Stage
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.step_operations import LikeBatches, ProcessGroup


class Feature(NamedTuple):
    """One number of a plan's loads: of a group, by rank or for the whole plan."""

    group: GroupKey
    name: str
    kernel: KernelKey | None = None
    """The lookup kernel whose number it is; None: the group's."""


RANK_FEATURES = ("features", "ids", "columns", "fetch_time", "stashed_bytes", "replica_bytes")
"""Features with a value on every rank."""
SOME_TABLES_FEATURES = ("fetch_time", "stashed_bytes")
"""Features of cached or stashed tables, 0 if a group has none."""
PLAN_FEATURES = (
    "table_columns",
    "sent_ids",
    "sent_features",
    "present",
    "tables",
)
"""Features with one value for the plan."""
KERNEL_FEATURES = ("parameter_bytes",)
"""Features with one value for every lookup kernel of the plan."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A weighted sum of features and a constant: bytes, as a formula."""

    weights: Mapping[Feature, float] = field(default_factory=dict)
    constant: float = 0.0

    def __add__(self, other: "Linear | float") -> "Linear":
        if not isinstance(other, Linear):
            return Linear(self.weights, self.constant + other)
        weights = dict(self.weights)
        for feature, weight in other.weights.items():
            weights[feature] = weights.get(feature, 0.0) + weight
        return Linear(weights, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: float) -> "Linear":
        weights = {feature: weight * factor for feature, weight in self.weights.items()}
        return Linear(weights, self.constant * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Linear":
        return self * (1.0 / divisor)

    @classmethod
    def of(cls, amount: "Linear | float") -> "Linear":
        """Return an amount as a formula; a number is a constant."""
        return amount if isinstance(amount, Linear) else cls({}, float(amount))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFormulas:
    """The loads of a sharding group that some plan has, as formulas; see ``GroupLoad``."""

    key: GroupKey
    kernels: tuple[KernelKey, ...]
    """Its lookup kernels."""
    features: Linear
    ids: Linear
    columns: Linear
    fetch_time: Linear
    stashed_bytes: Linear
    replica_bytes: Linear
    table_columns: Linear
    sent_ids: Linear
    sent_features: Linear
    parameter_bytes: Mapping[KernelKey, Linear]
    present: Linear
    """1 if the plan has the group, else 0."""
    tables: Linear
    """Tables in the group."""

    @classmethod
    def of(cls, key: GroupKey, kernels: Sequence[KernelKey]) -> "GroupFormulas":
        """Return the formulas of a group with some kernels: each is a feature of the plan."""
        names = (*RANK_FEATURES, *PLAN_FEATURES)
        return cls(
            key=key,
            kernels=tuple(kernels),
            parameter_bytes={
                kernel: Linear({Feature(key, "parameter_bytes", kernel): 1.0}) for kernel in kernels
            },
            **{name: Linear({Feature(key, name): 1.0}) for name in names},
        )


class WorkKind(StrEnum):
    """How a duration follows from loads."""

    CONSTANT = "constant"
    STREAM = "stream"
    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHT_GRADIENT = "weight_gradient"
    """The gradient of the weights of a lookup's ids."""
    EXCHANGE = "exchange"
    LINEAR = "linear"
    """The amount itself, in seconds."""
    ISSUE = "issue"
    """Host time, on ranks where the next operation takes any time."""
    GIVEN = "given"
    """It does not follow: the caller gives the duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The duration of one operation."""

    kind: WorkKind
    seconds: Seconds = 0.0
    """Seconds of a constant, or of an issue."""
    amount: Linear = Linear()
    """Bytes of a stream or an exchange; seconds of what is linear."""
    kernel: tuple[GroupKey, KernelKey] | None = None
    """The lookup kernel whose traffic a lookup has."""
    form: CollectiveForm | None = None
    where: tuple[tuple[GroupKey, KernelKey], ...] = ()
    """Lookup kernels: a stream takes place only on ranks with work for ``least`` of them."""
    least: int = 0
    """Smallest number of these kernels."""


class Issued(NamedTuple):
    """The event "everything issued on a resource so far", as far as a plan has it."""

    resource: str


Event: TypeAlias = int | Issued
"""An earlier operation by number, or everything on a resource, that an operation waits for."""


class Exchange(NamedTuple):
    """A collective and its process group."""

    op: CollectiveOp
    ranks: RankGroup


class TemplateOp(NamedTuple):
    """One operation, as ``Op``, with a formula for its duration."""

    name: str
    resource: str
    work: Work
    after: tuple[Event, ...]
    after_previous: tuple[int, ...] = ()
    """Operations of the step before."""
    launched_by: int | None = None
    group: ProcessGroup | None = None
    part_of: tuple[GroupKey, ...] = ()
    """It exists only if the plan has one of these groups; empty: always."""
    joined: tuple[GroupKey, ...] = ()
    """It exists only if the plan has two of these groups; empty: in any case."""
    kind: NodeKind = NodeKind.KERNEL
    stage: Stage = Stage.HOST
    role: Role = Role.OTHER
    num_bytes: Linear = Linear()
    """Memory traffic of a kernel, message of a collective; those of a lookup follow from its
    kernel's traffic."""
    basis: Basis | None = NO_BASIS
    """Basis of its duration; None: it depends on the plan."""
    exchange: Exchange | None = None
    """The collective whose duration it is."""

    def exists(self, present: Collection[GroupKey]) -> bool:
        """Return whether plans that have these groups, and no others, have the operation."""
        several = not self.joined or sum(key in present for key in self.joined) > 1
        return several and (not self.part_of or any(key in present for key in self.part_of))

    def moved(self, place: Mapping[int, int]) -> "TemplateOp":
        """Return the operation with others at new places.

        It does not wait for those without one.
        """
        if not self.after and not self.after_previous and self.launched_by is None:
            return self
        after = [
            each if isinstance(each, Issued) else place[each]
            for each in self.after
            if isinstance(each, Issued) or each in place
        ]
        return self._replace(
            after=tuple(after),
            after_previous=tuple([place[each] for each in self.after_previous if each in place]),
            launched_by=None if self.launched_by is None else place[self.launched_by],
        )

    def without(self, others: Collection[GroupKey]) -> "TemplateOp":
        """Return the operation as plans without some groups have it, of which it must be."""
        changed: dict[str, Any] = {}
        if self.work.amount.weights or self.work.where:
            amount = _without(self.work.amount, others)
            where = tuple([kernel for kernel in self.work.where if kernel[0] not in others])
            if amount is not self.work.amount or where != self.work.where:
                changed["work"] = replace(self.work, amount=amount, where=where)
        if self.num_bytes.weights:
            changed["num_bytes"] = _without(self.num_bytes, others)
        if len(self.part_of) > 1:
            changed["part_of"] = tuple([key for key in self.part_of if key not in others])
        if self.joined:
            changed["joined"] = tuple([key for key in self.joined if key not in others])
        return self._replace(**changed) if changed else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The operations of one step of every plan."""

    ops: tuple[TemplateOp, ...]
    resources: tuple[str, ...]
    topology: Topology
    launch_delay: Seconds
    like: LikeBatches | None = None
    """Batches left out of the operations; None: all are written."""

    def some(self, groups: Collection[GroupKey]) -> "Template":
        """Return the template of plans with at most some of its groups.

        Other things may be written otherwise for these plans (``Templates.of``).
        """
        kept = [number for number, op in enumerate(self.ops) if op.exists(groups)]
        place = {number: at for at, number in enumerate(kept)}
        others = {key for op in self.ops for key in op.part_of}.difference(groups)
        ops = tuple(self.ops[number].moved(place).without(others) for number in kept)
        resources = tuple(dict.fromkeys(op.resource for op in ops))
        like = self.like
        if like is not None:
            first, second, last = (bisect_left(kept, number) for number in like[:3])
            like = LikeBatches(first, second, last, like.left_out)
        return replace(self, ops=ops, resources=resources, like=like)


def _without(amount: Linear, others: Collection[GroupKey]) -> Linear:
    """Return a formula without the features of some groups, which are 0."""
    if not any(feature.group in others for feature in amount.weights):
        return amount
    weights = {f: weight for f, weight in amount.weights.items() if f.group not in others}
    return Linear(weights, amount.constant)
