"""A step with formulas for durations: one template for all plans of a workload on a topology.

Synthesis is run once, on loads that are formulas (``Linear``) instead of numbers, over every
sharding group that some plan may have. What comes out is a ``Template``: the operations of the
step, each with a ``Work`` that says how its duration follows from a plan's loads. Operations of a
group that a plan does not have are left out when it is timed, as synthesis would.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from costmodel.execution.graph import NodeKind, Stage
from costmodel.execution.groups import GroupKey, KernelKey
from costmodel.execution.loads import GroupLoad
from costmodel.execution.program import Amount, ProcessGroup, ProgramBuilder
from costmodel.hardware import CollectiveOp, Topology
from costmodel.kernels.collectives import CollectiveForm, collective_form
from costmodel.units import Seconds


class Feature(NamedTuple):
    """One number of a plan's loads: of a group, per rank or of the whole plan."""

    group: GroupKey
    name: str


RANK_FEATURES = ("features", "ids", "columns")
"""Have a value on every rank."""
PLAN_FEATURES = ("table_columns", "sent_ids", "sent_features", "parameter_bytes", "present")
"""Have one value for the plan."""


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


class WorkKind(StrEnum):
    """How a duration follows from the loads."""

    CONSTANT = "constant"
    STREAM = "stream"
    FORWARD = "forward"
    BACKWARD = "backward"
    EXCHANGE = "exchange"
    ISSUE = "issue"
    """Host time, where the next operation has any duration."""
    GIVEN = "given"
    """It does not: whoever times the step gives the duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The duration of one operation."""

    kind: WorkKind
    seconds: Seconds = 0.0
    """Of a constant, or of an issue."""
    amount: Linear = Linear()
    """Bytes of a stream or an exchange."""
    kernel: tuple[GroupKey, KernelKey] | None = None
    """Whose traffic a lookup has."""
    form: CollectiveForm | None = None


class SymbolicTraffic(NamedTuple):
    """Stands for the traffic of one lookup kernel."""

    group: GroupKey
    kernel: KernelKey

    def __getitem__(self, item: object) -> Any:  # noqa: ANN401 -- traffic in graphs is not used here
        del item
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOp:
    """One operation, as ``Op``, with a formula for its duration."""

    name: str
    resource: str
    work: Work
    after: tuple[int, ...]
    """Operations; negative numbers are streams, see ``stream_event``."""
    after_previous: tuple[int, ...]
    launched_by: int | None
    group: ProcessGroup | None
    part_of: tuple[GroupKey, ...]
    """Exists only if the plan has one of these groups; empty: always."""
    joined: tuple[GroupKey, ...] = ()
    """And only if it has two of these; empty: whatever it has."""

    def exists(self, present: Collection[GroupKey]) -> bool:
        """Return whether plans that have these groups, and no others, have the operation."""
        several = not self.joined or sum(key in present for key in self.joined) > 1
        return several and (not self.part_of or any(key in present for key in self.part_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The operations of one step of every plan."""

    ops: tuple[TemplateOp, ...]
    resources: tuple[str, ...]
    topology: Topology
    launch_delay: Seconds


def stream_event(resource: int) -> int:
    """Return the event "all that was issued on a resource so far", as a dependency."""
    return -1 - resource


class TemplateBuilder(ProgramBuilder):
    """Writes a template: amounts are ``Linear``, durations are ``Work``."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(
            topology.hardware,
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
        )
        self._topology = topology
        self._written: list[TemplateOp] = []
        self._resources: list[str] = []
        self._owners: tuple[GroupKey, ...] = ()
        self._joined: tuple[GroupKey, ...] = ()

    def template(self) -> Template:
        """Return the template written so far."""
        ops = list(self._written)
        self._end()
        for index, names in self._waits_for_marks.items():
            marked = tuple(op for name in names for op in self.marked(name))
            ops[index] = replace(ops[index], after_previous=marked)
        return Template(
            ops=tuple(ops),
            resources=tuple(self._resources),
            topology=self._topology,
            launch_delay=self.launch_delay,
        )

    @contextmanager
    def part_of(self, *groups: GroupKey, joined: tuple[GroupKey, ...] = ()) -> Iterator[None]:
        """Leave out what follows in plans that have none of these groups, or not two of others."""
        before = self._owners, self._joined
        self._owners, self._joined = groups, joined
        yield
        self._owners, self._joined = before

    def last(self, resource: str) -> tuple[int, ...]:
        """Return the event of all work on a resource so far, whatever of it a plan has."""
        resource = self.place(resource)
        if resource not in self._resources:
            return ()
        return (stream_event(self._resources.index(resource)),)

    def stream_time(self, num_bytes: Amount) -> Amount:
        """Return a memory-bound kernel's duration as a formula."""
        amount = num_bytes if isinstance(num_bytes, Linear) else Linear({}, float(num_bytes))
        return Work(kind=WorkKind.STREAM, amount=amount)

    def lookup_time(self, traffic: Amount, *, backward: bool = False) -> Amount:
        """Return a lookup's duration as a formula."""
        kind = WorkKind.BACKWARD if backward else WorkKind.FORWARD
        return Work(kind=kind, kernel=(traffic.group, traffic.kernel))

    def lookup_bound(self, traffic: Amount, *, backward: bool = False) -> str:
        """Return nothing: what bounds a lookup depends on the plan."""
        del traffic, backward
        return ""

    def lookup_source(self, traffic: Amount, *, backward: bool = False) -> str:
        """Return nothing, as ``lookup_bound``."""
        del traffic, backward
        return ""

    def exchange_bound(
        self, op: CollectiveOp, num_bytes: Amount, group: ProcessGroup
    ) -> tuple[str, str]:
        """Return nothing, as ``lookup_bound``."""
        del op, num_bytes, group
        return "", ""

    def exchange_time(self, op: CollectiveOp, num_bytes: Amount, group: ProcessGroup) -> Amount:
        """Return a collective's duration as a formula."""
        form = collective_form(op, self.ranks(group), self.hardware)
        amount = num_bytes if isinstance(num_bytes, Linear) else Linear({}, float(num_bytes))
        return Work(kind=WorkKind.EXCHANGE, amount=amount, form=form)

    def _longest(self, seconds: Amount) -> Amount:
        """Return the same formula: without a group, an exchange counts all ranks' bytes."""
        return seconds

    def _issue(self, name: str, num_ops: float, num_launches: float, seconds: Amount) -> int:
        cost = num_ops * self._op_time + num_launches * self._launch_time
        sometimes = isinstance(seconds, Work) and seconds.kind is not WorkKind.CONSTANT
        if not sometimes and not isinstance(seconds, Work):
            cost = cost if seconds > 0 else 0.0
        work = Work(kind=WorkKind.ISSUE if sometimes else WorkKind.CONSTANT, seconds=cost)
        return self._add(f"launch {name}", NodeKind.HOST, Stage.HOST, self.thread, work)

    def _add(  # noqa: PLR0913 -- as ProgramBuilder
        self,
        name: str,
        kind: NodeKind,
        stage: Stage,
        resource: str,
        seconds: Amount,
        *,
        after: tuple[int, ...] = (),
        after_previous: tuple[str, ...] = (),
        launched_by: int | None = None,
        group: ProcessGroup | None = None,
        num_bytes: Amount = 0.0,
        bound_by: str = "",
        source: str = "",
    ) -> int:
        del kind, stage, num_bytes, bound_by, source
        resource = self.place(resource)
        after, after_previous = self._in_turn(resource, after, after_previous)
        index = self._last[resource] = len(self._written)
        if after_previous:
            self._waits_for_marks[index] = after_previous
        if resource not in self._resources:
            self._resources.append(resource)
        constant = seconds if isinstance(seconds, Work) else None
        work = constant or Work(kind=WorkKind.CONSTANT, seconds=float(seconds))
        self._written.append(
            TemplateOp(
                name=name, resource=resource, work=work, after=after, after_previous=(),
                launched_by=launched_by, group=group, part_of=self._owners,
                joined=self._joined,
            )
        )  # fmt: skip
        return index


def symbolic_load(key: GroupKey, kernels: Sequence[KernelKey]) -> GroupLoad:
    """Return the loads of a sharding group as formulas."""

    def feature(name: str) -> Linear:
        return Linear({Feature(key, name): 1.0})

    return GroupLoad(
        key=key,
        traffic={kernel: SymbolicTraffic(key, kernel) for kernel in kernels},
        **{name: feature(name) for name in (*RANK_FEATURES, *PLAN_FEATURES)},
    )
